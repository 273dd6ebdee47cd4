"""The guide to segment backends: each command, run where the guide says, prints what it says."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guides import agrees, commands
from tests.process import BrokerProcess

COMMANDS = 9
SECONDS_MAX = 60

pytest.importorskip("rocksdict")


def query(command: str, directory: Path) -> str:
    """What `sqlite3` would print, where it is not installed."""
    path, statement = command.removeprefix("sqlite3 -readonly ").removesuffix('"').split(' "')
    connection = sqlite3.connect(f"file:{directory / path}?mode=ro", uri=True)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return "\n".join("|".join(str(cell, "utf-8") if isinstance(cell, bytes) else str(cell) for cell in r) for r in rows)


def run(command: str, directory: Path, bootstrap: str) -> str:
    if command.startswith("sqlite3") and shutil.which("sqlite3") is None:
        return query(command, directory)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ODRADEK_BROKER": bootstrap}
    line = ["bash", "-c", command]
    done = subprocess.run(
        line, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return (done.stdout or done.stderr).strip()


def test_the_guide_to_backends_tells_the_truth(tmp_path: Path) -> None:
    found = commands("backends.md")
    assert len(found) == COMMANDS
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        for command, told in found:
            if command.startswith("odradek log convert"):
                broker.stop()
            printed = run(command, tmp_path, broker.bootstrap)
            assert agrees(printed, told), (command, printed)
        broker.start()  # it finds what was moved, and goes on
        assert run("odradek consume visits -n 3", tmp_path, broker.bootstrap).splitlines() == [
            "home",
            "search",
            "basket",
        ]
    finally:
        broker.stop()
