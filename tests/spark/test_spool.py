from __future__ import annotations

from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.spark.write.spool import Spool

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def filled(spool: Spool) -> Spool:
    for number in range(10):
        spool.add(A if number % 2 else B, number, bytearray([number]) * 100)
    return spool


@pytest.mark.parametrize("memory_bytes", [0, 100, 350, 10_000])
def test_batches_come_back_in_order_wherever_they_were_kept(memory_bytes: int) -> None:
    spool = filled(Spool(memory_bytes))
    try:
        assert spool.record_count == sum(range(10))
        assert set(spool.partitions()) == {A, B}
        for _ in range(2):
            found = [tuple(item) for item in spool.batches(A)]
            assert found == [(place, n, bytearray([n]) * 100) for place, n in enumerate(range(1, 10, 2))]
        assert list(spool.batches(TopicPartition("c", 0))) == []
    finally:
        spool.close()


def test_what_does_not_fit_into_memory_lies_in_sparks_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'gone'},{tmp_path}")
    spool = Spool(memory_bytes_max=0)
    try:
        before = open_files(tmp_path)
        filled(spool)
        assert len(open_files(tmp_path)) == len(before) + 1
        assert list(tmp_path.iterdir()) == [], "the file has no name, so that nothing is left of a process that dies"
    finally:
        spool.close()
    assert open_files(tmp_path) == before


def open_files(directory: Path) -> list[str]:
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for target in links if target.startswith(str(directory))]
