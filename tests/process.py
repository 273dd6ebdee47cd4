"""A real broker process for tests: started, watched, killed and started again on the same directory."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


class BrokerProcess:
    """`odradek serve` in a process of its own; its port stays the same over restarts."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        http: bool = False,
        grpc: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.environment = dict(environment or {})  # beside that of the tests: where its object store is
        self.http = "127.0.0.1:0" if http else "off"
        self.grpc = "127.0.0.1:0" if grpc else "off"
        self.port = 0
        self.ready_line = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        odradek = str(Path(sys.executable).with_name("odradek"))
        command = [odradek, "serve", "--data", str(self.directory), "--kafka", self.bootstrap, "--http", self.http]
        command += ["--grpc", self.grpc]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def start(self) -> Self:
        self.stderr = (self.directory.parent / f"{self.directory.name}.stderr").open("ab")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
        self._process = subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=self.stderr, text=True, env=environment | self.environment
        )
        self.ready_line = self._read_line()
        words = dict(word.split("=", 1) for word in self.ready_line.split() if "=" in word)
        self.port = int(words["kafka"].rpartition(":")[2])
        self.http_url = f"http://{words['http']}"
        self.grpc = words["grpc"]  # the same one after a restart
        return self

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS_MAX)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("odradek ready"):
            self.kill()
            raise AssertionError(f"the broker did not start: {line!r} {self.log()}")
        return line

    def log(self) -> str:
        """What it has said so far."""
        return Path(self.stderr.name).read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it as a power cut would, less the loss of the page cache."""
        self.process.kill()
        self._wait()

    def stop(self) -> int:
        """End it in good order."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        status = self.process.wait(STOP_SECONDS_MAX)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.stderr.close()
        return status

    def memory_bytes(self) -> int:
        """What it holds in memory now."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        elif not self.stderr.closed:
            self._wait()


def wait_until(condition: object, seconds: float = 10.0, what: str = "the condition") -> None:
    """Wait for something that another process or thread does."""
    assert callable(condition)
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        pause.wait(0.01)
