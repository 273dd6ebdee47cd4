"""What goes wrong with an object store, in words for the person who has to act on it.

Everything that this package raises on account of a store is a StoreError. A wrong argument is a ValueError.
"""

from __future__ import annotations


class StoreError(Exception):
    """A request to an object store did not succeed; the text says which, why, and what to do."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or not in time: the same request may succeed later."""


class ObjectExistsError(StoreError):
    """An object that was to be created is there already."""


class ObjectMissingError(StoreError):
    """There is no object of this name."""


class ChannelMissingError(StoreError):
    """The store has no channel of this name."""


class StoreURLError(StoreError, ValueError):
    """A store cannot be opened: its URL or an option is wrong."""


class DamagedObjectError(StoreError):
    """The bytes of an object are not what was written."""


class BufferFullError(StoreError):
    """A writer holds as many unsent bytes as it may: wait for the futures that it gave out, then go on."""
