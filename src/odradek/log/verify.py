"""Checks a partition's files against each other: batches, indexes, leader epochs, recovery point, log state.

It reads, repairs nothing and prints nothing; what it finds comes as `Finding`s, in constant memory. One segment's
batches are `verify_segment`'s; this module knows what stands beside the segments, and how they follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.log.backends.choice import ROCKSDB_NAME
from odradek.log.epochs import FILE_NAME as EPOCHS_NAME
from odradek.log.epochs import LeaderEpochs
from odradek.log.errors import DamagedLogError, LogError
from odradek.log.producers import Producers
from odradek.log.sources import Sources
from odradek.log.sources_open import open_sources
from odradek.log.state import RECOVERY_POINT_NAME, STATE_NAME, LogState, read_recovery_point
from odradek.log.verify_finding import Finding, Totals, unreadable
from odradek.log.verify_segment import Beside, SegmentCheck
from odradek.model import Offset

_KAFKA_METADATA = "partition.metadata"
_SEGMENT_NAME = re.compile(rf"[0-9]{{20}}\.(log|index|timeindex|sqlite)|{re.escape(ROCKSDB_NAME)}")
_INDEX_FILE = re.compile(r"[0-9]{20}\.(index|timeindex)")
_SNAPSHOT_FILE = re.compile(r"[0-9]{20}\.snapshot")
_BESIDE = {  # what is lost with each file that stands beside the segments
    STATE_NAME: "the log start and whether compaction left gaps are not known; the next start guesses both",
    RECOVERY_POINT_NAME: "the next start has to read and check the whole log",
    EPOCHS_NAME: "the next start learns the leader epochs from the batches, if they are whole",
}


def has_partition_files(disk: Disk, directory: str) -> bool:
    """Whether a directory is a partition's: it has a segment's files, or those that stand beside them."""
    return any(entry.name in _BESIDE or _SEGMENT_NAME.fullmatch(entry.name) for entry in disk.list(directory))


def verify_partition(
    disk: Disk, directory: str, totals: Totals, *, shallow: bool = False, advance: Callable[[int], None] | None = None
) -> Iterator[Finding]:
    """Check one partition; `shallow`: do not look inside the batches. `advance` hears of the bytes read."""
    totals.partitions += 1
    try:  # the recovery point first: while a broker runs, what is flushed grows
        beside = Beside(read_recovery_point(disk, directory), LogState(disk, directory), LeaderEpochs(disk, directory))
        with closing(open_sources(disk, directory)) as sources:
            yield from _check_beside(disk, directory, beside, _known(sources))
            yield from _check_names(disk, directory, sources)
            yield from _check_segments(disk, directory, totals, sources, beside, shallow, advance or (lambda _: None))
    except (DiskError, DamagedLogError) as error:
        yield unreadable(error)
    except LogError as error:
        yield Finding("problem", directory, str(error))


def _known(sources: Sources) -> list[Offset]:
    return [base for base in sources.bases if base is not None]


def _check_segments(
    disk: Disk,
    directory: str,
    totals: Totals,
    sources: Sources,
    beside: Beside,
    shallow: bool,
    advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Check one segment after the other, and that none is missing."""
    bases = _known(sources)
    if beside.point is not None and bases and beside.point.segment not in bases and beside.point.segment > bases[0]:
        beside = beside._replace(point=None)
    end, is_torn = None, False  # the log's end, if it is known
    for base, following in zip(bases, [*bases[1:], None], strict=False):
        path = sources.path(base)
        if is_torn:
            yield Finding("note", path, "it stands, unflushed, behind a torn segment; the next start removes it")
            continue
        try:
            check = SegmentCheck(disk, base, sources.open(base), beside)
            yield from check.run(totals, shallow, advance)
        except (DiskError, DamagedLogError) as error:
            yield unreadable(error)
            end = None
            continue
        lost = following is not None and check.end is not None and check.end < following and not beside.state.sparse
        is_torn = check.is_unflushed and (check.is_cut or lost)
        if lost and not is_torn:
            text = f"the offsets {check.end} to {following} - 1 are missing: the segment ends before the next begins"
            yield Finding("problem", path, text)
        end = check.end
    if end is not None and end < beside.state.log_start:
        text = f"the log begins at {beside.state.log_start}, but ends at {end}; the next start throws all of it away"
        yield Finding("problem", f"{directory}/{STATE_NAME}", text)


def _check_beside(disk: Disk, directory: str, beside: Beside, bases: list[Offset]) -> Iterator[Finding]:
    """Look at the small files, each for itself and against the names of the segments."""
    point, state, epochs = beside
    readable = {STATE_NAME: state.known, RECOVERY_POINT_NAME: point is not None, EPOCHS_NAME: epochs.known}
    for name, meaning in _BESIDE.items():
        if not readable[name]:
            path = f"{directory}/{name}"
            there = disk.exists(path)
            text = "its content makes no sense" if there else "there is no such file"
            yield Finding("problem" if there else "note", path, f"{text}; {meaning}")
    is_lost = point is not None and point.segment not in bases  # unless it is older than all, and was let go
    if point is not None and is_lost and (point.segment > bases[0] if bases else point.next_offset > state.log_start):
        text = f"segment {point.segment} was flushed up to offset {point.next_offset}; that segment is not there"
        yield Finding("problem", f"{directory}/{RECOVERY_POINT_NAME}", text)
    if state.known and bases and state.log_start < bases[0]:
        text = f"the log begins at {state.log_start}, but the first segment at {bases[0]}; what stood between is lost"
        yield Finding("problem", f"{directory}/{STATE_NAME}", text)
    if state.swap is not None:
        yield Finding("note", f"{directory}/{STATE_NAME}", "a compaction is half in place; the next start finishes it")


def _check_names(disk: Disk, directory: str, sources: Sources) -> Iterator[Finding]:
    """Name the files that belong to no segment."""
    for entry in sorted(disk.list(directory)):
        path = f"{directory}/{entry.name}"
        if entry.name in _BESIDE or sources.owns(entry.name):
            continue
        if _INDEX_FILE.fullmatch(entry.name):
            yield Finding("note", path, "its log is not there; the next start removes it")
        elif _SNAPSHOT_FILE.fullmatch(entry.name):
            if not Producers(expiration_ms=0, count_max=1).restore(disk.read_file(path) or b""):
                yield Finding("note", path, "it is not whole; the next start passes it over")
        elif entry.name == _KAFKA_METADATA:
            yield Finding("note", path, "it is Apache Kafka's and has the topic's id; Odradek leaves it alone")
        else:
            yield Finding("note", path, "it belongs to no segment: a leftover that nothing reads")
