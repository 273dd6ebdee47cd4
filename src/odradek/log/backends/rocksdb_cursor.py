"""Places in a RocksDB database that can be given back.

The library's iterators keep their database open and locked for as long as anything names them, be it the frame of an
error that somebody keeps. And damage ends them as the end of the data does: `status` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocksdict import Rdict, RdictIter


class Cursor:
    """A place in the database."""

    __slots__ = ("_iterator",)

    def __init__(self, iterator: RdictIter) -> None:
        self._iterator = iterator

    def seek(self, key: bytes) -> None:
        """Go to this key, or the next one."""
        self._iterator.seek(key)

    def seek_for_prev(self, key: bytes) -> None:
        """Go to this key, or the one before."""
        self._iterator.seek_for_prev(key)

    def next(self) -> None:
        """Go one further."""
        self._iterator.next()

    def valid(self) -> bool:
        """Whether it stands at an entry."""
        return self._iterator.valid()

    def key(self) -> bytes:
        """The key there."""
        key: bytes = self._iterator.key()
        return key

    def value(self) -> bytes:
        """The value there."""
        value: bytes = self._iterator.value()
        return value

    def status(self) -> None:
        """Raise what has ended it, if that was not the end of the data."""
        self._iterator.status()

    def close(self) -> None:
        """Let the database go; it is of no use any more."""
        del self._iterator


def walk(db: Rdict, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
    """The entries from a key on, a step each; raises where damage ends them."""
    key: Any = start  # bytes, in raw mode
    for key, value in db.items(from_key=start):
        yield key, value
    # Damage ends this as the end of the data does: only an iterator tells them apart.
    cursor = Cursor(db.iter())
    try:
        cursor.seek(key)
        while cursor.valid() and cursor.key() <= key:
            cursor.next()
        cursor.status()
    finally:
        cursor.close()
        del db
