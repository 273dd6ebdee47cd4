"""What the tests of the log share: settings, a log on a disk, batches that tell where they came from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from odradek.clock import ManualClock
from odradek.config import default_settings
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.disk.memory import MemoryDisk
from odradek.disk.real import RealDisk
from odradek.log.backends.file import FileBackend
from odradek.log.backends.file_segment import FileSegment, segment_path
from odradek.log.compaction import plan_compaction
from odradek.log.config import LogConfig, StoreConfig
from odradek.log.errors import LogError
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.recovery import RecoveryReport, Shared, open_log
from odradek.log.segment import Chunk, EndOfSegment, Mark
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import BatchHeader, iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord, Record

DIRECTORY = "data/orders-0"
START_MS = 1_700_000_000_000


def log_config(**settings: object) -> LogConfig:
    """A topic's settings, by Kafka's names with `_` for `.`."""
    return default_settings().log_config({name.replace("_", "."): str(value) for name, value in settings.items()})


def store_config() -> StoreConfig:
    """The broker's settings."""
    return default_settings().store_config()


FILE_ONLY = "file_only"
_Test = TypeVar("_Test", bound=Callable[..., None])


def file_only(test: _Test) -> _Test:
    """Mark a test that looks into the files of file segments, or needs a disk in memory."""
    setattr(test, FILE_ONLY, True)
    return test


class Place:
    """Where logs live that have no disk of their own: databases need the machine's disk."""

    def __init__(self, kind: str, directory: str) -> None:
        self.kind = kind
        self.made: list[LogOnDisk] = []
        self._directory = directory

    def take(self, log: LogOnDisk) -> str:
        """A directory for one more log, which is closed with all others."""
        self.made.append(log)
        return f"{self._directory}/{len(self.made)}/orders-0"

    def close(self) -> None:
        """End all logs; what is in them is not needed any more."""
        for on_disk in self.made:
            for log in on_disk.opened:
                with suppress(DiskError, LogError):
                    log.close()


place: Place | None = None  # set by the fixture `backend`


def at_most_two() -> dict[str, object]:
    """Settings by which a segment holds two batches of one record: files count index entries, databases records."""
    return {"segment_index_bytes": 24, "index_interval_bytes": 0} if place is None else {"segment_records_max": 2}


class LogOnDisk:
    """A log that can be closed, crashed and opened again on the same disk."""

    def __init__(self, disk: Disk | None = None, directory: str = DIRECTORY, **settings: object) -> None:
        self.opened: list[PartitionLog] = []
        if place is not None and not isinstance(disk, MemoryDisk):
            directory = place.take(self)
            settings = {"segment_backend": place.kind, **settings}
            disk = disk or RealDisk()
        self.disk = disk if disk is not None else MemoryDisk()
        self.clock = ManualClock(START_MS)
        self.directory = directory
        self.config = log_config(**settings)
        self.report = RecoveryReport()
        self.log = self.open()

    def open(self) -> PartitionLog:
        """Open the log as a new process would: nothing is remembered."""
        shared = Shared(self.disk, self.clock, store_config(), IndexCache(1 << 20))
        self.log, self.report = open_log(shared, self.directory, self.config)
        self.opened.append(self.log)
        return self.log

    def reopen(self) -> PartitionLog:
        """Stop cleanly and start again."""
        self.log.close()
        return self.open()


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = START_MS,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer would send it; `producer` is (id, epoch, first sequence)."""
    records = [NewRecord(value=value, key=key, timestamp=timestamp) for value in values]
    producer_id, epoch, sequence = producer if producer is not None else (-1, -1, -1)
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def records_of(data: memoryview | bytes | bytearray) -> list[Record]:
    """All records in some batches."""
    return [record for at, _ in iter_headers(data) for record in parse_batch(data, at)]


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from the log start to the end."""
    records: list[Record] = []
    offset = log.log_start
    while True:
        chunk = log.read(offset, max_bytes)
        assert chunk is not None
        if not chunk.data:
            return [record for record in records if record.offset >= log.log_start]
        records += records_of(chunk.data)
        offset = chunk.next_offset


def values_of(log: PartitionLog) -> list[bytes | None]:
    """The values of every record."""
    return [record.value for record in read_all(log)]


def keyed(
    *pairs: tuple[bytes | None, bytes | None],
    timestamp: int = START_MS,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """A batch of records with a key and a value each."""
    producer_id, epoch, sequence = producer if producer is not None else (-1, -1, -1)
    return build_batch(
        [NewRecord(value=value, key=key, timestamp=timestamp) for key, value in pairs],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def compact(log: PartitionLog, now_ms: int = START_MS, *, key_map_bytes: int = 1 << 20, force: bool = True) -> bool:
    """Plan, build and install a compaction; False if there was nothing to clean."""
    log.flush()  # only what is flushed is cleaned
    plan = plan_compaction(log, now_ms, key_map_bytes, force=force)
    if plan is None:
        return False
    plan.build()
    assert plan.install(log)
    return True


def next_record(log: PartitionLog, offset: int, *, max_bytes: int = 1) -> Record | None:
    """The first record at or after an offset, as a consumer that begins there finds it."""
    at = offset
    while True:
        chunk = log.read(at, max_bytes)
        assert chunk is not None
        if not chunk.data:
            return None
        for record in records_of(chunk.data):
            if record.offset >= offset:
                return record
        assert chunk.next_offset > at
        at = chunk.next_offset


def headers_of(log: PartitionLog) -> list[BatchHeader]:
    """The heads of all batches, also of empty ones."""
    return [header for segment in log.segments for _, header in segment.batches(segment.base_offset)]


# One segment without a log around it, and a naive model of it.

BASE = 1000  # where a `SegmentOnDisk` begins


@dataclass
class Stored:
    """A batch that the model knows."""

    base: int
    last: int
    data: bytes
    timestamp: int


def stored(base: int, count: int = 1, size: int = 50, timestamp: int = START_MS) -> Stored:
    """A batch at an offset, of so many records of so many bytes."""
    records = [NewRecord(b"v" * size, timestamp=timestamp)] * count
    data = build_batch(records, base_offset=base, leader_epoch=0)
    return Stored(base, base + count - 1, bytes(data), timestamp)


def follows(header: BatchHeader, expected: int | None) -> str | None:
    """What a log that has been compacted checks: offsets grow, the epoch is the only one there was."""
    if expected is not None and header.base_offset < expected:
        return f"offset {header.base_offset} stands where {expected} belongs"
    return None if header.leader_epoch == 0 else f"epoch {header.leader_epoch}"


def put(segment: FileSegment, *batches: Stored) -> None:
    """Append batches, several of them together."""
    if len(batches) == 1:
        segment.append(batches[0].data, batches[0].last, batches[0].timestamp)
        return
    marks, at = [], 0
    for one in batches:
        marks.append(Mark(at, base_offset=one.base, last_offset=one.last, max_timestamp=one.timestamp))
        at += len(one.data)
    segment.append_many(b"".join(one.data for one in batches), marks)


class SegmentOnDisk:
    """A segment and the list of what is in it."""

    def __init__(self, batches: list[Stored], *, together: bool = False, **settings: object) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("d")
        self.config = log_config(**settings)
        self.batches = batches
        self.segment = self.backend().create(BASE)
        if together and batches:
            put(self.segment, *batches)
        else:
            for one in batches:
                put(self.segment, one)

    def backend(self) -> FileBackend:
        return FileBackend(self.disk, "d", IndexCache(1 << 20), self.config, follows)

    def next_process(self, *, seal: bool = True) -> FileSegment:
        """The segment as another process finds it: sealed, or active with all of it flushed."""
        end = EndOfSegment(self.segment.next_offset, self.segment.size_bytes)
        if seal:
            self.segment.seal()
        else:
            self.segment.checkpoint()
        return self.open(end, seal=seal)

    def open(self, end: EndOfSegment, *, seal: bool = True) -> FileSegment:
        backend = self.backend()
        assert backend.find() == [BASE]
        self.segment = backend.open(BASE)
        if seal:
            self.segment.adopt(end.next_offset)
        else:
            self.segment.recover(end)
        return self.segment

    def change(self, path: str, at: int, bit: int = 0) -> None:
        """Flip a bit of a file behind everybody's back."""
        data = bytearray(self.disk.read_file(path) or b"")
        data[at] ^= 1 << bit
        self.disk.overwrite(path, bytes(data))


def expected(batches: list[Stored], offset: int, max_bytes: int, upto: int) -> list[Stored]:
    """What a read should give."""
    found = [one for one in batches if one.last >= offset and one.base < upto]
    size, count = 0, 0
    for one in found:
        size += len(one.data)
        if count and size > max_bytes:
            break
        count += 1
    return found[:count]


def agrees(chunk: Chunk | None, batches: list[Stored], offset: int, max_bytes: int, upto: int) -> None:
    """Check a read against the model."""
    assert chunk is not None
    wanted = expected(batches, offset, max_bytes, upto)
    while len(wanted) > 1 and sum(len(one.data) for one in wanted) > len(chunk.data):
        wanted.pop()  # less than was asked for may come, but whole batches and at least one
    assert bytes(chunk.data) == b"".join(one.data for one in wanted)
    if not wanted:
        assert (chunk.base_offset, chunk.next_offset) == (offset, offset)
        return
    assert chunk.base_offset == wanted[0].base
    later = [one.base for one in batches if one.base > wanted[-1].last]
    assert wanted[-1].last + 1 <= chunk.next_offset <= min(later, default=wanted[-1].last + 1)


def read_everything(segment: FileSegment, batches: list[Stored], max_bytes: int = 1) -> None:
    """Read from every offset of a segment and compare with the model."""
    for offset in range(BASE, (batches[-1].last if batches else BASE) + 2):
        agrees(segment.read(offset, max_bytes, 1 << 40), batches, offset, max_bytes, 1 << 40)


@st.composite
def some_batches(draw: st.DrawFn, gaps: bool = True) -> list[Stored]:
    """Batches of all sizes, with gaps between them as compaction leaves them."""
    base, batches = BASE, []
    for count, size, gap, later in draw(
        st.lists(
            st.tuples(
                st.integers(1, 4), st.sampled_from((0, 10, 100, 900)), st.sampled_from((0, 0, 3)), st.integers(-5, 9)
            ),
            max_size=12,
        )
    ):
        base += gap if gaps else 0
        batches.append(stored(base, count, size, START_MS + (base - BASE) * 2 + later))
        base += count
    return batches


def takes(
    before: list[Stored], size: int, last_offset: int, timestamp: int = START_MS, *, many: bool = False, **settings: int
) -> bool:
    """Whether a segment takes so many bytes behind what it has; if not, nothing of them may be left in it."""
    on_disk = SegmentOnDisk(before, together=False, **settings)
    segment, data = on_disk.segment, bytes(size)
    wanted = (segment.size_bytes, segment.next_offset)
    if many:
        marks = [Mark(0, BASE + 1, BASE + 1, START_MS), Mark(size - 1, BASE + 2, last_offset, timestamp)]
        taken = segment.append_many(data, marks)
    else:
        taken = segment.append(data, last_offset, timestamp)
    if taken:
        wanted = (wanted[0] + size, last_offset + 1)
    assert (segment.size_bytes, segment.next_offset) == wanted
    assert segment.file.size() == segment.size_bytes
    return taken


def log_with_a_wrong_bit(at: int, interval: int = 4096) -> tuple[FileSegment, bytes]:
    """A sealed segment of five batches of equal size, a bit of which was flipped between two processes."""
    on_disk = LogOnDisk(index_interval_bytes=interval)
    for number in range(5):
        on_disk.log.append(batch(b"value %d" % number), leader_epoch=7)
    on_disk.log.roll()
    on_disk.log.flush()
    path = segment_path(on_disk.directory, 0, ".log")
    good = on_disk.disk.read_file(path) or b""
    broken = bytearray(good)
    broken[at] ^= 1 << at % 8
    on_disk.disk.overwrite(path, bytes(broken))
    segment = on_disk.open().segments[0]
    assert isinstance(segment, FileSegment)
    return segment, good
