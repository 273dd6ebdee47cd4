"""Blocks that are set aside for a growing segment: never seen in its size, always given back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from odradek.disk.real import RealDisk
from odradek.log.backends.file_segment import RESERVE_FROM_BYTES
from tests.log.support import LogOnDisk, batch

BLOCK_BYTES = 512  # what st_blocks counts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reserves without growing")


def _file(on_disk: LogOnDisk, base: int = 0) -> Path:
    return Path(on_disk.directory) / f"{base:020d}.log"


def _spare_bytes(file: Path) -> int:
    """What the file takes on the disk beyond its size, rounded up to its last page."""
    found = file.stat()
    return found.st_blocks * BLOCK_BYTES - (found.st_size + 4095) // 4096 * 4096


def _fill(on_disk: LogOnDisk, size_bytes: int) -> None:
    while on_disk.log.size_bytes < size_bytes:
        on_disk.log.append(batch(bytes(50_000)))
    on_disk.log.flush()


def test_a_small_segment_reserves_nothing(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    _fill(on_disk, RESERVE_FROM_BYTES // 4)
    assert _spare_bytes(_file(on_disk)) <= 0


@pytest.mark.parametrize("end", ["close", "roll", "kill"])
def test_what_a_large_segment_reserved_is_given_back(tmp_path: Path, end: str) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    _fill(on_disk, 2 * RESERVE_FROM_BYTES)
    file = _file(on_disk)
    assert file.stat().st_size == on_disk.log.size_bytes, "the size tells the truth"
    if _spare_bytes(file) <= 0:
        pytest.skip("this file system reserves nothing")
    match end:
        case "close":
            on_disk.log.close()
        case "roll":
            on_disk.log.roll()
        case "kill":
            on_disk.disk = RealDisk()
            on_disk.open()
    assert _spare_bytes(file) <= 0
