"""Power cuts while a log is cut, compacted and begun anew: what was promised is there, what was removed is not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fault.unsynced import NoShimError, compile_shim, lose_unsynced, shim_environment

LIVES = 6
LINES_MAX = 120  # of one life

Entry = tuple[int, str]  # key and value


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skips where there is no compiler."""
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NoShimError as error:
        pytest.skip(str(error))


class Promises:
    """What must be in the log, and what may be."""

    def __init__(self) -> None:
        self.safe: dict[int, Entry] = {}
        self.possible: set[tuple[int, Entry]] = set()  # begun to be written or removed, and not known to be done
        self.start = 0
        self.pending: dict[int, Entry] = {}

    def hear(self, line: dict[str, Any]) -> None:
        """Take note of what the process says."""
        match line:
            case {"begins": "append", "at": at, "values": values}:
                self.pending = {at + number: (key, value) for number, (key, value) in enumerate(values)}
                self.possible |= set(self.pending.items())
            case {"done": "append"}:
                self.safe |= self.pending
            case {"begins": "truncate", "at": at}:
                self._doubt({offset for offset in self.safe if offset >= at})
            case {"done": "truncate", "at": at}:
                self.possible = {(offset, entry) for offset, entry in self.possible if offset < at}
            case {"begins": "delete", "at": at}:
                self._doubt({offset for offset in self.safe if offset < at})
            case {"done": "delete", "at": at}:
                self.start = max(self.start, at)
            case {"begins": "start over"}:
                self._doubt(set(self.safe))
            case {"done": "start over", "at": at}:
                self.possible, self.start = set(), at
            case {"begins": "compact"}:
                newest = {key: offset for offset, (key, _) in sorted(self.safe.items())}
                self._doubt({offset for offset, (key, _) in self.safe.items() if newest[key] != offset})
            case _:
                assert line["done"] == "compact", line

    def _doubt(self, offsets: set[int]) -> None:
        for offset in offsets:
            self.possible.add((offset, self.safe.pop(offset)))

    def compare(self, line: dict[str, Any]) -> None:
        """Hold what the next life has found against it; from now on that is what must be there."""
        assert "found" in line, line
        found = {offset: (key, value) for offset, key, value in line["found"]}
        missing = {offset: entry for offset, entry in self.safe.items() if found.get(offset) != entry}
        assert not missing, f"promised and lost: {missing}"
        risen = {item for item in found.items() if item[1] != self.safe.get(item[0])} - self.possible
        assert not risen, f"removed and there again, or never written: {risen}"
        assert line["start"] >= self.start
        assert line["end"] >= max(self.safe, default=0)
        self.safe, self.possible, self.start, self.pending = found, set(), line["start"], {}


def _live(shim: Path, work: Path, backend: str, seed: int, promises: Promises, lines_max: int) -> int:
    """One life of the process; how many changes it has finished."""
    command = [sys.executable, "-m", "tests.fault.changer", str(work / "data"), backend, str(seed)]
    done = 0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **shim_environment(shim, work / "data", work / "journal")},
    ) as process:
        assert process.stdout is not None
        promises.compare(json.loads(process.stdout.readline()))
        lines = [process.stdout.readline() for _ in range(lines_max)]
        process.kill()
        for line in (*lines, *process.stdout):
            if line.endswith(b"\n"):
                promises.hear(json.loads(line))
                done += b'"done"' in line
    return done


@pytest.mark.parametrize("backend", ["file", "sqlite", "rocksdb"])
def test_what_was_promised_is_there_and_what_was_removed_is_not(tmp_path: Path, shim: Path, backend: str) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    (tmp_path / "data").mkdir()
    seed = int(os.environ.get("POWER_CUT_SEED", "1"))
    promises, chance, lost, done = Promises(), random.Random(seed), 0, 0
    for life in range(LIVES):
        done += _live(shim, tmp_path, backend, 1000 * seed + life, promises, chance.randint(0, LINES_MAX))
        loss = lose_unsynced(tmp_path / "data", tmp_path / "journal", 1000 * seed + life)
        lost += loss.writes + loss.names
    _live(shim, tmp_path, backend, 1000 * seed + LIVES, promises, 0)
    assert done > LIVES, "hardly anything was done: this shows nothing"
    assert lost, "nothing was lost: this shows nothing"
