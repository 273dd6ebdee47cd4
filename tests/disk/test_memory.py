"""The disk in memory: what survives a crash, what may not, and that it can be as nasty as a real one."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from odradek.disk.errors import DiskError, DiskFullError, LockedError
from odradek.disk.interface import Entry
from odradek.disk.memory import MemoryDisk

SEEDS = range(400)


def disk_with(path: str = "d/a", durable: bytes = b"") -> MemoryDisk:
    """A disk with one file, whose bytes and name are durable."""
    disk = MemoryDisk()
    disk.make_directory("d")
    file = disk.open(path, create=True)
    file.append(durable)
    file.sync()
    disk.sync_directory("d")
    return disk


def content(disk: MemoryDisk, path: str = "d/a") -> bytes:
    data = disk.read_file(path)
    assert data is not None
    return data


# Without a crash it is a disk.


def test_files_hold_what_was_appended_and_can_be_cut() -> None:
    disk = disk_with()
    file = disk.open("d/a")
    file.append(memoryview(b"0123"))
    file.append(bytearray(b"456789"))
    assert file.read(4, 2) == file.read_cached(4, 2) == b"2345"
    assert file.read(9, 8) == b"89" and file.read(1, 10) == b"" and file.size() == 10
    file.truncate(3)
    file.append(b"x")
    assert content(disk) == b"012x"
    assert disk.open("d/a").read(9, 0) == b"012x", "all handles see the same file"
    disk.open("d/a", create=True)
    assert content(disk) == b""


def test_names_can_be_listed_changed_and_removed() -> None:
    disk = disk_with()
    disk.make_directory("d/e/f")
    disk.open("d/a").append(b"123")
    assert sorted(disk.list("d")) == [Entry("a", False, 3), Entry("e", True, 0)]
    assert disk.list("nowhere") == [] and disk.read_file("d/nothing") is None
    disk.rename("d/a", "d/b")
    assert disk.exists("d/b") and not disk.exists("d/a")
    disk.remove("d/b")
    disk.remove("d/b")
    disk.remove_tree("d/e")
    disk.remove_tree("d/e")
    assert disk.list("d") == []


def test_a_removed_file_can_still_be_read_by_its_handle() -> None:
    disk = disk_with(durable=b"kept")
    file = disk.open("d/a")
    file.pin()
    disk.remove("d/a")
    assert file.read(9, 0) == b"kept"
    file.unpin()
    file.close()


def test_what_does_not_exist_is_an_error_as_on_a_real_disk() -> None:
    disk = disk_with()
    for attempt in (
        lambda: disk.open("d/none"),
        lambda: disk.open("none/a", create=True),
        lambda: disk.rename("d/none", "d/x"),
        lambda: disk.sync_directory("none"),
    ):
        with pytest.raises(DiskError, match=r"none.*: No such file or directory"):
            attempt()
    with pytest.raises(DiskError, match="cannot make directory d/a/b: a file of that name exists"):
        disk.make_directory("d/a/b")


def test_a_lock_excludes_others_until_it_is_released_or_its_process_dies() -> None:
    disk = disk_with()
    lock = disk.lock("d/.lock")
    with pytest.raises(LockedError, match="another Odradek process uses this directory; stop it first"):
        disk.lock("d/.lock")
    lock.release()
    disk.lock("d/.lock")
    disk.crash(random.Random(0))
    disk.lock("d/.lock")


# A crash.


@pytest.mark.parametrize("seed", range(50))
def test_what_was_synced_survives_every_crash(seed: int) -> None:
    disk = disk_with(durable=b"promised")
    for _ in range(5):
        disk.crash(random.Random(seed))
        assert content(disk) == b"promised"


def outcomes_of_an_unsynced_append(size: int) -> list[bytes]:
    """What is left of `size` bytes behind four durable ones, for each seed."""
    outcomes = []
    for seed in SEEDS:
        disk = disk_with(durable=b"old.")
        data = bytes(1 + at // 512 for at in range(4, 4 + size))
        disk.open("d/a").append(data)
        disk.crash(random.Random(seed))
        outcomes.append(content(disk))
        assert outcomes[-1].startswith(b"old.")
        assert len(outcomes[-1]) <= 4 + size
    return outcomes


def test_what_was_not_synced_may_vanish_stay_be_torn_or_have_holes() -> None:
    whole = b"old." + bytes(1 + at // 512 for at in range(4, 2004))
    outcomes = outcomes_of_an_unsynced_append(2000)
    assert b"old." in outcomes, "wholly lost"
    assert whole in outcomes, "wholly kept"
    assert any(4 < len(left) < 2004 and whole.startswith(left) and len(left) % 512 for left in outcomes), "torn"
    holes = [left for left in outcomes if b"\0" in left]
    assert holes, "a sector is missing, a later one is there"
    assert any(len(left) == 2004 for left in holes), "and the size does not show it"
    for left in holes:  # lost by sectors of the device, which are aligned to the file's start
        for at in range(512, len(left), 512):
            assert set(left[at : at + 512]) in ({0}, {1 + at // 512})


def test_writes_between_which_nothing_was_synced_may_survive_in_part() -> None:
    kept = set()
    for seed in SEEDS:
        disk = disk_with()
        file = disk.open("d/a")
        for part in (b"a" * 10, b"b" * 10, b"c" * 10):
            file.append(part)
        disk.crash(random.Random(seed))
        kept.add(bytes(sorted(set(content(disk)))))
    assert {b"", b"a", b"ab", b"abc"} <= kept


def test_a_cut_that_was_not_synced_may_be_undone() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"0123456789")
        file = disk.open("d/a")
        file.truncate(4)
        file.append(b"xy")
        disk.crash(random.Random(seed))
        outcomes.add(content(disk))
    assert {b"0123456789", b"0123", b"0123xy"} <= outcomes
    assert any(len(left) == 10 and b"xy" in left for left in outcomes), "the write came, the cut did not"


def test_an_overwrite_that_was_not_synced_may_be_undone_or_torn() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"0123456789")
        disk.overwrite("d/a", b"abcdef")
        disk.overwrite("d/new", b"abc")
        disk.crash(random.Random(seed))
        outcomes.add(content(disk))
    assert {b"0123456789", b"abcdef6789", b"abc3456789"} <= outcomes


def test_a_name_survives_for_sure_only_after_its_directory_was_synced() -> None:
    kept = set()
    for seed in SEEDS:
        disk = disk_with()
        file = disk.open("d/new", create=True)
        file.append(b"synced, but nameless")
        file.sync()
        disk.crash(random.Random(seed))
        kept.add(disk.exists("d/new"))
        disk.open("d/new", create=True)
        disk.sync_directory("d")
        disk.crash(random.Random(seed))
        assert disk.exists("d/new")
    assert kept == {True, False}


def test_a_removal_may_be_undone_until_the_directory_is_synced() -> None:
    there = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"x")
        disk.remove("d/a")
        disk.crash(random.Random(seed))
        there.add(disk.exists("d/a"))
        disk.remove("d/a")
        disk.sync_directory("d")
        disk.crash(random.Random(seed))
        assert not disk.exists("d/a")
    assert there == {True, False}


def test_a_rename_happens_wholly_or_not_at_all() -> None:
    states = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"old")
        fresh = disk.open("d/a.tmp", create=True)
        fresh.append(b"new")
        fresh.sync()
        disk.rename("d/a.tmp", "d/a")
        disk.crash(random.Random(seed))
        states.add((content(disk), disk.read_file("d/a.tmp")))
    assert states == {(b"old", None), (b"old", b"new"), (b"new", None)}


def test_changes_of_names_are_kept_in_their_order() -> None:
    states = set()
    for seed in SEEDS:
        disk = disk_with()
        for name in "pqr":
            disk.open(f"d/{name}", create=True)
        disk.crash(random.Random(seed))
        states.add("".join(sorted(entry.name for entry in disk.list("d"))))
    assert states == {"a", "ap", "apq", "apqr"}


def test_a_durable_replacement_is_old_or_new_and_new_once_it_returned() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"old")
        disk.fail_next(("rename", "flush", "flush directory")[seed % 3], errno.EIO)
        with pytest.raises(DiskError):
            disk.write_atomic("d/a", b"new")
        disk.crash(random.Random(seed))
        seen.add(content(disk))
        disk.write_atomic("d/a", b"newer")
        disk.crash(random.Random(seed))
        assert content(disk) == b"newer"
    assert seen == {b"old", b"new"}


def test_a_replacement_that_is_not_durable_may_leave_a_torn_file() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with(durable=b"old")
        disk.write_atomic("d/a", b"newer", durable=False)
        disk.crash(random.Random(seed))
        seen.add(content(disk))
    assert {b"old", b"newer", b"", b"new"} <= seen


def test_directories_are_made_durably() -> None:
    for seed in SEEDS:
        disk = MemoryDisk()
        disk.make_directory("a/b/c")
        disk.crash(random.Random(seed))
        assert disk.exists("a/b/c")


def test_handles_are_dead_after_a_crash() -> None:
    disk = disk_with(durable=b"x")
    file = disk.open("d/a")
    disk.crash(random.Random(0))
    for attempt in (lambda: file.append(b"y"), lambda: file.read(1, 0), file.sync, file.size, lambda: file.truncate(0)):
        with pytest.raises(DiskError, match="d/a: this handle belongs to a process that crashed"):
            attempt()
    assert content(disk) == b"x"
    assert disk.open("d/a").read(1, 0) == b"x"


@given(st.integers(0, 2**32), st.lists(st.binary(max_size=2000), max_size=5))
def test_the_same_seed_gives_the_same_crash(seed: int, parts: list[bytes]) -> None:
    left = []
    for _ in range(2):
        disk = disk_with()
        for part in parts:
            disk.open("d/a").append(part)
        disk.crash(random.Random(seed))
        left.append(content(disk))
    assert left[0] == left[1]


class PromisesOfADisk(RuleBasedStateMachine):
    """Whatever is done: after a crash every byte that was synced under a synced name is there."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MemoryDisk()
        self.disk.make_directory("d")
        self.appended: dict[str, bytes] = {}  # what a process sees
        self.synced: dict[str, int] = {}  # how much of it was synced
        self.named: set[str] = set()  # names that were synced since they were made

    @rule(name=st.sampled_from("pqr"))
    def create(self, name: str) -> None:
        if name not in self.appended:
            self.disk.open(f"d/{name}", create=True)
            self.appended[name], self.synced[name] = b"", 0

    @precondition(lambda self: self.appended)
    @rule(data=st.data(), part=st.binary(min_size=1, max_size=1500), sync=st.booleans())
    def append(self, data: st.DataObject, part: bytes, sync: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.appended)))
        file = self.disk.open(f"d/{name}")
        file.append(part)
        self.appended[name] += part
        if sync:
            file.sync()
            self.synced[name] = len(self.appended[name])

    @rule()
    def sync_names(self) -> None:
        self.disk.sync_directory("d")
        self.named = set(self.appended)

    @rule()
    def crash(self) -> None:
        self.disk.crash(self.chance)
        left = {entry.name for entry in self.disk.list("d")}
        assert self.named <= left <= set(self.appended)
        for name in left:
            kept = content(self.disk, f"d/{name}")
            promised = self.appended[name][: self.synced[name]]
            assert kept.startswith(promised) and len(kept) <= len(self.appended[name])
            self.appended[name], self.synced[name] = kept, len(kept)
        self.appended = {name: self.appended[name] for name in left}
        self.named = left


TestPromisesOfADisk = PromisesOfADisk.TestCase


# Failing on purpose.


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = disk_with()
    disk.capacity_bytes = 10
    file = disk.open("d/a")
    file.append(b"123456")
    with pytest.raises(DiskFullError, match="cannot append to d/a: no space is left on the device; free some"):
        file.append(b"abcdef")
    assert content(disk) == b"123456abcd" and disk.room() == 0
    with pytest.raises(DiskFullError):
        file.append(b"x")
    disk.capacity_bytes = 12
    file.append(b"xy")
    disk.remove("d/a")
    assert disk.room() == 12
    assert MemoryDisk().room() > 1 << 50


def test_one_call_fails_as_ordered_and_only_one() -> None:
    disk = disk_with()
    first, second = disk.open("d/a"), disk.open("d/b", create=True)
    disk.fail_next("flush", errno.EIO, ending="/b")
    disk.fail_next("append to", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        first.append(b"x")
    first.append(b"x")
    first.sync()
    with pytest.raises(DiskError, match="cannot flush d/b: Input/output error"):
        second.sync()
    second.sync()


@pytest.mark.parametrize("action", ["create", "open", "read", "truncate", "rename", "remove", "write", "look at"])
def test_every_kind_of_call_can_be_made_to_fail(action: str) -> None:
    disk = disk_with()
    file = disk.open("d/a")
    calls = {
        "create": lambda: disk.open("d/b", create=True),
        "open": lambda: disk.open("d/a"),
        "read": lambda: file.read(1, 0),
        "truncate": lambda: file.truncate(0),
        "rename": lambda: disk.rename("d/a", "d/b"),
        "remove": lambda: disk.remove("d/a"),
        "write": lambda: disk.overwrite("d/a", b"x"),
        "look at": file.size,
    }
    disk.fail_next(action, errno.EIO)
    with pytest.raises(DiskError, match=f"cannot {action} d/"):
        calls[action]()
    calls[action]()


def test_overwriting_needs_room_too() -> None:
    disk = disk_with()
    disk.capacity_bytes = 4
    with pytest.raises(DiskFullError):
        disk.overwrite("d/a", b"123456")


def test_overwriting_behind_the_end_leaves_a_hole_as_a_real_disk_does() -> None:
    disk = disk_with(durable=b"x")
    disk.overwrite("d/a", b"slot", at=8)
    assert content(disk) == b"x" + bytes(7) + b"slot"
