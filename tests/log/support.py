"""What the tests of the log share: settings, a log on a disk, batches that tell where they came from."""

from __future__ import annotations

from odradek.clock import ManualClock
from odradek.config import default_settings
from odradek.disk.interface import Disk
from odradek.disk.memory import MemoryDisk
from odradek.log.compaction import plan_compaction
from odradek.log.config import LogConfig, StoreConfig
from odradek.log.index import IndexCache
from odradek.log.log import PartitionLog
from odradek.log.recovery import RecoveryReport, Shared, open_log
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


class LogOnDisk:
    """A log that can be closed, crashed and opened again on the same disk."""

    def __init__(self, disk: Disk | None = None, directory: str = DIRECTORY, **settings: object) -> None:
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
