"""A day in a shop: orders and payments as a shop would send them, with all that goes wrong on the way.

Made from a seed, so that whoever reads the topics can check what came of them: `Day` knows what the right answer is.

- Both topics hold JSON, keyed by the order. Events arrive out of order by up to two minutes.
- Some orders are never paid, and some are paid after half an hour, which is too late to count.
- A few records are malformed.
- At the end come events of the morning that arrive hours late, and one order and one payment of the next day, which
  tell every reader that this day is over.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

ORDERS, PAYMENTS = "orders", "payments"

OPENING = datetime(2026, 5, 4, 8, tzinfo=UTC)
OPEN_HOURS = 6
CITIES = ("Praha", "Brno", "Ostrava", "Plzeň")
ITEMS = (("spool of thread", 390), ("star-shaped bobbin", 1290), ("crossbar", 890), ("needles", 250))
METHODS = ("card", "transfer", "voucher")

PAYMENT_MINUTES_MAX = 30  # a payment later than that does not count
JITTER_SECONDS_MAX = 120.0  # by how much an event is overtaken by others
CHUNK = timedelta(minutes=3)

NEVER_PAID, PAID_TOO_LATE = 0.04, 0.02
MALFORMED = (b"", b"not JSON", b'{"order_id": "o-1", "cents": ', b"[1, 2, 3]", b'"order"', b"\xff\xfe\x00")


class Event(NamedTuple):
    """One record before it is sent; the record's own time will be that of the sending."""

    topic: str
    key: bytes
    value: bytes
    at: datetime


@dataclass
class Day:
    """The events of one day in the order of their arrival, and what is true of them.

    They come in chunks of three minutes, each to be acknowledged before the next is sent: a reader that takes whatever
    is there then never finds one partition far ahead of another, and what it counts as late depends on events alone.
    """

    order_count: int
    seed: int = 1
    chunks: list[list[Event]] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)  # sent when the others have been seen: nobody should count them
    closing: list[Event] = field(default_factory=list)
    malformed: Counter[str] = field(default_factory=Counter)  # by topic
    paid_orders: set[str] = field(default_factory=set)  # what counts
    revenue: Counter[tuple[datetime, str]] = field(default_factory=Counter)  # cents by hour and city

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        arrivals: list[tuple[datetime, Event]] = []
        for number in range(self.order_count):
            at = OPENING + timedelta(hours=OPEN_HOURS) * number / self.order_count
            for event in self._order(chance, number, at):
                arrivals.append((event.at + timedelta(seconds=chance.uniform(0, JITTER_SECONDS_MAX)), event))
        for number, value in enumerate(MALFORMED * 2):
            at = OPENING + timedelta(hours=OPEN_HOURS) * number / (2 * len(MALFORMED))
            topic = (ORDERS, PAYMENTS)[number % 2]
            self.malformed[topic] += 1
            arrivals.append((at, Event(topic, b"broken", value, at)))
        arrivals.sort(key=lambda arrival: arrival[0])
        by_chunk = groupby(arrivals, key=lambda arrival: (arrival[0] - OPENING) // CHUNK)
        self.chunks = [[event for _, event in chunk] for _, chunk in by_chunk]
        self._finish()

    @property
    def event_count(self) -> int:
        """How many events there are without the late ones and the closing ones."""
        return sum(len(chunk) for chunk in self.chunks)

    def _order(self, chance: random.Random, number: int, at: datetime) -> Iterator[Event]:
        order, city = f"o-{number:06}", chance.choice(CITIES)
        item, price = chance.choice(ITEMS)
        quantity = chance.randint(1, 9)
        customer = f"c-{chance.randint(1, 999):03}"
        cents = quantity * price
        yield _order_event(order, at, customer=customer, city=city, item=item, quantity=quantity, cents=cents)
        fate = chance.random()
        if fate < NEVER_PAID:
            return
        minutes = chance.uniform(0, PAYMENT_MINUTES_MAX - 1)
        if fate < NEVER_PAID + PAID_TOO_LATE:
            minutes += PAYMENT_MINUTES_MAX + 5
        else:
            self.paid_orders.add(order)
            self.revenue[at.replace(minute=0, second=0, microsecond=0), city] += cents
        yield _payment_event(order, at + timedelta(minutes=minutes), chance.choice(METHODS), cents)

    def _finish(self) -> None:
        for number in range(10):
            order, at = f"late-{number}", OPENING + timedelta(minutes=5 * number)
            self.late += [
                _order_event(order, at, customer="c-000", city=CITIES[0], item="crossbar", quantity=1, cents=890),
                _payment_event(order, at + timedelta(minutes=1), "card", 890),
            ]
        tomorrow = OPENING + timedelta(days=1)
        self.closing = [
            _order_event("open", tomorrow, customer="c-000", city=CITIES[0], item="crossbar", quantity=1, cents=890),
            _payment_event("of no order", tomorrow, "card", 890),
        ]


def _order_event(order: str, at: datetime, **fields: str | int) -> Event:
    return _event(ORDERS, order, at, {"order_id": order, **fields, "ordered_at": at.isoformat()})


def _payment_event(order: str, at: datetime, method: str, cents: int) -> Event:
    return _event(PAYMENTS, order, at, {"order_id": order, "method": method, "cents": cents, "paid_at": at.isoformat()})


def _event(topic: str, key: str, at: datetime, content: dict[str, str | int]) -> Event:
    return Event(topic, key.encode(), json.dumps(content, ensure_ascii=False).encode(), at)
