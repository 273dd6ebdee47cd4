"""A store in a local directory: an object is a file, and it is on the disk when `put` returns.

Written here and not by obstore, which neither flushes a file nor lists a directory in order and page by page. An
object is first written aside, then linked (only if new) or renamed into its place, so nobody sees a part of one.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

from odradek.objects.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreUnavailableError,
    StoreURLError,
)
from odradek.objects.stores import PAGE_KEYS, ObjectInfo, ObjectStore

ASIDE = "#writing"  # a name that no key has; what a killed writer left there goes after an hour
ASIDE_SECONDS_MAX = 3_600
_TRIES = 100  # a folder may go between the making of it and the writing into it, when its last object is deleted


class LocalStore(ObjectStore):
    """Objects as files below a directory."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(url)
        if not path.startswith("/"):
            raise StoreURLError(f"{url!r} needs an absolute path, with three slashes: file:///directory")
        self._root = Path(unquote(path))
        self._is_made = False
        if self._root.exists() and not self._root.is_dir():
            raise StoreURLError(f"{url}: this is a file, and no directory")

    def _make(self) -> None:
        """Make the directory, before the first object is put into it: who only reads changes nothing."""
        try:
            self._root.joinpath(ASIDE).mkdir(parents=True, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise StoreURLError(f"{self.url}: the directory cannot be made: {error.strerror}") from None
        self._is_made = True

    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None:
        path = self._path(key)
        if not self._is_made:
            self._make()
        aside = self._root / ASIDE / uuid4().hex
        with self._explained("PUT", key):
            try:
                with aside.open("wb", buffering=0) as file:
                    for part in parts:
                        _write_all(file.fileno(), part)
                    os.fsync(file.fileno())
                self._place(aside, path, only_new)
            finally:
                aside.unlink(missing_ok=True)

    def _place(self, aside: Path, path: Path, only_new: bool) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._make_folder(path.parent)
                if only_new:
                    path.hardlink_to(aside)
                else:
                    aside.replace(path)
                _sync_folder(path.parent)
            except FileExistsError:
                _sync_folder(path.parent)  # whoever made it may have ended before that, and it counts as stored now
                raise
            except FileNotFoundError:
                if not left:
                    raise
            else:
                return

    def _get(self, key: str) -> bytes:
        with self._explained("GET", key):
            return self._path(key).read_bytes()

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        with self._explained("GET", key), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]:
        page: list[ObjectInfo] = []
        with self._explained("LIST", prefix):
            for info in self._walk(prefix, after or ""):
                page.append(info)
                if len(page) == PAGE_KEYS:
                    yield page
                    page = []
        if page:
            yield page

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        for name in self._names(prefix):
            key = prefix + name
            if name.endswith("/"):
                # All keys in a folder begin with its name: it may be passed over when even the last is not greater.
                if key > after or after.startswith(key):
                    yield from self._walk(key, after)
            elif key > after:
                with suppress(FileNotFoundError):  # deleted since
                    found = self._path(key).stat()
                    yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def _folders(self, prefix: str) -> Sequence[str]:
        with self._explained("LIST", prefix):
            return sorted(name[:-1] for name in self._names(prefix) if name.endswith("/"))

    def _names(self, prefix: str) -> list[str]:
        """What lies in a folder, in the order of the keys: a folder's name ends with a slash, and sorts with it."""
        try:
            with os.scandir(self._path(prefix)) as entries:
                return sorted(
                    f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if entry.name != ASIDE
                )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _delete(self, keys: Sequence[str]) -> int:
        parents = set()
        for key in keys:
            path = self._path(key)
            with self._explained("DELETE", key):
                path.unlink(missing_ok=True)
            parents.add(path.parent)
        for parent in parents:
            self._prune(parent)
        return len(keys)

    def _prune(self, folder: Path) -> None:
        """Remove a folder that has become empty, and those above it."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        self._make_folder(path.parent)
        with suppress(FileExistsError):
            path.mkdir()
            _sync_folder(path.parent)

    def _path(self, key: str) -> Path:
        pieces = key.split("/")
        if key.startswith("/") or "\0" in key or any(piece in (".", "..", ASIDE) for piece in pieces):
            raise ValueError(f"{key!r} cannot be the key of an object in a directory")
        return self._root.joinpath(*pieces)

    def _sweep(self) -> None:
        oldest = time.time() - ASIDE_SECONDS_MAX
        with os.scandir(self._root / ASIDE) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if stat.S_ISREG(entry.stat().st_mode) and entry.stat().st_mtime < oldest:
                        Path(entry.path).unlink()

    @contextmanager
    def _explained(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise ObjectExistsError(f"{self.url}: {key} is there already") from None
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            if what == "GET":
                raise ObjectMissingError(f"{self.url}: there is no object {key}") from None
            raise StoreUnavailableError(f"{self.url}: {what} {key}: the directory has gone; make it again") from None
        except PermissionError as error:
            raise StoreError(
                f"{self.url}: {what} {key}: {error.strerror}; give this user the right to read and write there"
            ) from None
        except OSError as error:
            advice = "make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "look at the disk"
            raise StoreUnavailableError(f"{self.url}: {what} {key}: {error.strerror}; {advice}") from None


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
