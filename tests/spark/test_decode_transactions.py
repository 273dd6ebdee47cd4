"""Control batches are never rows; what was aborted is none for those who read only what is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.fetched import AbortedTransaction
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.record import NewRecord
from odradek.spark.read.scan import scan
from tests.spark.answers import EVERYTHING, read

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "abort", "commit", "plain"]), st.integers(1, 2), st.integers(1, 3)),
    min_size=6,
    max_size=25,
)


@dataclass
class History:
    """A log as transactions write it, with what a broker and a reader know of it."""

    data: bytearray = field(default_factory=bytearray)
    end: int = 0
    committed: set[int] = field(default_factory=set)  # offsets
    written: set[int] = field(default_factory=set)
    aborted: list[tuple[int, AbortedTransaction]] = field(default_factory=list)  # with the offset of the marker
    under_way: dict[int, list[int]] = field(default_factory=dict)

    def write(self, producer: int, count: int, *, transactional: bool) -> None:
        records = [NewRecord(b"%d" % (self.end + number), None, 0) for number in range(count)]
        self.data += build_batch(
            records,
            base_offset=self.end,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
        offsets = list(range(self.end, self.end + count))
        self.written.update(offsets)
        if transactional:
            self.under_way.setdefault(producer, []).extend(offsets)
        else:
            self.committed.update(offsets)
        self.end += count

    def finish(self, producer: int, kind: ControlType) -> None:
        self.data += control_batch(
            kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=self.end
        )
        offsets = self.under_way.pop(producer, [])
        if kind is ControlType.COMMIT:
            self.committed.update(offsets)
        elif offsets:
            self.aborted.append((self.end, AbortedTransaction(producer, offsets[0])))
        self.end += 1


def history(steps: list[tuple[str, int, int]]) -> History:
    made = History()
    for kind, producer, count in steps:
        if kind in ("write", "plain"):
            made.write(producer, count, transactional=kind == "write" or producer in made.under_way)
        else:
            made.finish(producer, ControlType.ABORT if kind == "abort" else ControlType.COMMIT)
    for producer in list(made.under_way):  # a broker shows nothing behind the first transaction that is still open
        made.finish(producer, ControlType.COMMIT)
    return made


@given(STEPS, st.data())
def test_what_is_read_is_what_was_committed(steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    log = history(steps)
    if not log.end:
        return
    start = data.draw(st.integers(0, log.end - 1))
    end = data.draw(st.integers(start + 1, log.end))
    aborted = [transaction for marker, transaction in log.aborted if marker >= start]
    rows = read(log.data, start, end, ("offset", "value"), data.draw(st.permutations(aborted)))
    assert [row["offset"] for row in rows] == sorted(offset for offset in log.committed if start <= offset < end)
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    everything = read(log.data, start, end, ("offset",))
    assert [row["offset"] for row in everything] == sorted(item for item in log.written if start <= item < end)


def test_a_producer_whose_transaction_was_aborted_may_commit_the_next() -> None:
    log = history(
        [("write", 1, 2), ("abort", 1, 1), ("write", 1, 2), ("commit", 1, 1), ("write", 1, 1), ("abort", 1, 1)]
    )
    rows = read(log.data, 0, log.end, ("offset",), [transaction for _, transaction in log.aborted])
    assert [row["offset"] for row in rows] == [3, 4]


def test_an_answer_of_nothing_but_markers_leads_on() -> None:
    log = History()
    for producer in range(5):
        log.finish(producer, ControlType.ABORT)
    scanned = scan(memoryview(log.data), 0, EVERYTHING, [])
    assert (len(scanned.at), scanned.next_offset) == (0, 5)
