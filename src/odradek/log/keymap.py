"""The newest offset of each key, in bounded memory: what compaction asks before it keeps a record."""

from __future__ import annotations

from hashlib import blake2b

from odradek.model import Offset

ENTRY_BYTES = 200  # what one entry costs in memory, measured: digest, number and a place in the dict
_DIGEST_BYTES = 16  # two keys of a log share one with a chance of 10**-20 at a billion keys


class KeyMap:
    """Digest of a key -> the last offset seen with it."""

    def __init__(self, bytes_max: int) -> None:
        self.entries_max = max(1, bytes_max // ENTRY_BYTES)
        self._offsets: dict[bytes, Offset] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, keys: int) -> bool:
        """Whether so many more keys fit, if all of them are new. An empty map takes any number."""
        return not self._offsets or len(self._offsets) + keys <= self.entries_max

    def put(self, key: bytes, offset: Offset) -> None:
        """Remember a key's offset; offsets come in their order."""
        self._offsets[blake2b(key, digest_size=_DIGEST_BYTES).digest()] = offset

    def is_newest(self, key: bytes, offset: Offset) -> bool:
        """Whether no later record with this key is known."""
        return offset >= self._offsets.get(blake2b(key, digest_size=_DIGEST_BYTES).digest(), -1)
