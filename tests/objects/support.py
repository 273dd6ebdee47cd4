"""A store for tests: in memory, with a clock that a test sets, and with failures at the requests that it names."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Sequence

from odradek.clock import ManualClock
from odradek.objects.channels import create_channel
from odradek.objects.errors import ObjectExistsError, ObjectMissingError, StoreUnavailableError
from odradek.objects.keys import LATE, parse_object_key, publisher_hash
from odradek.objects.putting import Frontier
from odradek.objects.slices import Message, read_object
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import PAGE_KEYS, ObjectInfo, ObjectStore

NOW_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000  # the start of a bucket
PUBLISHER = publisher_hash("tests")
SPEC = ChannelSpec("orders", "id-1")


class TestStore(ObjectStore):
    """Objects in a dict, sorted when they are listed."""

    __test__ = False

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__("test://store")
        self.clock = clock or ManualClock(NOW_MS)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.before_put: Callable[[str], None] = lambda key: None  # may raise: the object is not there then
        self.after_put: Callable[[str], None] = lambda key: None  # may raise: the object is there
        self.got: list[str] = []
        self._lock = threading.Lock()

    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None:
        self.before_put(key)
        with self._lock:
            if only_new and key in self.objects:
                raise ObjectExistsError(f"{key} is there already")
            self.objects[key] = (b"".join(parts), self.clock.now_ms())
        self.after_put(key)

    def _get(self, key: str) -> bytes:
        self.got.append(key)
        try:
            return self.objects[key][0]
        except KeyError:
            raise ObjectMissingError(f"there is no {key}") from None

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._get(key)[start : start + length]

    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]:
        with self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix))
        begin = 0 if after is None else bisect.bisect_right(keys, after)
        for at in range(begin, len(keys), PAGE_KEYS):
            yield [
                ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1]) for key in keys[at : at + PAGE_KEYS]
            ]

    def _folders(self, prefix: str) -> Sequence[str]:
        below = (key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
        return sorted({key.partition("/")[0] for key in below if "/" in key})

    def _delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            self.objects.pop(key, None)
        return 1

    # What tests ask.

    def slice_keys(self) -> list[str]:
        """The keys of all objects that hold records."""
        return sorted(key for key in self.objects if parse_object_key(key) is not None)

    def messages(self) -> list[Message]:
        """All records in all objects, doubles too."""
        return [message for key in self.slice_keys() for message in read_object(self.objects[key][0])]

    def marks(self) -> list[str]:
        """What the marks of late objects point to."""
        return [self.objects[key][0].decode() for key in sorted(self.objects) if f"/{LATE}/" in key]

    def fail_at(self, number: int, *, after: bool) -> None:
        """Have the PUT of this number fail, from 0 on, and all that follow: the store has gone."""
        counted = iter(range(10**9))
        lock = threading.Lock()

        def fail(key: str) -> None:
            with lock:
                if next(counted) >= number:
                    raise StoreUnavailableError(f"PUT {key}: the store is away")

        if after:
            self.after_put = fail
        else:
            self.before_put = fail

    def heal(self) -> None:
        """Answer again."""
        self.before_put = self.after_put = lambda key: None


def message(sequence: int, at_ms: int = 0, value: bytes | None = None) -> Message:
    """A record, so many milliseconds after NOW_MS."""
    return Message(sequence, NOW_MS + at_ms, None, b"value %d" % sequence if value is None else value)


def frontier(store: TestStore, spec: ChannelSpec = SPEC, publisher: str = PUBLISHER) -> Frontier:
    """The frontier of a publisher that starts now."""
    started = Frontier(store, spec, publisher, store.clock.now_ms)
    started.load()
    return started


def with_channel(spec: ChannelSpec = SPEC) -> TestStore:
    """A store with a channel in it."""
    store = TestStore()
    create_channel(store, spec)
    return store
