"""`make demo` runs to its end on a machine without Java, checks itself, and leaves nothing behind; so does Ctrl+C."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.tools import JAVA_OPTIONS, SHORT_LIVED, environment_without_java, kill_group

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 240.0

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "temporary").mkdir()
    own = {"TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "120", JAVA_OPTIONS: SHORT_LIVED}
    return environment_without_java(tmp_path) | own


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[Any]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.demo", *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_demo_runs_without_java_and_finds_what_was_sent(environment: dict[str, str], tmp_path: Path) -> None:
    demo = start(environment, "--orders", "1000", "--seconds", "1")
    try:
        printed, _ = demo.communicate(timeout=SECONDS_MAX)
    finally:
        if demo.poll() is None:
            kill_group(demo)
    assert demo.returncode == 0, printed
    assert "on Java 25" in printed
    assert printed.count("right") == 7 and "WRONG" not in printed
    assert re.search(r"results: hours and cities\W+24\W+24\W", printed)
    assert "Done in " in printed
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_demo_can_be_interrupted(environment: dict[str, str], tmp_path: Path) -> None:
    demo = start(environment, "--orders", "1000", "--seconds", "60")
    try:
        printed = await_line(demo, "Spark 4")
        os.kill(demo.pid, signal.SIGINT)
        rest, _ = demo.communicate(timeout=SECONDS_MAX)
    finally:
        if demo.poll() is None:
            kill_group(demo)
    assert demo.returncode == 130, printed + rest
    assert "interrupted; everything is stopped" in rest and "Traceback" not in rest
    assert list((tmp_path / "temporary").iterdir()) == []
    host, port = re.findall(r"running at ([\d.]+):(\d+)", printed)[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def await_line(process: subprocess.Popen[Any], beginning: str) -> str:
    """Read what it prints up to a line; from the pipe itself, so that nothing waits unseen in a buffer."""
    assert process.stdout is not None
    pipe, printed, deadline = process.stdout.fileno(), b"", time.monotonic() + SECONDS_MAX
    while f"\n{beginning}" not in printed.decode(errors="replace"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(pipe, 4096) if ready else b""
        assert piece, printed
        printed += piece
    return printed.decode()
