"""The guide's examples: its commands and programs are run in their order, and must print what the guide says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides import agrees, commands, programs
from tests.process import BrokerProcess

GUIDE = "grpc.md"
DEFAULT = "127.0.0.1:50051"
SECONDS_MAX = 60
PRINTED = {
    "MyKafka(": ["0 b'three spools of thread'", "Offsets(first=0, commit=0, last=0)", "True"],
    "Eeylops(": ["1000 stored by streams", "[b'spool', b'0'] 3", "1001"],
}


@pytest.fixture(scope="module")
def own_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with nothing on it but what the guide makes."""
    with BrokerProcess(tmp_path_factory.mktemp("guide") / "data", grpc=True) as broker:
        yield broker.grpc


def test_the_commands_print_what_the_guide_says(own_door: str) -> None:
    found = commands(GUIDE)
    assert len(found) == 8
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, told in found:
        run = f"{command} --broker-address {own_door}"
        ran = subprocess.run(
            ["bash", "-c", run], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert ran.returncode == 0, (command, ran.stderr)
        assert agrees(ran.stdout.strip(), told), (command, ran.stdout)


@pytest.mark.parametrize("program", programs(GUIDE), ids=PRINTED)
def test_the_programs_print_what_they_should(own_door: str, program: str) -> None:
    run = program.replace(DEFAULT, own_door)
    assert run != program
    ran = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr
    (wanted,) = [lines for word, lines in PRINTED.items() if word in program]
    assert (ran.stdout.splitlines(), ran.stderr) == (wanted, "")
