"""The machine's disk: what a file keeps, how many descriptors are open, what an error says."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from odradek.disk import real
from odradek.disk.errors import DiskError, DiskFullError, LockedError, disk_error
from odradek.disk.interface import Buffer, Entry
from odradek.disk.real import RealDisk, RealFile


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk(open_files_max=8)


def make_files(disk: RealDisk, directory: Path, count: int) -> list[RealFile]:
    """Make numbered files, each with its own number in it."""
    files = [disk.open(f"{directory}/{number}", create=True) for number in range(count)]
    for number, file in enumerate(files):
        file.append(b"%d;" % number)
    return files


def descriptors_below(directory: Path) -> int:
    """How many descriptors of this process point at files of a directory, as the system counts them."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += str(link.readlink()).startswith(str(directory))
        except FileNotFoundError:
            continue
    return count


# Bytes of one file.


def test_what_is_appended_can_be_read_in_any_piece(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    for part in (b"abc", bytearray(b"def"), memoryview(b"ghi")):
        file.append(part)
    assert file.size() == 9
    assert [file.read(3, at) for at in (0, 2, 7, 9, 20)] == [b"abc", b"cde", b"hi", b"", b""]


def test_short_writes_are_finished(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, memoryview(data)[:3]))
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    file.append(memoryview(b"abcdefg"))
    disk.write_atomic(f"{tmp_path}/b", b"0123456789")
    assert file.read(100, 0) == b"0123456789abcdefg"
    assert disk.read_file(f"{tmp_path}/b") == b"0123456789"


def test_short_reads_are_finished(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    assert file.read(8, 1) == b"12345678"
    assert file.read(80, 1) == b"123456789"


def test_a_file_can_be_cut_and_goes_on_at_its_new_end(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    file.sync()
    assert file.read(100, 0) == b"0123x"


def test_creating_a_file_that_exists_empties_it_and_opening_does_not(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/a", create=True).append(b"old")
    assert disk.open(f"{tmp_path}/a").read(9, 0) == b"old"
    assert disk.open(f"{tmp_path}/a", create=True).size() == 0


def test_what_lies_in_memory_is_read_without_waiting(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    assert bytes(file.read_cached(4, 2) or b"") == b"2345"
    assert bytes(file.read_cached(99, 8) or b"") == b"89", "short only at the end of the file"
    at_the_end = file.read_cached(4, 10)
    assert at_the_end is not None and bytes(at_the_end) == b""


def test_what_does_not_lie_in_memory_is_not_waited_for(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")

    def nothing_cached(fd: int, buffers: list[bytearray], at: int, flags: int) -> int:
        raise BlockingIOError(errno.EAGAIN, "not in memory")

    def half_cached(fd: int, buffers: list[bytearray], at: int, flags: int) -> int:
        buffers[0][:2] = b"01"
        return 2

    monkeypatch.setattr(real, "_RWF_NOWAIT", 8)
    monkeypatch.setattr(os, "preadv", nothing_cached)
    assert file.read_cached(10, 0) is None
    monkeypatch.setattr(os, "preadv", half_cached)
    assert file.read_cached(10, 0) is None, "the rest is there, but not in memory"
    file.truncate(2)
    assert bytes(file.read_cached(10, 0) or b"") == b"01"


def test_a_large_read_uses_memory_again_but_never_while_somebody_looks_at_it(disk: RealDisk, tmp_path: Path) -> None:
    size = 1 << 20
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"a" * size + b"b" * size)
    held = file.read_cached(size, 0)
    assert isinstance(held, memoryview)
    part = held[1:3]  # what a reader keeps is a part of what was read
    memory = held.obj
    del held
    others = [file.read_cached(size, size) for _ in range(40)]
    assert bytes(part) == b"aa"
    assert all(other is not None and bytes(other) == b"b" * size for other in others)
    del part
    again = file.read_cached(size, size)
    assert isinstance(again, memoryview) and again.obj is memory


def test_a_file_system_that_cannot_tell_what_is_cached_is_read_as_usual(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, buffers: list[bytearray], at: int, flags: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.read_cached(3, 1) == b"123"
    monkeypatch.setattr(real, "_RWF_NOWAIT", 0)
    assert file.read_cached(3, 2) == b"234"


# How many files are open.


def test_never_more_files_are_open_than_allowed_and_all_stay_right(disk: RealDisk, tmp_path: Path) -> None:
    files = make_files(disk, tmp_path, 100)
    most = 0
    for round_number in range(3):
        for number, file in enumerate(files):
            file.append(b"%d;" % round_number)
            assert bytes(file.read_cached(1, 0) or b"") == b"%d" % int(str(number)[0])
            most = max(most, descriptors_below(tmp_path))
            assert disk.open_files == descriptors_below(tmp_path) <= 8
    assert most == 8
    for number, file in enumerate(files):
        assert file.read(100, 0) == b"%d;0;1;2;" % number


def test_the_file_that_is_used_all_the_time_is_seldom_closed(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(disk, tmp_path, 50)
    files[0].read(1, 0)
    opened: list[str] = []
    system_open = os.open

    def noting_open(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append(path)
        return system_open(path, flags, mode)

    monkeypatch.setattr(os, "open", noting_open)
    for file in files[1:]:
        file.read(1, 0)
        files[0].read(1, 0)
    assert len(opened) >= 49
    assert opened.count(files[0].path) <= 49 // 8, "second chance: at most once in a full round"


def test_pinned_files_stay_open_beside_the_others(disk: RealDisk, tmp_path: Path) -> None:
    files = make_files(disk, tmp_path, 30)
    for file in files[:5]:
        file.pin()
        Path(file.path).unlink()
    for number, file in enumerate(files):
        assert file.read(100, 0) == b"%d;" % number
        assert disk.open_files == descriptors_below(tmp_path) <= 8
    for number, file in enumerate(files[:5]):
        assert file.read(100, 0) == b"%d;" % number, "its name is gone, its descriptor is not"
        file.close()
        assert file.read(100, 0) == b"%d;" % number, "closed at the last unpin, not before"
        file.unpin()
        with pytest.raises(DiskError, match="No such file"):
            file.read(1, 0)
    assert descriptors_below(tmp_path) == disk.open_files


def test_more_files_can_be_pinned_than_may_be_open_and_others_still_be_used(disk: RealDisk, tmp_path: Path) -> None:
    files = make_files(disk, tmp_path, 12)
    for file in files[:10]:
        file.pin()
        Path(file.path).unlink()
    for number, file in enumerate(files):
        assert file.read(100, 0) == b"%d;" % number
    files[11].append(b"more")
    assert files[11].read(100, 0) == b"11;more"
    assert descriptors_below(tmp_path) <= 8 + 10


def test_a_file_pinned_twice_is_let_go_with_the_second_unpin(disk: RealDisk, tmp_path: Path) -> None:
    (file,) = make_files(disk, tmp_path, 1)
    file.pin()
    file.pin()
    file.close()
    file.unpin()
    assert disk.open_files == 1
    file.unpin()
    assert disk.open_files == descriptors_below(tmp_path) == 0
    file.close()
    assert file.read(9, 0) == b"0;", "a closed file is opened again when it is needed"


def test_a_thread_that_opens_files_does_not_close_the_one_being_written(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(disk, tmp_path, 40)
    write = os.write

    def others() -> None:
        for file in files[1:]:
            file.read(1, 0)

    def interrupted(descriptor: int, data: Buffer) -> int:
        monkeypatch.setattr(os, "write", write)
        thread = Thread(target=others)
        thread.start()  # exactly where the system may switch threads: os.write lets go of the interpreter's lock
        thread.join()
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", interrupted)
    files[0].append(b"mine")
    assert [Path(file.path).read_bytes() for file in files] == [b"0;mine", *(b"%d;" % n for n in range(1, 40))]


def test_the_default_bound_leaves_descriptors_for_sockets() -> None:
    import resource

    bound = RealDisk().open_files_max
    assert 64 <= bound <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4


# Small files.


def test_a_small_file_is_replaced_as_a_whole(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/state"
    assert disk.read_file(path) is None
    disk.write_atomic(path, b"old")
    disk.write_atomic(path, b"new", durable=False)
    assert disk.read_file(path) == b"new"
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]


@pytest.mark.parametrize(("call", "action"), [("write", "write"), ("fdatasync", "write"), ("replace", "rename")])
def test_a_replacement_that_fails_leaves_the_old_bytes(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, action: str
) -> None:
    path = f"{tmp_path}/state"
    disk.write_atomic(path, b"old")

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(DiskError, match=f"cannot {action} {path}.tmp: Input/output error"):
            disk.write_atomic(path, b"new")
    assert disk.read_file(path) == b"old"
    disk.write_atomic(path, b"new")
    assert disk.read_file(path) == b"new"


def test_a_durable_replacement_syncs_the_bytes_before_the_name_and_the_name_before_it_returns(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)
    disk.write_atomic(f"{tmp_path}/state", b"new")
    assert calls == [f"fdatasync {tmp_path}/state.tmp", f"replace {tmp_path}/state", f"fsync {tmp_path}"]
    calls.clear()
    disk.write_atomic(f"{tmp_path}/state", b"new", durable=False)
    assert calls == [f"replace {tmp_path}/state"]


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the calls that make things durable, each with the path it is about, and do them."""
    calls: list[str] = []
    fsync, fdatasync, replace = os.fsync, os.fdatasync, os.replace

    def noting_fsync(fd: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{fd}').readlink()}")
        fsync(fd)

    def noting_fdatasync(fd: int) -> None:
        calls.append(f"fdatasync {Path(f'/proc/self/fd/{fd}').readlink()}")
        fdatasync(fd)

    def noting_replace(old: str, new: str) -> None:
        calls.append(f"replace {new}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "fdatasync", noting_fdatasync)
    monkeypatch.setattr(os, "replace", noting_replace)
    return calls


def test_overwriting_keeps_what_lies_behind_and_makes_what_is_missing(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/point"
    disk.overwrite(path, b"12345")
    disk.overwrite(path, b"ab")
    disk.overwrite(path, b"slot", at=8)
    assert disk.read_file(path) == b"ab345" + bytes(3) + b"slot"


def test_a_small_file_is_added_to_cut_and_read_in_part_without_being_kept_open(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/index"
    assert disk.read_range(path, 10, 0) == b"", "there is no such file yet"
    disk.append_file(path, b"0123")
    disk.append_file(path, b"456789")
    assert [disk.read_range(path, 4, at) for at in (0, 3, 8, 10, 99)] == [b"0123", b"3456", b"89", b"", b""]
    disk.truncate_file(path, 5)
    disk.append_file(path, b"x")
    assert disk.read_file(path) == b"01234x"
    disk.truncate_file(f"{tmp_path}/new", 0)
    assert disk.read_file(f"{tmp_path}/new") == b""
    assert disk.open_files == descriptors_below(tmp_path) == 0


def test_a_small_file_is_synced_if_it_is_there(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/index"
    disk.append_file(path, b"0123")
    calls = record_calls(monkeypatch)
    disk.sync_file(path)
    disk.sync_file(f"{tmp_path}/none")
    assert calls == [f"fdatasync {path}"]


# Directories.


def test_every_new_directory_is_synced_into_its_parent(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)
    disk.make_directory(f"{tmp_path}/a/b/c")
    assert calls == [f"fsync {tmp_path}", f"fsync {tmp_path}/a", f"fsync {tmp_path}/a/b"]
    disk.make_directory(f"{tmp_path}/a/b/c")
    assert len(calls) == 3, "one that exists needs nothing"
    assert disk.exists(f"{tmp_path}/a/b/c") and not disk.exists(f"{tmp_path}/a/x")


def test_a_directory_is_listed_with_kinds_and_sizes(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/file", create=True).append(b"123")
    disk.make_directory(f"{tmp_path}/folder")
    assert sorted(disk.list(str(tmp_path))) == [Entry("file", False, 3), Entry("folder", True, 0)]
    assert disk.list(f"{tmp_path}/nowhere") == []


def test_a_name_that_vanishes_during_the_listing_does_not_hide_the_others(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/file", create=True).append(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert Entry("file", False, 3) in disk.list(str(tmp_path))


def test_renaming_replaces_and_removing_what_is_gone_is_fine(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/old", create=True).append(b"old")
    disk.open(f"{tmp_path}/new", create=True).append(b"new")
    disk.rename(f"{tmp_path}/old", f"{tmp_path}/new")
    assert disk.read_file(f"{tmp_path}/new") == b"old"
    disk.remove(f"{tmp_path}/new")
    disk.remove(f"{tmp_path}/new")
    disk.make_directory(f"{tmp_path}/tree/deep")
    disk.open(f"{tmp_path}/tree/deep/file", create=True)
    disk.remove_tree(f"{tmp_path}/tree")
    disk.remove_tree(f"{tmp_path}/tree")
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_can_have_the_lock(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    program = (
        "import sys\nfrom odradek.disk.real import RealDisk\nfrom odradek.disk.errors import LockedError\n"
        f"try:\n    RealDisk(8).lock({path!r})\nexcept LockedError as error:\n    sys.exit(str(error))"
    )

    def other_process() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    lock = disk.lock(path)
    refused = other_process()
    assert refused.returncode == 1
    assert f"cannot lock {path}: another Odradek process uses this directory; stop it first" in refused.stderr
    with pytest.raises(LockedError):
        disk.lock(path)
    lock.release()
    assert other_process().returncode == 0
    disk.lock(path).release()


# Errors.


def test_a_full_device_is_named_and_says_what_to_do(disk: RealDisk) -> None:
    full = disk.open("/dev/full")
    with pytest.raises(DiskFullError, match="cannot append to /dev/full: no space is left on the device; free"):
        full.append(b"x")
    full.close()


def test_a_used_up_quota_is_a_full_disk_too() -> None:
    assert isinstance(disk_error("append to", "x", OSError(errno.EDQUOT, "quota")), DiskFullError)
    assert not isinstance(disk_error("append to", "x", OSError(errno.EIO, "broken")), DiskFullError)
    assert disk_error("read", "x", OSError("odd")).reason == "odd"


def test_every_error_names_the_file_and_what_was_tried(disk: RealDisk, tmp_path: Path) -> None:
    missing, path = disk.open(f"{tmp_path}/none"), f"{tmp_path}/none"
    (tmp_path / "file").touch()
    below = f"{tmp_path}/file/x"
    attempts: dict[str, Callable[[], object]] = {
        f"cannot open {path}: No such file or directory": lambda: missing.append(b"x"),
        f"cannot create {below}: Not a directory": lambda: disk.open(below, create=True),
        f"cannot read {tmp_path}: Is a directory": lambda: disk.read_file(str(tmp_path)),
        f"cannot write {below}.tmp: Not a directory": lambda: disk.write_atomic(below, b""),
        f"cannot write {below}: Not a directory": lambda: disk.overwrite(below, b""),
        f"cannot append to {below}: Not a directory": lambda: disk.append_file(below, b""),
        f"cannot truncate {below}: Not a directory": lambda: disk.truncate_file(below, 0),
        f"cannot list {tmp_path}/file: Not a directory": lambda: disk.list(f"{tmp_path}/file"),
        f"cannot rename {path}: No such file or directory": lambda: disk.rename(path, f"{path}2"),
        f"cannot remove {below}: Not a directory": lambda: disk.remove(below),
        f"cannot flush directory {path}: No such file or directory": lambda: disk.sync_directory(path),
        f"cannot lock {below}: Not a directory": lambda: disk.lock(below),
        f"cannot make directory {tmp_path}/file: a file of that name exists": lambda: disk.make_directory(
            f"{tmp_path}/file"
        ),
    }
    for message, attempt in attempts.items():
        with pytest.raises(DiskError) as caught:
            attempt()
        assert str(caught.value) == message
    assert disk.read_file(path) is None


def test_a_failed_flush_is_an_error_of_its_own(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (file,) = make_files(disk, tmp_path, 1)
    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(DiskError, match=f"cannot flush {tmp_path}/0: Input/output error"):
        file.sync()
    with pytest.raises(DiskError, match=f"cannot flush {tmp_path}/0: Input/output error"):
        disk.sync_file(file.path)
