"""A channel as a queue: competing readers, each object to one of them, with the leases in the store itself.

    queue = QueueReader(store, "jobs", group="workers", owner="worker-1")
    while leased := queue.take():
        ...
        queue.done(leased)

A lease is an object that only one can create: `!queue/<group>/<object>/<n>`, with its owner and when it runs out. Then
the next number may be created by anybody, and the messages come again: a reader that dies loses nothing, and one that
is slower than its lease shares its messages with another. `.../done` ends it. Readers' clocks must agree to a fraction
of the lease.
"""

from __future__ import annotations

import json
from collections import deque
from typing import NamedTuple
from uuid import uuid4

from odradek.clock import Clock, SystemClock
from odradek.model import topic_name_problem
from odradek.objects import keys
from odradek.objects.channels import load_channel
from odradek.objects.errors import ObjectExistsError, ObjectMissingError
from odradek.objects.fetching import fetch_all
from odradek.objects.late import LateMarks
from odradek.objects.reader import ReadMessage, objects_between
from odradek.objects.slices import read_object
from odradek.objects.stores import ObjectStore

DONE = "done"
LEASE_DIGITS = 5
CANDIDATES_MAX = 1_000  # objects that are looked at in one go
_LOW = "!low"  # sorts before all buckets
_SAVE_MS = 60_000  # how far the group must have come for `!low` to be written again


class Leased(NamedTuple):
    """Messages for one reader, until its lease runs out."""

    object_key: str
    messages: list[ReadMessage]
    attempt: int  # 0 for the first reader, one more for each lease that ran out
    until_ms: int


class QueueReader:
    """One of several readers of a group. For one thread."""

    def __init__(
        self,
        store: ObjectStore,
        channel: str,
        group: str,
        owner: str | None = None,
        lease_ms: int = 30_000,
        clock: Clock | None = None,
        *,
        start_ms: int = 0,
    ) -> None:
        """`start_ms` is where a new group begins; one that was there before goes on where it was."""
        problem = topic_name_problem(group)
        if problem is not None:
            raise ValueError(f"group {group!r}: the rules are those of a topic's name: {problem}")
        if lease_ms < 1:
            raise ValueError(f"a lease must be at least a millisecond long, not {lease_ms}")
        self.spec = load_channel(store, channel)
        self.owner = owner or uuid4().hex
        self._store = store
        self._prefix = keys.queue_prefix(channel, group)
        self._lease_ms = lease_ms
        self._clock = clock or SystemClock()
        self._candidates: deque[tuple[str, int]] = deque()  # key of an object, and the number of the lease to try
        self._until: dict[str, int] = {}  # key of another's lease -> when it runs out
        self._low_ms = self._saved_ms = max(self._load_low(), start_ms)  # all objects before are done, or marked late
        self._late = LateMarks(store, self.spec, self._low_ms)

    def take(self) -> Leased | None:
        """Messages that nobody else has; None when there are none now."""
        for is_fresh in (False, True):
            if is_fresh:
                self._look()
            while self._candidates:
                leased = self._try(*self._candidates.popleft())
                if leased is not None:
                    return leased
        return None

    def done(self, leased: Leased) -> bool:
        """Say that the messages are dealt with; False when another has said so, after the lease had run out."""
        try:
            self._store.put(self._place(leased.object_key) + DONE, self.owner.encode(), only_new=True)
        except ObjectExistsError:
            return self._store.get(self._place(leased.object_key) + DONE) == self.owner.encode()
        return True

    def _try(self, key: str, number: int) -> Leased | None:
        until_ms = self._clock.now_ms() + self._lease_ms
        body = json.dumps({"owner": self.owner, "until": until_ms, "nonce": uuid4().hex}).encode()
        lease = f"{self._place(key)}{number:0{LEASE_DIGITS}d}"
        try:
            self._store.put(lease, body, only_new=True)
        except ObjectExistsError:
            if self._store.get(lease) != body:  # if it is ours, the answer was lost on its way
                return None
        try:
            messages = read_object(self._store.get(key))
        except ObjectMissingError:  # retention was faster
            return None
        parsed = keys.parse_object_key(key)
        publisher = "" if parsed is None else parsed.publisher
        return Leased(key, [ReadMessage(publisher, *message, key) for message in messages], number, until_ms)

    def _look(self) -> None:
        """Find objects that are neither done nor leased, and how far all are done."""
        now_ms = self._clock.now_ms()
        states = self._states(self._prefix, keys.before_slice(self.spec, self._low_ms).partition("/")[2])
        low_ms = keys.slice_start(self.spec, now_ms) - self.spec.grace_ms - self.spec.slice_ms
        looked_at = []
        for info in objects_between(self._store, self.spec, self._low_ms):
            if DONE in states.get(info.key, ()):
                continue
            low_ms = min(low_ms, keys.start_of(info.key))
            looked_at.append(info.key)
            if len(looked_at) >= CANDIDATES_MAX:
                break
        for key in self._late.due(now_ms):
            if keys.start_of(key) >= self._low_ms:
                continue  # found above
            states |= self._states(self._place(key))
            if DONE in states.get(key, ()):
                self._late.done(key)
            else:
                looked_at.append(key)
        self._candidates.extend(self._free(looked_at, states, now_ms))
        self._move_to(min(low_ms, self._late.oldest_ms(low_ms)))

    def _states(self, prefix: str, after: str | None = None) -> dict[str, list[str]]:
        """What is written about objects: key -> the names of its leases, and `done`."""
        states: dict[str, list[str]] = {}
        for info in self._store.list(prefix, after=None if after is None else prefix + after):
            place, _, name = info.key.removeprefix(self._prefix).rpartition("/")
            if place:
                states.setdefault(f"{self.spec.name}/{place}", []).append(name)
        return states

    def _free(self, looked_at: list[str], states: dict[str, list[str]], now_ms: int) -> list[tuple[str, int]]:
        """The objects without a lease that holds, with the number of the next one."""
        last = {key: max(states[key]) for key in looked_at if key in states}
        leases = [self._place(key) + name for key, name in last.items()]
        unknown = [lease for lease in leases if lease not in self._until]
        found = dict(zip(unknown, fetch_all(self._read_until, unknown), strict=True))
        self._until = {lease: self._until.get(lease, found.get(lease, 0)) for lease in leases}
        free = []
        for key in looked_at:
            if key not in last:
                free.append((key, 0))
            elif now_ms >= self._until[self._place(key) + last[key]]:
                free.append((key, int(last[key]) + 1))
        return free

    def _read_until(self, lease: str) -> int:
        try:
            return int(json.loads(self._store.get(lease))["until"])
        except (ObjectMissingError, ValueError, KeyError, TypeError):
            return 0

    def _place(self, key: str) -> str:
        """The folder of what is written about an object."""
        return f"{self._prefix}{key.partition('/')[2]}/"

    def _load_low(self) -> int:
        try:
            return int(json.loads(self._store.get(self._prefix + _LOW))["low"])
        except (ObjectMissingError, ValueError, KeyError, TypeError):
            return 0

    def _move_to(self, low_ms: int) -> None:
        self._low_ms = max(self._low_ms, low_ms)
        if self._low_ms - self._saved_ms >= _SAVE_MS:
            self._store.put(self._prefix + _LOW, json.dumps({"low": self._low_ms}).encode())
            self._saved_ms = self._low_ms
