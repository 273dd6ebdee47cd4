"""Runs commands in the tests: in this process, as a process of its own, or with a terminal in front of it."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from odradek.cli.main import main

SECONDS_MAX = 30.0

# Makes the terminal the controlling one, so that Ctrl+C typed there is a signal.
_WITH_TERMINAL = (
    "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "from odradek.cli.main import main; raise SystemExit(main())"
)


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]


class Cli:
    """Commands in this process."""

    def __init__(
        self, capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, broker_address: str
    ) -> None:
        self.address = broker_address
        self._capture = capture
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Run one; `stdin` is what is piped into it."""
        self._capture.readouterr()
        with self._monkeypatch.context() as patched, open(os.devnull, "rb") as nothing:  # noqa: PTH123
            given = io.TextIOWrapper(nothing if stdin is None else os.fdopen(_piped(stdin), "rb"))
            patched.setattr(sys, "stdin", given)
            status = main(arguments)
            given.close()
        out, err = self._capture.readouterr()
        return Ran(status, out.decode(), err.decode())

    def ok(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Run one that must succeed."""
        ran = self(*arguments, stdin=stdin)
        assert ran.status == 0, ran.err
        return ran

    def fails(self, *arguments: str, status: int = 1, stdin: bytes | None = None) -> str:
        """Run one that must fail; return the one line that it says."""
        ran = self(*arguments, stdin=stdin)
        assert ran.status == status, ran
        (line,) = [line for line in ran.err.splitlines() if line.startswith("odradek: ")]
        assert "a bug in Odradek" not in line
        return line.removeprefix("odradek: ")


def _piped(content: bytes) -> int:
    """The reading end of a pipe (or, for much, a file) that holds these bytes."""
    file = os.memfd_create("stdin")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def command(*arguments: str) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "odradek.cli.main", *arguments]


class Process:
    """A command in a process of its own, which is killed if it does not end."""

    def __init__(self, arguments: Sequence[str], broker_address: str) -> None:
        self._process = subprocess.Popen(
            command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "ODRADEK_BROKER": broker_address},
        )
        self._seen = {1: b"", 2: b""}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            if not stream.closed:
                stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: bytes) -> None:
        """Pipe something into it."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def write_until_full(self, data: bytes, times: int, *, seconds: float = 2.0) -> int:
        """Pipe the same into it again and again, until it takes no more for a while; return the bytes it took."""
        assert self._process.stdin is not None
        file = self._process.stdin.fileno()
        os.set_blocking(file, False)
        taken = 0
        while taken < times * len(data) and select.select([], [file], [], seconds)[1]:
            taken += os.write(file, data[taken % len(data) :])
        return taken

    def read_until(self, wanted: bytes, *, stream: int = 1) -> bytes:
        """Wait until it has said something on standard output (1) or error (2); return all it said there."""
        file = self._process.stdout if stream == 1 else self._process.stderr
        assert file is not None
        deadline = time.monotonic() + SECONDS_MAX
        while wanted not in self._seen[stream]:
            ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(file.fileno(), 65536) if ready else b""
            assert chunk, f"it said {self._seen} and not {wanted!r}"
            self._seen[stream] += chunk
        return self._seen[stream]

    def interrupt(self) -> None:
        """Ctrl+C."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> Ran:
        """Wait for the end, to which it must come by itself: its input stays open."""
        assert self._process.stdout is not None and self._process.stderr is not None
        status = self._process.wait(SECONDS_MAX)
        out, err = self._process.stdout.read(), self._process.stderr.read()
        return Ran(status, (self._seen[1] + out).decode(), (self._seen[2] + err).decode())


def on_a_terminal(arguments: Sequence[str], broker_address: str, typed: bytes = b"", after: bytes = b"") -> Ran:
    """Run a command with a terminal for everything; `typed` is typed when `after` has been shown."""
    master, slave = pty.openpty()
    environ = {**os.environ, "ODRADEK_BROKER": broker_address, "TERM": "xterm", "COLUMNS": "120"}
    words = [sys.executable, "-c", _WITH_TERMINAL, *arguments]
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    shown = b""
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while True:
            ready, _, _ = select.select([master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it does not end: {shown!r}"
            try:
                chunk = os.read(master, 65536)
            except OSError:  # how Linux says that the other end has closed
                break
            if not chunk:
                break
            shown += chunk
            if typed and after in shown:
                os.write(master, typed)
                typed = b""
        return Ran(process.wait(SECONDS_MAX), shown.decode(), "")
    finally:
        os.close(master)
        if process.poll() is None:
            process.kill()
            process.wait()
