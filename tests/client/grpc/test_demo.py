"""`make demo-grpc` runs to its end, checks itself, and leaves nothing behind; so does Ctrl+C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.grpc_demo import Steps
from odradek.client.grpc import Code, MyKafkaError

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 120.0


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.grpc_demo"],
        env={**os.environ, "TMPDIR": str(directory), "COLUMNS": "120"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_demo_finds_everything_as_it_should_be(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        try:
            printed, _ = demo.communicate(timeout=SECONDS_MAX)
        finally:
            demo.kill()
    assert demo.returncode == 0, printed
    assert re.search(r"^56 steps, 0 wrong, in \d+ s\.$", printed, re.MULTILINE) and "WRONG" not in printed
    assert printed.count("  ok    ") == 56
    assert list(tmp_path.iterdir()) == []


def test_the_demo_can_be_interrupted(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        try:
            assert demo.stdout is not None
            first = demo.stdout.readline()
            demo.send_signal(signal.SIGINT)
            printed, _ = demo.communicate(timeout=SECONDS_MAX)
        finally:
            demo.kill()
    assert demo.returncode == 130, printed
    assert "interrupted; everything is stopped" in printed and "Traceback" not in printed
    assert list(tmp_path.iterdir()) == []
    host, port = re.findall(r"door is ([\d.]+):(\d+)", first)[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_a_step_that_gives_something_else_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()

    def refused() -> None:
        raise MyKafkaError(Code.TOPIC_ERROR, "it exists")

    steps.give("right", lambda: 1, 1)
    steps.give("the error that was wanted", refused, Code.TOPIC_ERROR)
    assert (steps.done, steps.wrong) == (2, 0)
    steps.give("wrong", lambda: 1, 2)
    steps.give("another error", refused, Code.NOT_FOUND)
    steps.give("no error", lambda: None, Code.NOT_FOUND)
    steps.hold("not so", lambda: "x", False)
    assert (steps.done, steps.wrong) == (6, 4)
