"""What a foreign suite has to offer so that the runner can drive it, and what the runner tells it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from tests.compat.outcome import Result


class CompatError(Exception):
    """Something the runner needs is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run of a suite."""

    broker: str  # HOST:PORT
    kafka_version: str  # "4.2": what the tests are told that the broker is
    scenario: str  # which of the suite's scenarios this broker is set up for
    patterns: Sequence[str]  # parts of the names of the tests wanted; none for all
    test_seconds_max: float
    deadline: float  # of time.monotonic(); no test is begun after it
    logs: Path
    jobs: int
    names: Sequence[str] = ()  # exactly these tests, whatever the patterns say; none for all

    def wants(self, name: str) -> bool:
        """Whether a test is to be run."""
        if self.names:
            return name in self.names
        return not self.patterns or any(pattern in name for pattern in self.patterns)

    def deadline_seconds(self) -> float:
        """How long the run may still take."""
        return max(0.0, self.deadline - monotonic())


class Suite(Protocol):
    """A foreign suite. `scenarios` maps each scenario's name to the broker settings it needs."""

    name: str
    minutes_max: float
    scenarios: Mapping[str, Mapping[str, str]]

    def prepare(self, cache: Path) -> None:
        """Fetch and build what is not in the cache yet."""
        ...

    def run(self, order: Order) -> Iterator[Result]:
        """Run the tests of one scenario."""
        ...


def need(program: str, package: str) -> str:
    """The path of a program, or an error that names the Debian package it is in."""
    path = shutil.which(program)
    if path is None:
        raise CompatError(f"{program} is needed and not installed; on Debian: apt-get install {package}")
    return path


def do(command: Sequence[str], where: Path, log: Path) -> None:
    """Run a step of the preparation; its output goes to a log that the error names."""
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        code = subprocess.run(
            command, cwd=where, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False
        ).returncode
    if code != 0:
        raise CompatError(f"'{' '.join(command)}' ended with {code}; see {log}")


def run_bounded(
    command: Sequence[str],
    where: Path,
    log: Path,
    seconds_max: float,
    environment: Mapping[str, str],
    grace_seconds: float = 0.0,
) -> int | None:
    """Run a test program with all its children; its exit code, or None if it had to be ended at the bound.

    With a grace it is interrupted first, and has that long to write what it knows.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=where,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            return process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            _interrupt(process, grace_seconds)
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _interrupt(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    if grace_seconds > 0:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
