"""Producer snapshots on disk: names, how many stay, which one is believed."""

from __future__ import annotations

import random

import pytest

from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.log.producers import Producers
from odradek.log.snapshots import ProducerSnapshots
from tests.log.support import START_MS
from tests.log.test_producers import header


def empty_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


def producers_at(sequence: int) -> Producers:
    """Producer 7, whose last batch had this sequence."""
    state = Producers(expiration_ms=1000, count_max=10)
    state.update(header(sequence, sequence), START_MS)
    return state


def last_sequence(state: Producers) -> int:
    return dict(state.items())[7].written[-1].last_sequence


def nobody() -> Producers:
    return Producers(expiration_ms=1000, count_max=10)


def names(disk: MemoryDisk) -> list[str]:
    return sorted(entry.name for entry in disk.list("d"))


def disk_with(*offsets: int) -> MemoryDisk:
    disk = empty_disk()
    for offset in offsets:
        disk.write_atomic(f"d/{offset:020d}.snapshot", producers_at(offset).snapshot())
    return disk


def test_a_snapshot_is_named_by_its_offset_as_kafka_does() -> None:
    disk = empty_disk()
    ProducerSnapshots(disk, "d").save(producers_at(3), 1234)
    assert names(disk) == ["00000000000000001234.snapshot"]


def sync(snapshots: ProducerSnapshots) -> None:
    """What a flush does."""
    offsets = snapshots.begin_sync()
    snapshots.sync(offsets)
    snapshots.finish_sync(offsets)


def test_older_ones_are_kept_until_a_newer_one_is_on_stable_storage() -> None:
    disk = empty_disk()
    snapshots = ProducerSnapshots(disk, "d")
    for offset in (10, 20, 20, 30):
        snapshots.save(producers_at(offset), offset)
    assert names(disk) == [f"{offset:020d}.snapshot" for offset in (10, 20, 30)]
    assert snapshots.safe_offset == 0
    sync(snapshots)
    assert names(disk) == [f"{30:020d}.snapshot"]
    assert snapshots.safe_offset == 30


def test_what_is_saved_while_others_are_synced_waits_for_the_next_time() -> None:
    disk = empty_disk()
    snapshots = ProducerSnapshots(disk, "d")
    snapshots.save(producers_at(10), 10)
    offsets = snapshots.begin_sync()
    snapshots.save(producers_at(20), 20)
    snapshots.sync(offsets)
    snapshots.finish_sync(offsets)
    assert snapshots.safe_offset == 10 and len(names(disk)) == 2
    sync(snapshots)
    assert snapshots.safe_offset == 20 and len(names(disk)) == 1
    sync(snapshots)
    assert snapshots.safe_offset == 20


def test_those_of_a_killed_process_are_not_trusted_to_be_on_stable_storage() -> None:
    disk = disk_with(10, 20)
    snapshots = ProducerSnapshots(disk, "d")
    assert snapshots.safe_offset == 0
    sync(snapshots)
    assert snapshots.safe_offset == 20 and names(disk) == [f"{20:020d}.snapshot"]


def test_one_that_is_removed_while_it_is_synced_is_no_failure_and_others_are() -> None:
    disk = disk_with(10)
    snapshots = ProducerSnapshots(disk, "d")
    snapshots.sync([5])
    disk.fail_next("flush", 5)
    with pytest.raises(DiskError, match=r"cannot flush d/0+10\.snapshot"):
        sync(snapshots)


@pytest.mark.parametrize("seed", range(30))
def test_a_synced_one_outlives_every_crash(seed: int) -> None:
    disk = empty_disk()
    snapshots = ProducerSnapshots(disk, "d")
    for offset in (10, 20):
        snapshots.save(producers_at(offset), offset)
    offsets = snapshots.begin_sync()
    snapshots.sync(offsets)
    disk.sync_directory("d")  # as a flush does before it finishes
    snapshots.finish_sync(offsets)
    snapshots.save(producers_at(30), 30)
    disk.crash(random.Random(seed))
    assert ProducerSnapshots(disk, "d").restore(nobody(), 100) in (20, 30)


def test_after_a_cut_the_removed_ones_do_not_count_as_safe() -> None:
    snapshots = ProducerSnapshots(disk_with(10, 20), "d")
    sync(snapshots)
    assert snapshots.restore(nobody(), 15) is None
    assert snapshots.safe_offset <= 15
    snapshots.save(producers_at(18), 18)
    sync(snapshots)
    assert snapshots.safe_offset == 18


def test_the_newest_one_within_the_log_is_restored_and_those_beyond_are_removed() -> None:
    disk, state = disk_with(10, 20, 30), nobody()
    assert ProducerSnapshots(disk, "d").restore(state, 25) == 20
    assert last_sequence(state) == 20
    assert names(disk) == [f"{offset:020d}.snapshot" for offset in (10, 20)]
    assert ProducerSnapshots(disk, "d").restore(state, 20) == 20, "one at the very end of the log is within it"


def test_one_that_is_not_whole_is_passed_over_and_removed() -> None:
    disk, state = disk_with(10, 20), nobody()
    disk.write_atomic(f"d/{20:020d}.snapshot", producers_at(20).snapshot()[:-1])
    assert ProducerSnapshots(disk, "d").restore(state, 100) == 10
    assert last_sequence(state) == 10
    assert names(disk) == [f"{10:020d}.snapshot"]


def test_without_a_whole_one_everything_must_be_read() -> None:
    disk = empty_disk()
    assert ProducerSnapshots(disk, "d").restore(nobody(), 100) is None
    disk.write_atomic(f"d/{20:020d}.snapshot", b"")
    assert ProducerSnapshots(disk, "d").restore(nobody(), 100) is None
    assert names(disk) == []


def test_other_files_are_left_alone() -> None:
    disk = disk_with(10)
    for name in ("1.snapshot", f"{5:020d}.snapshot.tmp", f"{5:020d}.log", f"x{5:020d}.snapshot"):
        disk.open(f"d/{name}", create=True)
    assert ProducerSnapshots(disk, "d").restore(nobody(), 0) is None
    assert len(names(disk)) == 4


@pytest.mark.parametrize("seed", range(100))
def test_a_crash_leaves_a_whole_one_or_none_that_is_believed(seed: int) -> None:
    disk = disk_with(10)
    ProducerSnapshots(disk, "d").save(producers_at(20), 20)
    disk.crash(random.Random(seed))
    state = nobody()
    restored = ProducerSnapshots(disk, "d").restore(state, 100)
    assert restored in (10, 20) and last_sequence(state) == restored


def test_a_log_that_starts_over_forgets_its_old_producers() -> None:
    from tests.log.support import LogOnDisk, batch

    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a", producer=(7, 0, 0), transactional=True))
    on_disk.log.checkpoint()
    on_disk.log.start_over(100)
    assert on_disk.log.producers.first_unstable_offset is None and len(on_disk.log.producers) == 0


def test_a_snapshot_made_in_the_middle_of_replicated_batches_knows_those_before_it() -> None:
    from tests.log.support import LogOnDisk, batch

    leader, follower = LogOnDisk(directory="d/leader-0"), LogOnDisk(directory="d/follower-0", segment_bytes=1024)
    for sequence in range(3):
        leader.log.append(batch(b"v" * 400, producer=(7, 0, sequence)))
    first, rest = leader.log.read(0, 1), leader.log.read(1, 1 << 20)
    assert first is not None and rest is not None
    follower.log.append_replicated(first.data)
    follower.log.append_replicated(rest.data)
    rolled_at = follower.log.segments[-1].base_offset
    assert rolled_at == 2
    state = nobody()
    assert ProducerSnapshots(follower.disk, "d/follower-0").restore(state, rolled_at) == rolled_at
    assert last_sequence(state) == 1
