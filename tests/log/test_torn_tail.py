"""A log whose last process died while it wrote: cut at every byte, flipped at every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.disk.real import RealDisk
from odradek.log.errors import DamagedLogError
from odradek.log.log import PartitionLog
from odradek.log.state import RecoveryPoint, set_recovery_point
from odradek.records.compression import Codec
from odradek.records.errors import RecordError
from tests.log.support import LogOnDisk, batch, read_all, records_of, values_of

BATCHES = 8


def _values(number: int) -> list[bytes]:
    return [b"batch %d record %d" % (number, record) for record in range(3)]


def _make(directory: Path, *, flushed: int) -> tuple[LogOnDisk, list[int]]:
    """A log of eight batches of which the first ones were flushed, and where each batch begins; never closed."""
    on_disk = LogOnDisk(RealDisk(), str(directory / "orders-0"), index_interval_bytes=200)
    positions = []
    for number in range(BATCHES):
        positions.append(on_disk.log.size_bytes)
        on_disk.log.append(batch(*_values(number), codec=Codec.LZ4 if number % 2 else Codec.NONE))
        if number + 1 == flushed:
            on_disk.log.flush()
    positions.append(on_disk.log.size_bytes)
    return on_disk, positions


def _expected(batches: int) -> list[bytes | None]:
    return [value for number in range(batches) for value in _values(number)]


def _log_file(on_disk: LogOnDisk) -> Path:
    return Path(on_disk.directory) / "00000000000000000000.log"


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_tail_cut_at_any_byte_loses_nothing_before_the_cut_batch_and_appends_go_on(tmp_path: Path, last: int) -> None:
    on_disk, positions = _make(tmp_path, flushed=BATCHES - 3)
    file = _log_file(on_disk)
    whole = file.read_bytes()
    number = BATCHES - last
    for cut in range(positions[number], positions[number + 1]):
        file.write_bytes(whole[:cut])
        on_disk.disk = RealDisk()
        log = on_disk.open()
        assert values_of(log) == _expected(number), f"cut at byte {cut}"
        assert on_disk.report.cut_bytes == cut - positions[number]
        assert log.append(batch(b"new")).base_offset == 3 * number
        log.flush()
        assert values_of(log) == [*_expected(number), b"new"]
        log.truncate(3 * number)
        log = on_disk.reopen()
        assert values_of(log) == _expected(number)
        log.close()
        _forget_all_but_the_log(file, positions[BATCHES - 3], 3 * (BATCHES - 3), on_disk)


def _forget_all_but_the_log(file: Path, size: int, offset: int, on_disk: LogOnDisk) -> None:
    """Put the recovery point back to what it was when the process died."""
    set_recovery_point(on_disk.disk, on_disk.directory, RecoveryPoint(offset, 0, size))
    for index in (*file.parent.glob("*index"), *file.parent.glob("*.snapshot")):
        index.unlink()


def test_a_cut_tail_is_warned_of_with_the_number_of_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    on_disk, positions = _make(tmp_path, flushed=BATCHES - 1)
    file = _log_file(on_disk)
    file.write_bytes(file.read_bytes()[:-5])
    on_disk.open()
    cut = positions[-1] - positions[-2] - 5
    assert f"cut {cut} bytes at position {positions[-2]}" in caplog.text


@pytest.mark.parametrize("known", [True, False], ids=["flushed before", "recovery point lost"])
@pytest.mark.parametrize("number", [0, 3, BATCHES - 1], ids=["first", "middle", "last"])
def test_a_flipped_bit_at_any_byte_of_a_batch_is_never_served_as_good(tmp_path: Path, number: int, known: bool) -> None:
    on_disk, positions = _make(tmp_path, flushed=0)
    on_disk.log.close()
    file = _log_file(on_disk)
    whole = file.read_bytes()
    point = (file.parent / "recovery-point").read_bytes()
    for at in range(positions[number], positions[number + 1]):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        file.write_bytes(damaged)
        if known:
            (file.parent / "recovery-point").write_bytes(point)
        else:
            (file.parent / "recovery-point").unlink(missing_ok=True)
        on_disk.disk = RealDisk()
        log = on_disk.open()
        served = _serve_what_can_be(log)
        expected = {value: number for number in range(BATCHES) for value in _values(number)}
        assert not set(_values(number)) & set(served), f"byte {at} of the file"
        assert {expected[value] for value in served} == set(range(BATCHES)) - {number}, f"byte {at} of the file"
        log.close()


def _serve_what_can_be(log: PartitionLog) -> list[bytes]:
    """Ask for every offset by itself; what is damaged raises."""
    served: list[bytes] = []
    for offset in range(log.log_start, log.next_offset):
        try:
            chunk = log.read(offset, 1)
        except DamagedLogError:
            continue
        assert chunk is not None
        try:
            records = records_of(chunk.data)
        except RecordError as error:
            raise AssertionError(f"offset {offset} was served and cannot be read") from error
        served += [record.value for record in records if record.offset == offset and record.value is not None]
    return served


def test_damage_in_the_middle_is_reported_with_file_and_position(tmp_path: Path) -> None:
    on_disk, positions = _make(tmp_path, flushed=BATCHES)
    file = _log_file(on_disk)
    damaged = bytearray(file.read_bytes())
    damaged[positions[4] + 70] ^= 0xFF
    file.write_bytes(damaged)
    on_disk.disk = RealDisk()
    log = on_disk.open()
    with pytest.raises(DamagedLogError) as caught:
        log.read(12, 1)
    assert (caught.value.path, caught.value.position) == (str(file), positions[4])
    assert _values_below(log, 12) == _expected(4)
    assert [record.offset for record in records_of(_data(log, 15))][:1] == [15]


def _values_below(log: PartitionLog, end: int) -> list[bytes | None]:
    """The values below an offset."""
    values: list[bytes | None] = []
    offset = 0
    while offset < end:
        chunk = log.read(offset, 1, upto=end)
        assert chunk is not None
        values += [record.value for record in records_of(chunk.data)]
        offset = chunk.next_offset
    return values


def _data(log: PartitionLog, offset: int) -> memoryview:
    chunk = log.read(offset, 1)
    assert chunk is not None
    return chunk.data


def test_whole_batches_behind_a_torn_one_are_kept_beside_the_log(tmp_path: Path) -> None:
    on_disk, positions = _make(tmp_path, flushed=5)
    file = _log_file(on_disk)
    torn = bytearray(file.read_bytes())
    torn[positions[5] : positions[5] + 40] = bytes(40)
    file.write_bytes(torn)
    on_disk.disk = RealDisk()
    assert values_of(on_disk.open()) == _expected(5)
    kept = Path(f"{file}.cut-{positions[5]}").read_bytes()
    assert kept == bytes(torn[positions[5] :])


def test_a_start_after_a_crash_reads_only_what_was_not_known_to_be_flushed(tmp_path: Path) -> None:
    on_disk, positions = _make(tmp_path, flushed=6)
    on_disk.disk = RealDisk()
    log = on_disk.open()
    assert on_disk.report.scanned_bytes == positions[-1] - positions[6]
    assert len(read_all(log)) == 3 * BATCHES


def test_a_start_after_a_clean_stop_checks_nothing(tmp_path: Path) -> None:
    on_disk, _ = _make(tmp_path, flushed=0)
    on_disk.reopen()
    assert on_disk.report.scanned_bytes == 0
