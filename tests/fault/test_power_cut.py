"""A real process that appends and acknowledges, and a machine that loses its power again and again.

What it wrote and did not sync is lost, or a part of it; what it acknowledged must be there, whatever segments live in.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault import appender
from tests.fault.unsynced import NoShimError, compile_shim, lose_unsynced, shim_environment
from tests.log.support import read_all

CUTS = 5
WRITERS = 4
ACKNOWLEDGED_MAX = 80  # before a cut


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skips where there is no compiler."""
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NoShimError as error:
        pytest.skip(str(error))


def _run_and_kill(shim: Path, work: Path, backend: str, promised: list[dict[int, int]], chance: random.Random) -> None:
    """Let a process write, and note what it acknowledges until it is killed."""
    directory = work / "data"
    command = [sys.executable, "-m", "tests.fault.appender", str(directory), backend, "group"]
    with subprocess.Popen(
        [*command, *(str(len(offsets)) for offsets in promised)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **shim_environment(shim, directory, work / "journal")},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randint(1, ACKNOWLEDGED_MAX))]
        process.kill()
        for line in (*lines, *process.stdout):
            if line.endswith(b"\n"):
                writer, sequence, offset = map(int, line.split())
                assert sequence == len(promised[writer]), "acknowledged out of order"
                promised[writer][sequence] = offset


@pytest.mark.parametrize("backend", ["file", "sqlite", "rocksdb"])
@pytest.mark.parametrize("seed", range(2))
def test_a_machine_that_loses_its_power_keeps_what_was_acknowledged(
    tmp_path: Path, shim: Path, backend: str, seed: int
) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    (tmp_path / "data").mkdir()
    promised: list[dict[int, int]] = [{} for _ in range(WRITERS)]
    chance, lost = random.Random(seed), 0
    for cut in range(CUTS):
        _run_and_kill(shim, tmp_path, backend, promised, chance)
        loss = lose_unsynced(tmp_path / "data", tmp_path / "journal", seed * 1000 + cut)
        lost += loss.writes + loss.names
    store = appender.open_store(str(tmp_path / "data"), backend)
    assert not store.offline
    log = store.logs[appender.PARTITION]
    written: list[dict[int, int]] = [{} for _ in range(WRITERS)]
    for record in read_all(log):
        writer, sequence = map(int, (record.value or b"").split()[:2])
        written[writer][sequence] = record.offset
    for writer, offsets in enumerate(promised):
        assert offsets.items() <= written[writer].items(), f"writer {writer} was promised more than there is"
    assert lost, "nothing was lost: this shows nothing"
    store.close()
