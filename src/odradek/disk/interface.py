"""What the log asks of a disk: a few verbs on files and directories, with durability spelled out.

Nothing is durable until it is synced: a file's bytes by `File.sync`, a name (creation, rename, removal) by
`Disk.sync_directory`. Whoever acknowledges a record must have done both.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int  # 0 for a directory


class File(Protocol):
    """A file that grows at its end. Its descriptor may be closed and opened again behind the scenes."""

    path: str

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end; after an error the file may hold a part of it."""

    def read(self, length: int, at: int) -> bytes:
        """Read `length` bytes at `at`; fewer only at the end of the file. May wait for the disk."""

    def read_cached(self, length: int, at: int) -> Buffer | None:
        """Read like `read`, but only what is in memory already: None if it would have to wait."""

    def size(self) -> int:
        """The file's size in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def reserve(self, size: int) -> None:
        """Set blocks aside for a file of this size, so that appends find them ready; `truncate` gives back the rest.

        Only a hint: the file's size stays as it is, and a disk that cannot do it does nothing.
        """

    def sync(self) -> None:
        """Return when all bytes of the file are on stable storage. May be called from another thread."""

    def pin(self) -> None:
        """Keep the descriptor open (a thread uses it, or the name is gone) until `unpin`."""

    def unpin(self) -> None:
        """Undo one `pin`."""

    def close(self) -> None:
        """Give the descriptor back now, or with the last `unpin`."""


class Lock(Protocol):
    """A directory that belongs to this process."""

    def release(self) -> None:
        """Let others have the directory."""


class Disk(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Give a file to append to and read from. With `create`, an existing one is emptied."""

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None if there is none."""

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a small file: after a crash it holds the old bytes or the new ones; or anything, if not `durable`."""

    def append_file(self, path: str, data: bytes) -> None:
        """Add to a small file, or make it, without keeping it open."""

    def read_range(self, path: str, length: int, at: int) -> bytes:
        """Some bytes of a small file; fewer at its end, none if there is no such file."""

    def truncate_file(self, path: str, size: int) -> None:
        """Cut a small file; make it if there is none."""

    def sync_file(self, path: str) -> None:
        """Return when a file's bytes are on stable storage; fine if there is none."""

    def overwrite(self, path: str, data: bytes, *, at: int = 0) -> None:
        """Change bytes of a small file without waiting for the disk; after a crash anything may be there."""

    def list(self, path: str) -> list[Entry]:
        """The names in a directory, in no order; none if there is no such directory."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably; fine if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file; fine if there is none."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it; fine if there is none."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory are on stable storage."""

    def lock(self, path: str) -> Lock:
        """Take a lock file; LockedError if another process has it."""
