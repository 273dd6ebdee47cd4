"""`log.verify` names every way in which a partition's files can be wrong, at its place, and nothing else."""

from __future__ import annotations

import errno
import json
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.disk.interface import Disk
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.state import RecoveryPoint, set_recovery_point
from odradek.log.verify import verify_partition
from odradek.log.verify_finding import Finding, Totals
from odradek.log.verify_index import WRONG_ENTRIES_SHOWN_MAX
from odradek.records.compression import Codec
from odradek.records.header import HEADER_BYTES, iter_headers, reseal
from tests.log.support import START_MS, LogOnDisk, batch, compact, keyed

SEGMENTS = (0, 33, 66)  # the base offsets of the partition that most tests break
BATCHES = 30


def build(directory: Path) -> LogOnDisk:
    """A closed log of three segments: all codecs, four leader epochs, times that rise and fall."""
    made = LogOnDisk(RealDisk(), str(directory), segment_bytes=1200, index_interval_bytes=150)
    for number in range(BATCHES):
        data = batch(
            b"value-%d" % number, None, b"", timestamp=START_MS + number * 7 % 50, codec=Codec(number % 5), key=b"k"
        )
        made.log.append(data, leader_epoch=number // 8)
    made.log.close()
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "orders-0"
    made = build(directory)
    assert tuple(segment.base_offset for segment in made.log.segments) == SEGMENTS
    return directory


@pytest.fixture
def partition(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "orders-0"))


def file_of(partition: Path, base: int, kind: str = ".log") -> Path:
    return partition / f"{base:020d}{kind}"


def verify(partition: Path | str, disk: Disk | None = None, *, shallow: bool = False) -> list[Finding]:
    return list(verify_partition(disk or RealDisk(), str(partition), Totals(), shallow=shallow))


def problems(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind == "problem"]


def places(findings: list[Finding]) -> list[tuple[str, str, str, int]]:
    return [(finding.kind, Path(finding.path).name, finding.unit, finding.at) for finding in findings]


def positions(file: Path) -> list[int]:
    """Where the batches of a log file begin."""
    return [position for position, _ in iter_headers(file.read_bytes())]


def flips(file: Path, step: int) -> Iterator[int]:
    """Flip single bits all over a file; the file is whole again afterwards."""
    whole = file.read_bytes()
    for at in range(0, len(whole), step):
        broken = bytearray(whole)
        broken[at] ^= 1 << (at % 8)
        file.write_bytes(broken)
        yield at
    file.write_bytes(whole)


# What is whole


@pytest.mark.parametrize("shallow", [False, True])
def test_a_whole_log_has_no_findings_and_everything_is_counted(partition: Path, shallow: bool) -> None:
    totals, read = Totals(), list[int]()
    found = verify_partition(RealDisk(), str(partition), totals, shallow=shallow, advance=read.append)
    assert list(found) == []
    size_bytes = sum(file.stat().st_size for file in partition.glob("*.log"))
    assert totals == Totals(1, len(SEGMENTS), BATCHES, 3 * BATCHES, size_bytes)
    assert sum(read) == size_bytes


def test_a_log_without_records_is_whole(tmp_path: Path) -> None:
    assert verify(LogOnDisk(RealDisk(), str(tmp_path / "orders-0")).directory) == []


def compacted(*, keep_some: bool) -> LogOnDisk:
    """A log of several segments after compaction; of each batch one record stays, or of most segments none."""
    made = LogOnDisk(cleanup_policy="compact", segment_bytes=1024, index_interval_bytes=100)
    for number in range(60):
        timestamp = START_MS + number % 9
        made.log.append(keyed((b"same", b"v"), (b"%d" % number if keep_some else b"other", b"w"), timestamp=timestamp))
    made.log.roll()
    assert compact(made.log, START_MS)
    made.log.close()
    assert made.log.state.sparse
    return made


def test_gaps_that_compaction_made_are_no_damage() -> None:
    made = compacted(keep_some=True)
    assert verify(made.directory, made.disk) == []


def test_compaction_leaves_no_index_of_what_is_gone() -> None:
    made = compacted(keep_some=False)
    assert verify(made.directory, made.disk) == []


@pytest.mark.parametrize("seed", range(30))
def test_whatever_a_log_went_through_it_is_whole_when_it_is_closed_or_killed(seed: int) -> None:
    chance = random.Random(seed)
    made = LogOnDisk(segment_bytes=2048, index_interval_bytes=200)
    epoch = 0
    for _ in range(60):
        log = made.log
        match chance.randrange(10):
            case 0:
                log.roll()
            case 1:
                log.flush()
            case 2:
                log.truncate(chance.randint(max(0, log.next_offset - 20), log.next_offset))
            case 3:
                log.delete_records(chance.randint(log.log_start, log.next_offset)).run()
            case 4:
                made.reopen()
            case 5:
                log.checkpoint()
            case _:
                epoch += chance.random() < 0.2
                values = [b"value" * chance.randrange(9)] * chance.randint(1, 5)
                codec, timestamp = Codec(chance.randrange(5)), START_MS + chance.randrange(100)
                log.append(batch(*values, timestamp=timestamp, codec=codec), epoch)
        assert problems(verify(made.directory, made.disk)) == []  # as after a kill: not everything is written out
    made.log.close()
    assert verify(made.directory, made.disk) == []


def test_a_crash_breaks_indexes_at_most_and_the_next_start_puts_them_right() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        disk = MemoryDisk()
        made = LogOnDisk(disk, segment_bytes=2048, index_interval_bytes=200)
        for number in range(chance.randrange(40)):
            made.log.append(batch(b"value" * 9, timestamp=START_MS + chance.randrange(100)), number // 10)
            if chance.random() < 0.2:
                made.log.flush()
        disk.crash(chance)
        assert all(finding.path.endswith("index") for finding in problems(verify(made.directory, disk)))
        made.open()
        made.log.close()
        assert problems(verify(made.directory, disk)) == []


# Batches


@pytest.mark.parametrize("base", SEGMENTS)
def test_a_flipped_bit_in_a_batch_is_named_once_with_the_batchs_position(partition: Path, base: int) -> None:
    file = file_of(partition, base)
    starts = positions(file)
    for at in flips(file, 3):
        position = max(start for start in starts if start <= at)
        assert places(verify(partition)) == [("problem", file.name, "byte", position)], f"byte {at}"
    assert verify(partition) == []


def test_what_is_said_of_damage_counts_from_the_start_of_the_file(tmp_path: Path) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    for _ in range(5):
        made.log.append(batch(bytes(300_000)))
    made.log.close()
    file = file_of(tmp_path / "orders-0", 0)
    start, size = positions(file)[4], file.stat().st_size
    data = bytearray(file.read_bytes())
    data[start + 8] = 1  # the length
    file.write_bytes(data)
    (finding,) = verify(tmp_path / "orders-0")
    assert finding.at == start
    assert finding.text.startswith("the batch is cut off: it takes 17")
    assert f"bytes, {size - start} are left; what stands here is not served, nothing whole follows" in finding.text


@pytest.mark.parametrize("base", SEGMENTS[:2])
def test_a_sealed_segment_that_was_cut_is_damaged_wherever_it_was_cut(partition: Path, base: int) -> None:
    file = file_of(partition, base)
    whole, starts = file.read_bytes(), positions(file)
    for size in range(0, len(whole), 13):
        file.write_bytes(whole[:size])
        found = problems(verify(partition))
        in_log = [finding for finding in found if finding.path == str(file)]
        if size in starts:
            assert in_log[0].text.startswith("the offsets ")
        else:
            assert (in_log[0].unit, in_log[0].at) == ("byte", max(start for start in starts if start <= size))


def test_what_was_flushed_and_is_not_there_is_lost(partition: Path) -> None:
    file = file_of(partition, SEGMENTS[-1])
    whole = file.read_bytes()
    for size in range(0, len(whole), 13):
        file.write_bytes(whole[:size])
        (lost,) = [finding for finding in verify(partition) if (finding.path, finding.at) == (str(file), size)]
        assert lost.text == f"{len(whole) - size} bytes that were flushed are lost"


def test_records_that_cannot_be_read_are_found_unless_it_is_asked_not_to_look(tmp_path: Path) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    made.log.append(batch(b"good"))
    bad = batch(b"bad")
    bad[HEADER_BYTES] = 0x7E  # the length of the record
    reseal(bad)
    position = made.log.size_bytes
    made.log.append(bad)
    made.log.append(batch(b"good"))
    made.log.close()
    (finding,) = verify(made.directory)
    assert places([finding]) == [("problem", file_of(tmp_path, 0).name, "byte", position)]
    assert (
        "the batch of offset 1 has a right CRC, but its records cannot be read: the record at offset 1" in finding.text
    )
    assert verify(made.directory, shallow=True) == []


def test_a_batch_that_is_missing_or_stands_twice_is_named(partition: Path) -> None:
    file = file_of(partition, 33)
    data, (_, second, third, *_) = file.read_bytes(), positions(file)
    file.write_bytes(data[:second] + data[third:])
    found = verify(partition)
    assert places(found)[0] == ("problem", file.name, "byte", second)
    assert found[0].text.startswith("offset 39 stands where 36 belongs")
    file.write_bytes(data[:third] + data[second:])
    assert places(verify(partition))[0] == ("problem", file.name, "byte", third)


# What was not flushed


def unflushed(directory: Path) -> tuple[LogOnDisk, int]:
    """A log that died with batches which it had not flushed; the size up to which it had."""
    made = LogOnDisk(RealDisk(), str(directory), index_interval_bytes=100)
    for number in range(4):
        made.log.append(batch(b"value-%d" % number, b"x"))
    made.log.flush()
    flushed_bytes = made.log.size_bytes
    for number in range(4):
        made.log.append(batch(b"later-%d" % number, b"x"))
    made.log.checkpoint()
    return made, flushed_bytes


def test_a_torn_tail_behind_the_recovery_point_is_a_note_and_the_next_start_does_what_it_says(tmp_path: Path) -> None:
    made, flushed_bytes = unflushed(tmp_path / "template-0")
    file = file_of(tmp_path / "template-0", 0)
    starts = [*positions(file), file.stat().st_size]
    for size in range(flushed_bytes, file.stat().st_size + 1, 5):
        directory = Path(shutil.copytree(made.directory, tmp_path / f"at-{size}"))
        torn = file_of(directory, 0)
        torn.write_bytes(torn.read_bytes()[:size])
        found = verify(directory)
        assert problems(found) == []
        begun = max(start for start in starts if start <= size)
        in_log = [finding for finding in found if finding.path == str(torn)]
        assert places(in_log) == ([] if begun == size else [("note", torn.name, "byte", begun)])
        reopened = LogOnDisk(RealDisk(), str(directory), index_interval_bytes=100)
        assert reopened.report.cut_bytes == size - begun
        text = f"{size - begun} bytes not flushed when the last process died, the next start cuts them: "
        assert all(finding.text.startswith(text) for finding in in_log)
        reopened.log.close()
        assert verify(directory) == []


def test_the_same_in_front_of_the_recovery_point_is_damage(tmp_path: Path) -> None:
    _, flushed_bytes = unflushed(tmp_path / "orders-0")
    file = file_of(tmp_path / "orders-0", 0)
    for at in flips(file, 7):
        kinds = {finding.kind for finding in verify(tmp_path / "orders-0")}
        assert kinds == {"problem" if at < flushed_bytes else "note"}, f"byte {at}"


def test_segments_behind_a_torn_one_that_was_never_flushed_are_named(tmp_path: Path) -> None:
    made, _ = unflushed(tmp_path / "orders-0")
    made.log.roll()
    made.log.append(batch(b"in the next segment"))
    file = file_of(tmp_path / "orders-0", 0)
    file.write_bytes(file.read_bytes()[:-3])
    found = verify(tmp_path / "orders-0")
    assert {finding.kind for finding in found} == {"note"}
    assert places(found)[-1] == ("note", file_of(tmp_path, 16).name, "", 0)
    assert made.open().next_offset == 14
    assert made.report.dropped_segments == 1


def test_without_a_recovery_point_only_a_tail_is_excused(partition: Path) -> None:
    (partition / "recovery-point").unlink()
    (missing,) = verify(partition)
    assert missing.kind == "note"
    assert missing.text == "there is no such file; the next start has to read and check the whole log"
    last = file_of(partition, 66)
    whole, starts = last.read_bytes(), positions(last)
    last.write_bytes(whole[:-1])
    assert ("note", last.name, "byte", starts[-1]) in places(verify(partition))
    last.write_bytes(whole[: starts[2] + 30] + b"!" + whole[starts[2] + 31 :])
    assert ("problem", last.name, "byte", starts[2]) in places(verify(partition))


# Indexes


@pytest.mark.parametrize("base", SEGMENTS)
@pytest.mark.parametrize(("kind", "entry_bytes"), [(".index", 8), (".timeindex", 12)])
def test_a_wrong_index_entry_is_named_by_its_number(partition: Path, base: int, kind: str, entry_bytes: int) -> None:
    file = file_of(partition, base, kind)
    assert file.stat().st_size >= 2 * entry_bytes
    for at in flips(file, 1):
        assert places(verify(partition)) == [("problem", file.name, "entry", at // entry_bytes)], f"byte {at}"


def test_what_is_wrong_with_an_entry_is_said(partition: Path) -> None:
    file = file_of(partition, 33, ".index")
    data = file.read_bytes()
    offset, position = struct.unpack_from(">II", data, 8)
    file.write_bytes(data[:8] + struct.pack(">II", offset + 1, position) + data[16:])
    assert [finding.text for finding in verify(partition)] == [
        f"byte {position} -> offset 33 + {offset + 1}: the batch there ends with {33 + offset}"
    ]
    file.write_bytes(data[:8] + struct.pack(">II", offset, position + 1) + data[16:])
    assert [finding.text for finding in verify(partition)] == [
        f"byte {position + 1} -> offset 33 + {offset}: there is no such batch"
    ]
    for out_of_order in (data[:8] + data[:8] + data[16:], data[:8] + data[16:24] + data[8:16] + data[24:]):
        file.write_bytes(out_of_order)
        assert {finding.text.partition(": ")[2] for finding in verify(partition)} == {"it is out of order"}
    times = file_of(partition, 33, ".timeindex")
    timestamp, offset = struct.unpack(">qI", times.read_bytes()[-12:])
    file.write_bytes(data)
    times.write_bytes(times.read_bytes()[:-12] + struct.pack(">qI", timestamp - 1, offset))
    assert [finding.text for finding in verify(partition)] == [
        f"timestamp {timestamp - 1} -> offset 33 + {offset}: the largest so far is {timestamp}, of offset {33 + offset}"
    ]


@pytest.mark.parametrize(("kind", "entry_bytes"), [(".index", 8), (".timeindex", 12)])
def test_an_index_that_ends_inside_an_entry_is_named(partition: Path, kind: str, entry_bytes: int) -> None:
    for base in SEGMENTS:
        file = file_of(partition, base, kind)
        whole = file.read_bytes()
        for missing in range(1, entry_bytes):
            file.write_bytes(whole[:-missing])
            assert ("problem", file.name, "byte", len(whole) - entry_bytes) in places(verify(partition))
        file.write_bytes(whole)


def test_a_time_index_that_lost_its_last_entry_misleads_retention(partition: Path) -> None:
    file = file_of(partition, 0, ".timeindex")
    whole = file.read_bytes()
    timestamp, offset = struct.unpack(">qI", whole[-12:])
    for cut in (whole[:-12], b""):
        file.write_bytes(cut)
        (finding,) = verify(partition)
        assert finding.path == str(file)
        assert finding.text.startswith(f"the last entry is missing: timestamp {timestamp} -> offset 0 + {offset};")


def test_an_index_that_lost_its_entries_is_noted_when_reads_would_have_to_walk_far(tmp_path: Path) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    for _ in range(30):
        made.log.append(batch(bytes(100_000)))
    made.log.roll()
    made.log.close()
    file = file_of(tmp_path / "orders-0", 0, ".index")
    file.unlink()
    (finding,) = verify(made.directory)
    assert places([finding]) == [("note", file.name, "", 0)]
    assert "without the file it is made anew" in finding.text


def test_many_wrong_entries_are_counted(partition: Path) -> None:
    file = file_of(partition, 0, ".index")
    file.write_bytes(bytes(8 * 1000))
    found = verify(partition)
    assert len(found) == WRONG_ENTRIES_SHOWN_MAX + 1
    assert found[-1].text.startswith(f"{1000 - WRONG_ENTRIES_SHOWN_MAX} more entries are wrong")


# Segments and what stands beside them


def test_swapped_segments_are_named(partition: Path) -> None:
    first, second = file_of(partition, 0), file_of(partition, 33)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    found = verify(partition)
    assert ("problem", first.name, "byte", 0) in places(found)
    assert ("problem", second.name, "byte", 0) in places(found)
    assert any("but the next one begins at 33; they overlap" in finding.text for finding in found)


@pytest.mark.parametrize(("base", "accused"), [(0, "log-state.json"), (33, f"{0:020d}.log"), (66, "recovery-point")])
def test_a_segment_that_is_gone_is_missed_and_its_indexes_are_orphans(partition: Path, base: int, accused: str) -> None:
    file_of(partition, base).unlink()
    found = verify(partition)
    assert accused in {Path(finding.path).name for finding in problems(found)}
    orphans = {finding.path for finding in found if finding.text.startswith("its log is not there")}
    assert orphans == {str(file_of(partition, base, kind)) for kind in (".index", ".timeindex")}
    for file in partition.glob("*.log"):
        file.unlink()
    text = "segment 66 was flushed up to offset 90; that segment is not there"
    assert [finding.text for finding in problems(verify(partition))] == [text]


def test_files_that_belong_to_nobody_are_notes(partition: Path) -> None:
    names = {f"{7:020d}.index", "log-state.json.tmp", f"{0:020d}.log.cut-5", f"{0:020d}.log.cleaned", "notes.txt"}
    for name in names:
        (partition / name).write_bytes(b"")
    snapshot = next(partition.glob("*.snapshot"))
    snapshot.write_bytes(b"broken")
    found = verify(partition)
    assert {Path(finding.path).name for finding in found} == names | {snapshot.name}
    assert {finding.kind for finding in found} == {"note"}


def test_an_epoch_file_that_disagrees_is_one_problem_a_run_of_batches(partition: Path) -> None:
    file = partition / "leader-epoch-checkpoint"
    assert file.read_text() == "0\n4\n0 0\n1 24\n2 48\n3 72\n"
    file.write_text("0\n4\n0 0\n1 24\n2 51\n3 72\n")
    log_file = file_of(partition, 33)
    (finding,) = verify(partition)
    assert places([finding]) == [("problem", log_file.name, "byte", positions(log_file)[5])]
    assert finding.text.startswith("offsets 48 to 50 have leader epoch 2, leader-epoch-checkpoint says 1; one of them")
    file.write_text("0\n1\n7 0\n")
    assert len(verify(partition)) == 6  # four epochs, two of them in two segments


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "log-state.json", "recovery-point"])
def test_a_small_file_without_sense_is_a_problem_and_a_missing_one_is_a_note(partition: Path, name: str) -> None:
    file = partition / name
    for content in (b"", b"nonsense\xff", bytes(1024)):
        file.write_bytes(content)
        (finding,) = verify(partition)
        assert places([finding]) == [("problem", name, "", 0)]
        assert finding.text.startswith("its content makes no sense; ")
    file.unlink()
    assert places(verify(partition)) == [("note", name, "", 0)]


def test_a_log_start_behind_the_end_is_named_since_the_next_start_would_throw_all_away(partition: Path) -> None:
    file = partition / "log-state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "log_start": 91}))
    (finding,) = verify(partition)
    assert finding.text == "the log begins at 91, but ends at 90; the next start throws all of it away"


@pytest.mark.parametrize("change", [(1, 0), (0, 1), (-1, -1)])
def test_a_recovery_point_that_meets_no_batch_is_named(partition: Path, change: tuple[int, int]) -> None:
    size = file_of(partition, 66).stat().st_size
    point = RecoveryPoint(90 + change[0], 66, size - 100 + change[1])
    set_recovery_point(RealDisk(), str(partition), point)
    found = problems(verify(partition))
    assert places(found) == [("problem", "recovery-point", "", 0)]
    assert "the next start may cut the log there: remove this file" in found[0].text


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_checked() -> None:
    disk = MemoryDisk()
    made = LogOnDisk(disk, segment_bytes=1024, index_interval_bytes=100)
    for number in range(40):
        made.log.append(batch(b"value-%d" % number))
    made.log.close()
    paths = [f"{made.directory}/{segment.base_offset:020d}" for segment in made.log.segments]
    disk.fail_next("read", errno.EIO, ending=f"{paths[0]}.log")
    disk.fail_next("read", errno.EIO, ending=f"{paths[1]}.index")
    disk.fail_next("open", errno.EACCES, ending=f"{paths[2]}.log")
    totals = Totals()
    found = list(verify_partition(disk, made.directory, totals))
    assert [(Path(finding.path).name, finding.text) for finding in found] == [
        (f"{Path(paths[0]).name}.log", "it cannot be read: Input/output error"),
        (f"{Path(paths[1]).name}.index", "it cannot be read: Input/output error"),
        (f"{Path(paths[2]).name}.log", "it cannot be read: Permission denied"),
    ]
    assert totals.segments == len(paths) - 1
