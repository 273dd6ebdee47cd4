"""Finds objects that were put so late that a tailing reader has passed their slices: after an outage, mostly.

Each has a mark in `!late`, named by the time at which it was made, whose body is the object's key. A mark is written
before its object, so an object may be missing for a while; it is waited for.
"""

from __future__ import annotations

from odradek.objects import keys
from odradek.objects.errors import ObjectMissingError
from odradek.objects.fetching import fetch_all
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore

WAIT_MS_MAX = 24 * 3_600_000  # for the object of a mark; its publisher may have been away for long


class LateMarks:
    """The marks of a channel from a time on, each looked at once."""

    def __init__(self, store: ObjectStore, spec: ChannelSpec, from_ms: int) -> None:
        self._store = store
        self._spec = spec
        self._from_ms = self._begin_ms = self._behind(from_ms)
        self._due_ms = 0  # when to look again
        self._marks: dict[str, int] = {}  # seen ones at from_ms or later -> when they were made
        self._pending: dict[str, int] = {}  # key of an object that was not read yet -> when its mark was made

    def due(self, now_ms: int) -> list[str]:
        """Keys of late objects that were not read yet; asks the store once in grace_ms."""
        is_due = now_ms >= self._due_ms or now_ms + self._spec.grace_ms < self._due_ms  # the clock was ahead
        return self.look(now_ms) if is_due else []

    def look(self, now_ms: int) -> list[str]:
        """The same, at once."""
        self._from_ms = min(self._from_ms, max(self._behind(now_ms), self._begin_ms))  # if the clock was ahead
        after = keys.before_late(self._spec.name, self._from_ms)
        listed = [info.key for info in self._store.list(keys.late_prefix(self._spec.name), after=after)]
        marks = [mark for mark in listed if mark not in self._marks and keys.late_put_ms(mark) is not None]
        for mark, key in zip(marks, fetch_all(self._key_in, marks), strict=True):
            put_ms = self._marks[mark] = keys.late_put_ms(mark) or 0
            if key is not None:
                self._pending[key] = put_ms
        self._from_ms = max(self._from_ms, self._behind(now_ms))
        self._due_ms = now_ms + self._spec.grace_ms
        self._marks = {mark: put_ms for mark, put_ms in self._marks.items() if put_ms >= self._from_ms}
        self._pending = {key: put_ms for key, put_ms in self._pending.items() if put_ms + WAIT_MS_MAX > now_ms}
        return list(self._pending)

    def hurry(self) -> None:
        """Have the next `due` look at once: there was more than could be read."""
        self._due_ms = 0

    def done(self, key: str) -> None:
        """The object was read, or is of no interest."""
        self._pending.pop(key, None)

    def made_ms(self, key: str) -> int:
        """When the mark was made of an object that was not read yet."""
        return self._pending[key]

    def oldest_ms(self, default: int) -> int:
        """When the oldest mark was made whose object was not read yet."""
        return min(self._pending.values(), default=default)

    def _key_in(self, mark: str) -> str | None:
        try:
            return self._store.get(mark).decode("ascii", "replace")
        except ObjectMissingError:  # retention was faster
            return None

    def _behind(self, time_ms: int) -> int:
        """From where to look after all marks of a time were seen: one may take its time to be written."""
        return max(time_ms - self._spec.grace_ms - keys.MARK_SLACK_MS, 0)
