"""The machine's disk.

Descriptors are a bounded resource: `RealDisk` keeps at most `open_files_max` of them, closes the one that was not used
for longest (by second chance, so that a use costs one assignment), and opens a file again when it is needed. A pinned
file keeps its descriptor: a thread may be inside a call on it, or its name may be gone already.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from odradek.disk.errors import DiskError, LockedError, disk_error
from odradek.disk.interface import Buffer, Entry

_CLOSED = -1
_KEEP_SIZE = 1  # a flag of fallocate
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_LARGE_READ_BYTES = 64 << 10  # from here on the memory is used again
_READ_BUFFER_BYTES = (1 << 20) + (64 << 10)  # what consumers ask of a partition, and a little more
_READ_BUFFERS_MAX = 16


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that reserves blocks and leaves the size alone; `os` has only the one that changes it."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


_fallocate = _find_fallocate()


def sync_descriptor(descriptor: int) -> None:
    """Push a file's bytes to stable storage; on macOS fsync alone stops at the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


@contextmanager
def _opened(path: str, flags: int, action: str) -> Iterator[int]:
    """A descriptor for one use; the system's errors become ours."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise disk_error(action, path, error) from error


def _write_all(descriptor: int, data: Buffer) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class _ReadBuffers:
    """Memory for large reads, used again once nobody has a view of it: new pages cost more than the reading does."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, length: int) -> memoryview:
        """Room for a read; what is in it is left from before."""
        if _LARGE_READ_BYTES <= length <= _READ_BUFFER_BYTES:
            for buffer in self._buffers:
                if _has_no_view(buffer):
                    return memoryview(buffer)[:length]
            if len(self._buffers) < _READ_BUFFERS_MAX:
                self._buffers.append(bytearray(_READ_BUFFER_BYTES))
                return memoryview(self._buffers[-1])[:length]
        return memoryview(bytearray(length))


def _has_no_view(buffer: bytearray) -> bool:
    try:
        buffer.append(0)  # Python refuses to resize what somebody looks at
    except BufferError:
        return False
    buffer.pop()
    return True


class RealFile:
    """A file of the machine."""

    __slots__ = ("_closing", "_descriptor", "_disk", "_pins", "path", "touched")

    def __init__(self, disk: RealDisk, path: str) -> None:
        self.path = path
        self.touched = False  # used since the disk last looked for a descriptor to close
        self._disk = disk
        self._descriptor = _CLOSED
        self._pins = 0
        self._closing = False

    @property
    def pinned(self) -> bool:
        """Whether the descriptor must stay open."""
        return self._pins > 0

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.touched = True
        try:
            written = os.write(descriptor, data)
            if written != len(data):
                _write_all(descriptor, memoryview(data)[written:])
        except OSError as error:
            raise disk_error("append to", self.path, error) from error

    def read(self, length: int, at: int) -> bytes:
        """Read `length` bytes at `at`; fewer only at the end of the file."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.touched = True
        try:
            data = os.pread(descriptor, length, at)
            if len(data) == length or not data:
                return data
            parts = [data]
            missing, at = length - len(data), at + len(data)
            while missing and (data := os.pread(descriptor, missing, at)):
                parts.append(data)
                missing, at = missing - len(data), at + len(data)
            return b"".join(parts)
        except OSError as error:
            raise disk_error("read", self.path, error) from error

    def read_cached(self, length: int, at: int) -> Buffer | None:
        """Read what the page cache holds; None if the disk would have to be asked."""
        if not _RWF_NOWAIT:
            return self.read(length, at)
        descriptor = self.open_descriptor()
        data = self._disk.read_buffers.take(length)
        try:
            read = os.preadv(descriptor, [data], at, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # a file system that cannot tell: read as usual
            return self.read(length, at)
        if read == length:
            return data
        # Short: either the end of the file, or the rest is not in memory.
        return data[:read] if at + read >= self.size() else None

    def size(self) -> int:
        """The file's size in bytes."""
        try:
            return os.fstat(self.open_descriptor()).st_size
        except OSError as error:
            raise disk_error("look at", self.path, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        try:
            os.ftruncate(self.open_descriptor(), size)
        except OSError as error:
            raise disk_error("truncate", self.path, error) from error

    def reserve(self, size: int) -> None:
        """Set blocks aside behind the end of the file, where the file system can."""
        if _fallocate is not None:
            at = self.size()
            _fallocate(self.open_descriptor(), _KEEP_SIZE, at, max(1, size - at))

    def sync(self) -> None:
        """Return when all bytes of the file are on stable storage."""
        try:
            sync_descriptor(self.open_descriptor())
        except OSError as error:
            raise disk_error("flush", self.path, error) from error

    def pin(self) -> None:
        """Keep the descriptor open until `unpin`."""
        self._pins += 1  # first, so that another thread that needs a descriptor does not take this one
        try:
            self.open_descriptor()
        except DiskError:
            self._pins -= 1
            raise

    def unpin(self) -> None:
        """Undo one `pin`."""
        self._pins -= 1
        if self._closing and not self._pins:
            self.close()

    def close(self) -> None:
        """Give the descriptor back now, or with the last `unpin`."""
        self._closing = True
        if not self._pins:
            self._disk.forget(self)
            self.close_descriptor()

    def open_descriptor(self) -> int:
        """The descriptor, opened again if it was closed."""
        self.touched = True
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self.path, self._disk.open_flags)
            except OSError as error:
                raise disk_error("open", self.path, error) from error
            self._closing = False
            self._disk.remember(self)
        return self._descriptor

    def close_descriptor(self) -> None:
        """Close it, however often and from whichever thread it is asked to."""
        with self._disk.descriptors_lock:
            descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor >= 0:
            os.close(descriptor)


class RealLock:
    """An advisory lock on a file; the system drops it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others have the directory. Once is enough."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """The machine's file system, with a bound on open files."""

    def __init__(self, open_files_max: int = 0, *, read_only: bool = False) -> None:
        self.open_flags = (os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND) | os.O_CLOEXEC
        self.open_files_max = open_files_max or _descriptors_for_files()
        self.read_buffers = _ReadBuffers()  # of the thread that made the disk
        self._open: dict[RealFile, None] = {}  # in the order in which they are looked at for closing
        self.descriptors_lock = threading.RLock()  # jobs in other threads open and close files, too
        # Only the thread that made the disk closes descriptors of others: it is the one that uses files unpinned.
        self._owner = threading.get_ident()

    @property
    def open_files(self) -> int:
        """How many descriptors are open now."""
        return len(self._open)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Give a file to append to and read from. With `create`, an existing one is emptied."""
        if create:
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
            except OSError as error:
                raise disk_error("create", path, error) from error
        return RealFile(self, path)

    def remember(self, file: RealFile) -> None:
        """Count a descriptor that was just opened; close another one if there are too many."""
        with self.descriptors_lock:
            self._open[file] = None
            if len(self._open) <= self.open_files_max or threading.get_ident() != self._owner:
                return
            # Each file is looked at twice at most: the first look takes its second chance away.
            for _ in range(2 * len(self._open)):
                if len(self._open) <= self.open_files_max:
                    return
                oldest = next(iter(self._open))
                del self._open[oldest]
                if oldest is file or oldest.touched or oldest.pinned:
                    oldest.touched = False
                    self._open[oldest] = None
                else:
                    oldest.close_descriptor()

    def forget(self, file: RealFile) -> None:
        """Stop counting a file that is being closed."""
        with self.descriptors_lock:
            self._open.pop(file, None)

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None if there is none."""
        try:
            with _opened(path, os.O_RDONLY, "read") as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        except DiskError:
            if os.path.exists(path):
                raise
            return None

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones; or anything, if not `durable`."""
        temporary = f"{path}.tmp"
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "write") as descriptor:
            _write_all(descriptor, data)
            if durable:
                sync_descriptor(descriptor)
        self.rename(temporary, path)
        if durable:
            self.sync_directory(os.path.dirname(path) or ".")

    def append_file(self, path: str, data: bytes) -> None:
        """Add to a small file, or make it, without keeping it open."""
        with _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "append to") as descriptor:
            _write_all(descriptor, data)

    def read_range(self, path: str, length: int, at: int) -> bytes:
        """Some bytes of a small file; fewer at its end, none if there is no such file."""
        try:
            with _opened(path, os.O_RDONLY, "read") as descriptor:
                return os.pread(descriptor, length, at)
        except DiskError:
            if os.path.exists(path):
                raise
            return b""

    def truncate_file(self, path: str, size: int) -> None:
        """Cut a small file; make it if there is none."""
        with _opened(path, os.O_WRONLY | os.O_CREAT, "truncate") as descriptor:
            os.ftruncate(descriptor, size)

    def sync_file(self, path: str) -> None:
        """Return when a file's bytes are on stable storage; fine if there is none."""
        try:
            with _opened(path, os.O_RDONLY, "flush") as descriptor:
                sync_descriptor(descriptor)
        except DiskError:
            if os.path.exists(path):  # else it was removed meanwhile, or never made
                raise

    def overwrite(self, path: str, data: bytes, *, at: int = 0) -> None:
        """Change bytes of a small file without waiting for the disk."""
        with _opened(path, os.O_WRONLY | os.O_CREAT, "write") as descriptor:
            os.pwrite(descriptor, data, at)

    def list(self, path: str) -> list[Entry]:
        """The names in a directory, in no order; none if there is no such directory."""
        entries = []
        try:
            with os.scandir(path) as found:
                for entry in found:
                    with suppress(FileNotFoundError):  # removed while we look, or a link to nowhere
                        directory = entry.is_dir()
                        entries.append(Entry(entry.name, directory, 0 if directory else entry.stat().st_size))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_error("list", path, error) from error
        return entries

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably; fine if it exists."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path) or "."
        self.make_directory(parent)
        try:
            os.mkdir(path)
        except FileExistsError as error:
            if not os.path.isdir(path):
                raise DiskError("make directory", path, "a file of that name exists") from error
        except OSError as error:
            raise disk_error("make directory", path, error) from error
        self.sync_directory(parent)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file of that name."""
        try:
            os.replace(old, new)
        except OSError as error:
            raise disk_error("rename", old, error) from error

    def remove(self, path: str) -> None:
        """Remove a file; fine if there is none."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error("remove", path, error) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it; fine if there is none."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error("remove", path, error) from error

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory are on stable storage."""
        with _opened(path, os.O_RDONLY | os.O_DIRECTORY, "flush directory") as descriptor:
            os.fsync(descriptor)

    def lock(self, path: str) -> RealLock:
        """Take a lock file; LockedError if another process has it."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error("lock", path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise LockedError("lock", path, "another Odradek process uses this directory; stop it first") from error
        return RealLock(descriptor)


def _descriptors_for_files() -> int:
    """Three quarters of what the process may open; sockets get the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(64, soft * 3 // 4)
