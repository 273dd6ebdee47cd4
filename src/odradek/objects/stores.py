"""A prefix store by URL: S3, Google Cloud Storage, Azure, a local directory, or memory.

    store = open_store("s3://bucket/path")
    store.put("orders/1", b"...", only_new=True)

All calls are synchronous and may come from any thread; every request is counted, since requests are what a store
bills. What a store cannot do is a StoreError that says what to do about it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from odradek.objects.errors import StoreURLError

PAGE_KEYS = 1_000  # keys in one answer to a list request, and in one request to delete
SCHEMES = ("s3", "gs", "az", "file", "memory")


class ObjectInfo(NamedTuple):
    """What a listing says about an object."""

    key: str
    size_bytes: int
    modified_ms: int


@dataclass
class Requests:
    """How many requests were made, and the bytes of objects in them."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class ObjectStore(ABC):
    """One store, or the part of it below a prefix; keys are relative to its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests = Requests()
        self._counting = threading.Lock()

    def put(self, key: str, data: bytes | Sequence[bytes], *, only_new: bool = False) -> None:
        """Write an object, whole or not at all; with only_new it is an ObjectExistsError if it is there already."""
        parts = [data] if isinstance(data, bytes) else data
        self._count(puts=1, sent_bytes=sum(map(len, parts)))
        self._put(key, parts, only_new)

    def get(self, key: str) -> bytes:
        """The bytes of an object; ObjectMissingError."""
        self._count(gets=1)
        data = self._get(key)
        self._count(received_bytes=len(data))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of an object; fewer when it ends before, and none behind its end."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of bytes cannot be negative: {start}, {length}")
        if length == 0:
            return b""
        self._count(gets=1)
        data = self._get_range(key, start, length)
        self._count(received_bytes=len(data))
        return data

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """All objects below a prefix (a folder: `orders` does not mean `orders2`), sorted by key.

        `after` is a whole key: only greater ones come. The store is asked page by page as the iterator is read.
        """
        pages = 0
        for page in self._pages(folder(prefix), after):
            pages += 1
            self._count(lists=1)
            yield from page
        if not pages:
            self._count(lists=1)

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly below a prefix, sorted."""
        names = self._folders(folder(prefix))
        self._count(lists=1 + len(names) // PAGE_KEYS)
        return names

    def delete(self, keys: Iterable[str]) -> int:
        """Delete objects, and say how many; one that is gone already is no error."""
        remaining = iter(keys)
        count = 0
        while batch := list_of(islice(remaining, PAGE_KEYS)):
            self._count(deletes=self._delete(batch))
            count += len(batch)
        return count

    @abstractmethod
    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None: ...

    @abstractmethod
    def _get(self, key: str) -> bytes: ...

    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> bytes: ...

    @abstractmethod
    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]: ...

    @abstractmethod
    def _folders(self, prefix: str) -> Sequence[str]: ...

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> int:
        """Delete at most PAGE_KEYS objects; return the number of requests."""

    def _count(self, **more: int) -> None:
        with self._counting:
            for name, number in more.items():
                setattr(self.requests, name, getattr(self.requests, name) + number)


def list_of(items: Iterable[str]) -> Sequence[str]:
    """Collect, in a class whose own `list` is a method."""
    return list(items)


def folder(prefix: str) -> str:
    """A prefix with the slash behind it that makes it a folder; the store itself has none."""
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


def open_store(url: str, options: Mapping[str, str] | None = None, *, timeout_ms: int = 10_000) -> ObjectStore:
    """Open a store by its URL; nothing is asked of it yet.

    `s3://bucket/path`, `gs://bucket/path`, `az://container/path`, `file:///directory`, `memory://name` (one for all of
    this process). Who we are and where the store is comes from the usual environment (AWS_ACCESS_KEY_ID, AWS_REGION,
    AWS_ENDPOINT, ...) or from `options` by the names that obstore gives them (`aws_endpoint`, ...).
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise StoreURLError(f"{url!r} is not the URL of a store: it must begin with one of {known}")
    if scheme == "file":
        from odradek.objects.stores_local import LocalStore  # noqa: PLC0415 - only what the URL asks for

        return LocalStore(url, rest)
    # obstore takes 10 ms to import, and it starts threads at the first request, which must come after a fork.
    from odradek.objects.stores_remote import MemoryStore, RemoteStore  # noqa: PLC0415

    if scheme == "memory":
        return MemoryStore(url)
    return RemoteStore(url, options or {}, timeout_ms)
