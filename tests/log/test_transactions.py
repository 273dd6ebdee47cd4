"""Producers in a compacted log (KIP-98): sequences go on, what was aborted vanishes, what is open waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.compaction import plan_compaction
from odradek.log.errors import StaleProducerEpochError
from odradek.log.keymap import ENTRY_BYTES
from odradek.log.log import PartitionLog
from odradek.log.transactions import AbortedTransactions
from odradek.records.build import ControlType, control_batch
from odradek.records.record import Record
from tests.log.support import DIRECTORY, START_MS, LogOnDisk, compact, headers_of, keyed, read_all

RETENTION_MS = 1_000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


class Producer:
    """A transactional producer and the coordinator that ends its transactions."""

    def __init__(self, log: PartitionLog, producer_id: int) -> None:
        self.log = log
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0

    def send(self, *pairs: tuple[bytes | None, bytes | None]) -> int:
        data = keyed(*pairs, producer=(self.id, self.epoch, self.sequence), transactional=True)
        self.sequence += len(pairs)
        return self.log.append(data).base_offset

    def end(self, kind: ControlType) -> int:
        marker = control_batch(
            kind, producer_id=self.id, producer_epoch=self.epoch, coordinator_epoch=0, timestamp=START_MS
        )
        return self.log.append(marker).base_offset


def compacted(**settings: Any) -> LogOnDisk:
    return LogOnDisk(cleanup_policy="compact", delete_retention_ms=RETENTION_MS, **settings)


def data_of(log: PartitionLog) -> list[Record]:
    """The records that are no markers."""
    markers = {head.base_offset for head in headers_of(log) if head.is_control}
    return [record for record in read_all(log) if record.offset not in markers]


def forget_producers(subject: LogOnDisk) -> None:
    """Close the log and open it without its snapshots: what the batches say is all that is known."""
    subject.log.close()
    for entry in subject.disk.list(DIRECTORY):
        if entry.name.endswith(".snapshot"):
            subject.disk.remove(f"{DIRECTORY}/{entry.name}")
    subject.open()


def test_an_idempotent_producer_goes_on_after_compaction_and_restart() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"1"), (b"b", b"1"), producer=(7, 0, 0)))
    subject.log.append(keyed((b"a", b"2"), producer=(7, 0, 2)))
    subject.log.append(keyed((b"a", b"3"), (b"b", b"3")))
    subject.log.roll()
    compact(subject.log)
    assert [record.offset for record in read_all(subject.log)] == [3, 4]
    assert [(head.base_offset, head.record_count) for head in headers_of(subject.log)] == [(2, 0), (3, 2)]
    forget_producers(subject)
    assert subject.log.append(keyed((b"a", b"2"), producer=(7, 0, 2))).duplicate
    assert subject.log.append(keyed((b"a", b"4"), producer=(7, 0, 3))).base_offset == 5


def test_aborted_records_vanish_and_are_not_taken_for_newest_values() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"committed")))
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"aborted"), (b"b", b"aborted"))
    producer.end(ABORT)
    subject.log.roll()
    compact(subject.log)
    assert data_of(subject.log) == [Record(0, START_MS, b"a", b"committed")]


def test_committed_records_are_values_like_others() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"old")))
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"new"))
    producer.end(COMMIT)
    subject.log.roll()
    compact(subject.log)
    assert data_of(subject.log) == [Record(1, START_MS, b"a", b"new")]


def test_a_transaction_that_is_aborted_in_a_later_segment_or_the_active_one_is_aborted() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    subject.log.append(keyed((b"a", b"committed"), (b"b", b"committed")))
    producer.send((b"a", b"aborted"))
    subject.log.roll()
    producer.send((b"b", b"aborted"))
    subject.log.roll()
    producer.end(ABORT)  # stands in the active segment
    compact(subject.log)
    assert [(record.key, record.value) for record in data_of(subject.log)] == [
        (b"a", b"committed"),
        (b"b", b"committed"),
    ]


def test_an_open_transaction_stops_cleaning_at_its_first_record() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"1"), (b"a", b"2")))
    subject.log.roll()
    producer = Producer(subject.log, 7)
    first = producer.send((b"a", b"open"))
    subject.log.append(keyed((b"a", b"3")))
    subject.log.roll()
    subject.log.flush()
    plan = plan_compaction(subject.log, START_MS, 1 << 20, force=True)
    assert plan is not None
    assert plan.dirty_to == first
    plan.build()
    assert plan.install(subject.log)
    assert [record.value for record in data_of(subject.log)] == [b"2", b"open", b"3"]
    assert plan_compaction(subject.log, START_MS, 1 << 20, force=True) is None
    producer.end(ABORT)
    compact(subject.log)
    assert [record.value for record in data_of(subject.log)] == [b"3"]


def test_one_producers_transactions_end_each_in_its_own_way() -> None:
    subject = compacted()
    producer, other = Producer(subject.log, 7), Producer(subject.log, 8)
    other.send((b"other", b"1"))
    for key, kind in ((b"a", ABORT), (b"b", COMMIT), (b"c", ABORT)):
        producer.send((key, b"1"))
        producer.end(kind)
    other.end(COMMIT)
    subject.log.roll()
    compact(subject.log)
    assert [record.key for record in data_of(subject.log)] == [b"other", b"b"]


def test_a_producer_that_wrote_outside_of_transactions_is_never_aborted() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"idempotent"), producer=(7, 0, 0)))
    producer = Producer(subject.log, 7)
    producer.sequence = 1
    producer.send((b"b", b"aborted"))
    producer.end(ABORT)
    subject.log.roll()
    compact(subject.log)
    assert [record.key for record in data_of(subject.log)] == [b"a"]


def test_a_key_map_that_is_full_in_the_middle_of_an_aborted_transaction_does_no_harm() -> None:
    subject = compacted()
    subject.log.append(keyed((b"a", b"1")))
    producer = Producer(subject.log, 7)
    for key in (b"a", b"x", b"y"):
        producer.send((key, b"aborted"))
        subject.log.append(keyed((key + b"!", b"1")))
    producer.end(ABORT)
    subject.log.roll()
    while compact(subject.log, key_map_bytes=2 * ENTRY_BYTES):
        assert data_of(subject.log)[0].key == b"a"
    assert [record.key for record in data_of(subject.log)] == [b"a", b"a!", b"x!", b"y!"]


def test_the_last_batch_of_an_aborted_producer_stays_without_its_records() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"aborted"))
    producer.send((b"b", b"aborted"), (b"c", b"aborted"))
    producer.end(ABORT)
    subject.log.append(keyed((b"z", b"1")))
    subject.log.roll()
    compact(subject.log)
    heads = [(head.base_offset, head.last_offset, head.record_count) for head in headers_of(subject.log)]
    assert heads == [(1, 2, 0), (3, 3, 1), (4, 4, 1)]
    forget_producers(subject)
    assert producer.sequence == 3
    producer.log = subject.log
    assert producer.send((b"a", b"next")) == 5


def test_a_marker_stays_until_its_delete_horizon() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"aborted"))
    marker = producer.end(ABORT)
    subject.log.append(keyed((b"b", b"1"), producer=(7, 0, 1)))  # so that the producer's last batch is another one
    subject.log.roll()
    for now in (START_MS, START_MS + RETENTION_MS - 1):
        compact(subject.log, now)
        assert marker in [head.base_offset for head in headers_of(subject.log)]
        subject.log.append(keyed((b"%d" % now, b"1")))
        subject.log.roll()
    for round_number in range(2, 5):  # Kafka sets the horizon when it finds the transaction empty, so one pass later
        compact(subject.log, START_MS + round_number * RETENTION_MS)
        subject.log.append(keyed((b"%d" % round_number, b"1")))
        subject.log.roll()
    assert marker not in [head.base_offset for head in headers_of(subject.log)]


def test_a_commit_marker_stays_as_long_as_its_records_do() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"committed"))
    producer.end(COMMIT)
    subject.log.roll()
    for round_number in range(3):
        compact(subject.log, START_MS + round_number * RETENTION_MS)
        subject.log.append(keyed((b"b", b"%d" % round_number)))
        subject.log.roll()
    forget_producers(subject)  # or a new replica, which has only the batches
    assert subject.log.producers.first_unstable_offset is None, "a transaction that ended is open again, for ever"


def test_an_abort_marker_stays_as_long_as_the_producers_emptied_batch_does() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"aborted"))
    producer.end(ABORT)
    subject.log.roll()
    for round_number in range(3):
        compact(subject.log, START_MS + round_number * RETENTION_MS)
        subject.log.append(keyed((b"b", b"%d" % round_number)))
        subject.log.roll()
    forget_producers(subject)
    assert subject.log.producers.first_unstable_offset is None


def test_a_producer_that_was_fenced_by_a_marker_stays_fenced() -> None:
    subject = compacted()
    producer = Producer(subject.log, 7)
    producer.send((b"a", b"aborted"))
    producer.epoch = 1  # the coordinator raises the epoch when it aborts for a producer that is gone
    producer.end(ABORT)
    subject.log.roll()
    for round_number in range(3):
        compact(subject.log, START_MS + round_number * RETENTION_MS)
        subject.log.append(keyed((b"b", b"%d" % round_number)))
        subject.log.roll()
    forget_producers(subject)
    zombie = Producer(subject.log, 7)
    zombie.sequence = 1
    with pytest.raises(StaleProducerEpochError):
        zombie.send((b"a", b"from the grave"))


def test_the_ranges_of_aborted_transactions_are_found_by_producer_and_offset() -> None:
    subject = compacted()
    producer, other = Producer(subject.log, 7), Producer(subject.log, 8)
    producer.send((b"a", b"1"))
    other.send((b"a", b"1"))
    producer.end(ABORT)
    producer.send((b"a", b"1"))
    producer.end(COMMIT)
    other.end(ABORT)
    aborted = AbortedTransactions()
    for segment in subject.log.segments:
        aborted.read(segment, 0)
    assert [aborted.has(head) for head in headers_of(subject.log)] == [True, True, False, False, False, False]


steps = st.lists(
    st.tuples(st.sampled_from(["send", "send", "commit", "abort", "roll", "compact"]), st.sampled_from([0, 1, 2])),
    max_size=40,
)


@given(steps, st.sampled_from([1 << 20, ENTRY_BYTES]))
def test_a_reader_of_committed_records_finds_the_newest_of_each_key(
    todo: list[tuple[str, int]], map_bytes: int
) -> None:
    subject = compacted(segment_bytes=1024)
    producers = [Producer(subject.log, number) for number in range(3)]
    pending: dict[int, list[Record]] = {0: [], 1: [], 2: []}
    committed: list[Record] = []
    for step, number in todo:
        if step == "send":
            key, value = b"k%d" % (number % 2), b"%d" % subject.log.next_offset
            pending[number].append(Record(producers[number].send((key, value)), START_MS, key, value))
        elif step in ("commit", "abort"):
            producers[number].end(COMMIT if step == "commit" else ABORT)
            committed += pending[number] if step == "commit" else []
            pending[number] = []
        elif step == "roll":
            subject.log.roll()
        else:
            compact(subject.log, key_map_bytes=map_bytes)
    for number, producer in enumerate(producers):
        if pending[number]:
            producer.end(ABORT)
    subject.log.roll()
    while compact(subject.log, key_map_bytes=map_bytes):
        pass
    assert data_of(subject.log) == sorted({record.key: record for record in sorted(committed)}.values())
