"""A broker beside a demo: `odradek serve` on free ports, stopped when the demo ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS_MAX = 30.0


class DemoError(Exception):
    """Why a demo cannot go on; the message is for whoever watches it."""


@contextmanager
def broker(directory: Path, door: str, settings: Sequence[str] = ()) -> Iterator[str]:
    """Serve at one door, `kafka` or `grpc`, in a process that Ctrl+C in this terminal does not reach; its address."""
    doors = {"kafka": "127.0.0.1:0", "http": "off", "grpc": "127.0.0.1:0" if door == "grpc" else "off"}
    command = [sys.executable, "-m", "odradek", "serve", "--data", str(directory / "broker"), *settings]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
    log = directory / "broker.stderr"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, *(word for name, address in doors.items() for word in (f"--{name}", address))],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()  # empty if it has ended
            words = dict(word.split("=", 1) for word in ready.split() if "=" in word)
            if words.get(door, "off") == "off":
                raise DemoError(f"the broker did not start: {log.read_text()}")
            yield words[door]
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
