"""Puts the objects of a `fifo` channel into the order of their sequences before they are given out."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from odradek.objects import keys
from odradek.objects.slices import Message

Read = tuple[str, list[Message]]  # an object's key, and what it holds


@dataclass(slots=True)
class _Publisher:
    expected: int | None = None  # the sequence that comes next; None: whichever comes first
    waiting: list[tuple[int, str, list[Message]]] = field(default_factory=list)  # a heap, by the first sequence
    gap_since_ms: int | None = None


class InOrder:
    """Holds back what comes before its turn; a gap that is not filled within the grace is no longer waited for."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._publishers: dict[str, _Publisher] = {}

    def may_lack_one_before(self, fresh: list[str]) -> bool:
        """Whether something is held back, or comes first of its publisher: one before it may have come late."""
        return any(publisher.waiting for publisher in self._publishers.values()) or any(
            (parsed := keys.parse_object_key(key)) is not None and parsed.publisher not in self._publishers
            for key in fresh
        )

    def oldest_ms(self, default: int) -> int:
        """When the slice of the oldest object begins that is held back."""
        return min(
            (keys.start_of(one[1]) for each in self._publishers.values() for one in each.waiting), default=default
        )

    def release(self, objects: list[Read], now_ms: int) -> list[Read]:
        """Take in what was read, and give out what has its turn."""
        for key, messages in objects:
            parsed = keys.parse_object_key(key)
            name = "" if parsed is None else parsed.publisher
            publisher = self._publishers.setdefault(name, _Publisher())
            heapq.heappush(publisher.waiting, (messages[0].sequence, key, messages))
        released = [self._release(publisher, now_ms) for publisher in self._publishers.values()]
        return list(heapq.merge(*released, key=lambda one: keys.start_of(one[0])))

    def _release(self, publisher: _Publisher, now_ms: int) -> list[Read]:
        released: list[Read] = []
        while publisher.waiting:
            first, key, messages = publisher.waiting[0]
            if publisher.expected is not None and first > publisher.expected:
                if publisher.gap_since_ms is None:
                    publisher.gap_since_ms = now_ms
                if now_ms - publisher.gap_since_ms < self._grace_ms:
                    break
            heapq.heappop(publisher.waiting)
            publisher.gap_since_ms = None
            publisher.expected = max(publisher.expected or 0, messages[-1].sequence + 1)
            released.append((key, messages))
        return released
