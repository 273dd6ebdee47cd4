"""The examples of RAMA's four uses, run as anybody would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ROOT


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pubsub", [f"{name} has read 20 messages: all" for name in ("ann", "bob", "eve")]),
        ("ordered", ["500 steps, in order"]),
        (
            "eventbus",
            [
                f"orders: {', '.join(['orders.made'] * 3 + ['orders.paid'] * 2)}",
                f"everything: {', '.join(['orders.made'] * 3 + ['orders.paid'] * 2 + ['users.born'] * 4)}",
            ],
        ),
    ],
)
def test_an_example_does_what_it_says(name: str, told: list[str], tmp_path: Path) -> None:
    assert run(name, tmp_path) == told


def test_the_queue_gives_every_job_to_one_worker(tmp_path: Path) -> None:
    (line,) = run("queue", tmp_path)
    assert line.startswith("200 of 200 jobs were done once; at work: worker-")


def run(name: str, directory: Path) -> list[str]:
    command = [sys.executable, "-m", f"examples.channels.{name}", "--store", (directory / "store").as_uri()]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not list((directory / "store").glob("*/*")), "the example has left something behind"
    return ran.stdout.splitlines()
