"""An odradek of our own for one scenario of a suite: a fresh directory, a free port, its log kept."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

from tests.compat.suite import CompatError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05


@contextlib.contextmanager
def odradek(settings: Mapping[str, str], log: Path) -> Iterator[str]:
    """Run a broker with these settings; gives its address. Its data is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-compat-"))
    address = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-m", "odradek", "serve", "--data", str(directory / "data")]
    command += ["--kafka", address, "--http", "off", "--grpc", "off"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    try:
        with (
            log.open("wb") as out,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process,
        ):
            try:
                _wait_until_it_listens(process, address, log)
                yield address
                if process.poll() is not None:
                    raise CompatError(f"the broker ended with {process.returncode} during the run; see {log}")
            finally:
                _stop(process)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_listens(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = monotonic() + START_SECONDS_MAX
    while not listens(address):
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(POLL_SECONDS)
            raise CompatError(f"the broker did not start (it ended with {code}); see {log}")
        if monotonic() > deadline:
            raise CompatError(f"the broker did not listen on {address} within {START_SECONDS_MAX:g} s; see {log}")


def listens(address: str) -> bool:
    """Whether someone accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
