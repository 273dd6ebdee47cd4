"""A disk in memory that forgets and fails on purpose.

It keeps, beside what a process sees, what stable storage would hold: the bytes of the last `sync` of each file and the
names of the last `sync_directory` of each directory. `crash` throws away the rest, or keeps an arbitrary part of it,
down to single sectors, as a real disk may. `capacity_bytes` makes it full; `fail_next` makes one call fail.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

from odradek.disk.errors import DiskError, LockedError, disk_error
from odradek.disk.interface import Buffer, Entry

_SECTOR_BYTES = 512


class _FileNode:
    """A file: what a process sees, what is durable, and the changes in between."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (position, bytes), or (size, None) for a truncation

    def write(self, at: int, data: bytes) -> None:
        _write(self.content, at, data)
        self.pending.append((at, data))

    def truncate(self, size: int) -> None:
        del self.content[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        """Fall back to what is durable, and keep some of the changes since."""
        content = bytearray(self.durable)
        mode = chance.choice(("none", "all", "prefix", "sectors"))
        keep = chance.randint(0, len(self.pending)) if mode == "prefix" else len(self.pending)
        for number, (at, data) in enumerate([] if mode == "none" else self.pending[: keep + 1]):
            if data is None:
                if number < keep and (mode != "sectors" or chance.random() < 0.5):
                    del content[at:]
            elif mode == "sectors":
                _write_some_sectors(content, at, data, chance)
            elif number < keep:
                _write(content, at, data)
            else:  # the write that the crash met halfway
                _write(content, at, data[: chance.randint(0, len(data))])
        self.content = content
        self.sync()


def _write(content: bytearray, at: int, data: bytes) -> None:
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


def _write_some_sectors(content: bytearray, at: int, data: bytes, chance: random.Random) -> None:
    start = 0
    while start < len(data):
        end = min(len(data), start + _SECTOR_BYTES - (at + start) % _SECTOR_BYTES)
        if chance.random() < 0.5:
            _write(content, at + start, data[start:end])
        start = end


class _DirectoryNode:
    """A directory: the names a process sees, the durable ones, and the changes in between, in order."""

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[Callable[[dict[str, _Node]], None]] = []

    def change(self, change: Callable[[dict[str, _Node]], None]) -> None:
        change(self.entries)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def crash(self, chance: random.Random) -> None:
        """Fall back to the durable names plus a prefix of the changes: file systems journal them in order."""
        entries = dict(self.durable)
        for change in self.pending[: chance.randint(0, len(self.pending))]:
            change(entries)
        self.entries = entries
        self.sync()
        for node in entries.values():
            node.crash(chance)


_Node = _FileNode | _DirectoryNode


class MemoryFile:
    """A handle on a file of a `MemoryDisk`; dead after a crash, like its process."""

    def __init__(self, disk: MemoryDisk, path: str, node: _FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._life = disk.life

    def _check(self, action: str) -> None:
        if self._life != self._disk.life:
            raise DiskError(action, self.path, "this handle belongs to a process that crashed")
        self._disk.maybe_fail(action, self.path)

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or the part that fits."""
        self._check("append to")
        room = self._disk.room()
        at = len(self._node.content)
        self._node.write(at, bytes(data[:room]))
        if room < len(data):
            raise disk_error("append to", self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def read(self, length: int, at: int) -> bytes:
        """Read `length` bytes at `at`; fewer only at the end of the file."""
        self._check("read")
        return bytes(self._node.content[at : at + length])

    def read_cached(self, length: int, at: int) -> Buffer | None:
        """The same as `read`: all is in memory."""
        return self.read(length, at)

    def size(self) -> int:
        """The file's size in bytes."""
        self._check("look at")
        return len(self._node.content)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._check("truncate")
        self._node.truncate(size)

    def reserve(self, size: int) -> None:
        """Memory needs no blocks."""

    def sync(self) -> None:
        """Make the file's bytes survive a crash."""
        self._check("flush")
        self._node.sync()

    def pin(self) -> None:
        """Nothing to keep open: the handle holds the file itself."""

    def unpin(self) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing to give back."""


class MemoryLock:
    """A lock on a path of a `MemoryDisk`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        """Let others have the directory."""
        self._held.discard(self._path)


class MemoryDisk:
    """A file system in memory, with a durable image beside it."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.life = 0  # grows with each crash
        self._root = _DirectoryNode()
        self._failures: list[tuple[str, str, int]] = []
        self._locks: set[str] = set()

    def crash(self, chance: random.Random) -> None:
        """Lose what was not synced, or an arbitrary part of it; open handles are dead from now on."""
        self.life += 1
        self._locks.clear()
        self._failures.clear()
        self._root.crash(chance)

    def fail_next(self, action: str, code: int, *, ending: str = "") -> None:
        """Make the next call of this kind (`append to`, `flush`, ...) fail, on a path with this ending."""
        self._failures.append((action, ending, code))

    def maybe_fail(self, action: str, path: str) -> None:
        """Raise the failure that was ordered for this call, once."""
        for failure in self._failures:
            if failure[0] == action and path.endswith(failure[1]):
                self._failures.remove(failure)
                raise disk_error(action, path, OSError(failure[2], os.strerror(failure[2])))

    def room(self) -> int:
        """How many bytes still fit."""
        if self.capacity_bytes is None:
            return 1 << 62
        return max(0, self.capacity_bytes - _content_bytes(self._root))

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Give a file to append to and read from. With `create`, an existing one is emptied."""
        self.maybe_fail("create" if create else "open", path)
        directory, name = self._parent(path)
        if create:
            fresh = _FileNode()
            directory.change(lambda entries: entries.__setitem__(name, fresh))
        node = directory.entries.get(name)
        if not isinstance(node, _FileNode):
            raise disk_error("open", path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        return MemoryFile(self, path, node)

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None if there is none."""
        node = self._find(path)
        return bytes(node.content) if isinstance(node, _FileNode) else None

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a small file durably."""
        self.maybe_fail("write", path)
        temporary = self.open(f"{path}.tmp", create=True)
        temporary.append(data)
        if durable:
            temporary.sync()
        self.rename(f"{path}.tmp", path)
        if durable:
            self.sync_directory(path.rpartition("/")[0])

    def append_file(self, path: str, data: bytes) -> None:
        """Add to a small file, or make it."""
        self.open(path, create=not self.exists(path)).append(data)

    def read_range(self, path: str, length: int, at: int) -> bytes:
        """Some bytes of a small file; none if there is no such file."""
        return (self.read_file(path) or b"")[at : at + length]

    def truncate_file(self, path: str, size: int) -> None:
        """Cut a small file; make it if there is none."""
        self.open(path, create=not self.exists(path)).truncate(size)

    def sync_file(self, path: str) -> None:
        """Make a file's bytes survive a crash; fine if there is none."""
        if self.exists(path):
            self.open(path).sync()

    def overwrite(self, path: str, data: bytes, *, at: int = 0) -> None:
        """Change bytes of a small file without waiting for the disk."""
        self.maybe_fail("write", path)
        directory, name = self._parent(path)
        if name not in directory.entries:
            self.open(path, create=True)
        node = directory.entries[name]
        if isinstance(node, _FileNode):
            if at + len(data) - len(node.content) > self.room():
                raise disk_error("write", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            node.write(at, data)

    def list(self, path: str) -> list[Entry]:
        """The names in a directory; none if there is no such directory."""
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            return []
        return [
            Entry(
                name,
                isinstance(child, _DirectoryNode),
                len(child.content) if isinstance(child, _FileNode) else 0,
            )
            for name, child in node.entries.items()
        ]

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return self._find(path) is not None

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably."""
        node = self._root
        for name in _names(path):
            if name not in node.entries:
                fresh = _DirectoryNode()
                node.change(lambda entries, name=name, fresh=fresh: entries.__setitem__(name, fresh))  # type: ignore[misc]
                node.sync()
            child = node.entries[name]
            if not isinstance(child, _DirectoryNode):
                raise DiskError("make directory", path, "a file of that name exists")
            node = child

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name in the same directory."""
        self.maybe_fail("rename", old)
        directory, name = self._parent(old)
        other, new_name = self._parent(new)
        if other is not directory or name not in directory.entries:
            raise disk_error("rename", old, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        node = directory.entries[name]

        def change(entries: dict[str, _Node]) -> None:
            entries.pop(name, None)
            entries[new_name] = node

        directory.change(change)

    def remove(self, path: str) -> None:
        """Remove a file; fine if there is none."""
        self.maybe_fail("remove", path)
        directory, name = self._parent(path)
        if name in directory.entries:

            def change(entries: dict[str, _Node]) -> None:
                entries.pop(name, None)

            directory.change(change)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it; fine if there is none."""
        self.remove(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory survive a crash."""
        self.maybe_fail("flush directory", path)
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            raise disk_error("flush directory", path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        node.sync()

    def lock(self, path: str) -> MemoryLock:
        """Take a lock file; LockedError if it is taken."""
        if path in self._locks:
            raise LockedError("lock", path, "another Odradek process uses this directory; stop it first")
        return MemoryLock(self._locks, path)

    def _parent(self, path: str) -> tuple[_DirectoryNode, str]:
        *directories, name = _names(path)
        node = self._find("/".join(directories))
        if not isinstance(node, _DirectoryNode):
            raise disk_error("open", path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        return node, name

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _names(path):
            if not isinstance(node, _DirectoryNode) or name not in node.entries:
                return None
            node = node.entries[name]
        return node


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _content_bytes(node: _Node) -> int:
    if isinstance(node, _FileNode):
        return len(node.content)
    return sum(_content_bytes(child) for child in node.entries.values())
