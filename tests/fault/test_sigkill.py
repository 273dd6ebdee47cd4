"""A real process that appends and acknowledges, killed with SIGKILL again and again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault import appender
from tests.log.support import read_all

WRITERS = 8
SHARDS = [  # number, backend, when an append is acknowledged, kills
    *((number, "file", "group", 50) for number in range(4)),
    (4, "sqlite", "group", 8),
    (5, "sqlite", "os", 6),
    (6, "rocksdb", "group", 8),
    (7, "rocksdb", "os", 6),
]


class Producers:
    """What the writers were promised."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.offsets: list[dict[int, int]] = [{} for _ in range(WRITERS)]  # of each acknowledged sequence

    def next_sequences(self) -> list[str]:
        """What each writer sends first: the batch after the last acknowledged one, which may be there already."""
        return [str(len(offsets)) for offsets in self.offsets]

    def hear(self, line: bytes) -> None:
        """Take note of an acknowledgement."""
        writer, sequence, offset = map(int, line.split())
        assert sequence == len(self.offsets[writer]), "acknowledged out of order"
        self.offsets[writer][sequence] = offset


def _run_and_kill(directory: Path, backend: str, flush: str, producers: Producers) -> None:
    place = [str(directory), backend, flush]
    command = [sys.executable, "-m", "tests.fault.appender", *place, *producers.next_sequences()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        for _ in range(producers.chance.randint(0, 60)):
            producers.hear(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            if line.endswith(b"\n"):
                producers.hear(line)


@pytest.mark.parametrize(("shard", "backend", "flush", "kills"), SHARDS)
def test_a_killed_process_loses_and_doubles_nothing_it_acknowledged(
    tmp_path: Path, shard: int, backend: str, flush: str, kills: int
) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    producers = Producers(shard)
    for _ in range(kills):
        _run_and_kill(tmp_path, backend, flush, producers)
    store = appender.open_store(str(tmp_path), backend)
    log = store.logs[appender.PARTITION]
    written: list[dict[int, int]] = [{} for _ in range(WRITERS)]
    for record in read_all(log):
        writer, sequence = map(int, (record.value or b"").split()[:2])
        assert sequence not in written[writer], f"writer {writer}'s batch {sequence} is doubled"
        assert sequence == len(written[writer]), f"writer {writer}'s batch {len(written[writer])} is lost or late"
        written[writer][sequence] = record.offset
    assert sum(map(len, producers.offsets)) > kills, "hardly anything was acknowledged: this shows nothing"
    for writer, offsets in enumerate(producers.offsets):
        assert offsets.items() <= written[writer].items(), f"writer {writer} was promised more than there is"
    assert len(log.segments) > 1
    store.close()
