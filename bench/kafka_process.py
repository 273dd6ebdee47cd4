"""The brokers under measurement as processes: started in a session of their own, watched through /proc, stopped whole.

Linux only. CPU and memory are those of every process in the session, so a broker's children count as the broker.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

LOG_TAIL_BYTES = 1500
STOP_SECONDS = 20
WATCH_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_NO_BYTE_CODE = "PYTHONDONTWRITEBYTECODE"  # some machines set it; no installed broker starts without its byte code


class BenchError(Exception):
    """What a person must know: which load or system failed, and why."""


class Process:
    """A broker that runs, with what it prints going to a file."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self.log = directory / "output.txt"
        with self.log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={name: value for name, value in os.environ.items() if name != _NO_BYTE_CODE},
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def check(self) -> None:
        """Raise if it has ended."""
        status = self._popen.poll()
        if status is not None:
            tail = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
            raise BenchError(f"{self.name} ended with status {status}; it said: {tail or 'nothing'}")

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far, with the children they have waited for."""
        return sum(sum(int(field) for field in fields[11:15]) for fields in self._stats()) / _TICKS

    def memory_mib(self) -> float:
        """Physical memory: RSS of one process; of several their PSS, so that what they share counts once."""
        pids = [int(fields[-1]) for fields in self._stats()]
        kind = "Rss:" if len(pids) == 1 else "Pss:"
        return sum(_rollup_kib(pid, kind) for pid in pids) / 1024

    def stop(self) -> None:
        """Ask it to end; after a while, end it."""
        try:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(STOP_SECONDS)
        finally:  # also when we are interrupted meanwhile, and for children that outlived it
            self._signal(signal.SIGKILL)
            self._popen.wait()

    def _signal(self, kind: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, kind)

    def _stats(self) -> Iterator[list[str]]:
        """The fields of /proc/PID/stat that follow the command's name, and the PID, for each process of the session."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid:
                    yield [*fields, entry.name]


def _rollup_kib(pid: int, kind: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(kind):
                return int(line.split()[1])
    return 0


class MemoryWatch:
    """Samples a process's memory in a thread, and keeps the peak."""

    def __init__(self, process: Process) -> None:
        self.peak_mib = 0.0
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            self.peak_mib = max(self.peak_mib, self._process.memory_mib())


def run_tool(
    command: Sequence[str], timeout_seconds: float, directory: Path | None = None, statuses: Sequence[int] = (0,)
) -> str:
    """Run a driver to its end and give what it printed; kill it when it takes too long."""
    name = Path(command[0]).name
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=directory,
        start_new_session=True,
    ) as popen:
        try:
            output, _ = popen.communicate(timeout=timeout_seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise BenchError(f"{name} was not done after {timeout_seconds:.0f} s") from None
            raise
    if popen.returncode not in statuses:
        raise BenchError(f"{name} ended with status {popen.returncode}: {output.strip()[-LOG_TAIL_BYTES:]}")
    return output


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def raise_file_limit() -> int:
    """Allow as many open files as this machine lets us; brokers started later inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Deadline:
    """Bounds a loop: `while deadline.left(): ...` ends in time; `check` raises when it is over."""

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._what = what
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Raise when no time is left."""
        if not self.left():
            raise BenchError(f"{self._what}: not done after {self._seconds:.0f} s")
