"""The loads of `odradek bench`: producing as fast as it goes, consuming what is there, a steady rate for latencies."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter  # uvloop's own time is kept to the millisecond

from odradek.cli.consume import came_early
from odradek.cli.measure import Histogram, Meter
from odradek.client.accumulator import DeliveryFuture
from odradek.client.client import Client
from odradek.client.consumer import Consumer
from odradek.client.errors import BufferFullError, TimedOutError
from odradek.client.producer import Acks, Producer
from odradek.model import TopicPartition
from odradek.records.record import NewRecord

BUFFER_BYTES = 8 * 2**20
SAMPLE_EVERY = 100  # records, of which one is timed
POLL_RECORDS = 2_000
POLL_MS = 500
STEP_SECONDS = 0.001
DELIVERY_SECONDS_MAX = 10.0
VARIANTS_MAX = 64  # different payloads
_PAYLOADS_BYTES = 2**20
_STAMP = struct.Struct(">Qd")  # which run it was, and when the record was sent
STAMP_BYTES = _STAMP.size
_WORDS = (
    "offset", "record", "broker", "stream", "topic", "segment", "leader", "commit", "batch", "flush", "index", "epoch",
    "replica", "thread", "spool", "bobbin", "star", "stair", "lobby", "corridor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """How much of what is sent."""

    topic: str
    record_bytes: int
    count: int | None
    seconds: float | None
    acks: Acks
    codec: str
    batch_bytes: int


async def together(work: Iterable[Awaitable[None]]) -> None:
    """Do all at once; the first error ends the others and is raised."""

    async def one(item: Awaitable[None]) -> None:
        await item

    try:
        async with asyncio.TaskGroup() as group:
            for item in work:
                group.create_task(one(item))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def payloads(record_bytes: int, seed: int = 0) -> list[bytes]:
    """Different values that compress about as well as text with numbers does."""
    chance = random.Random(seed)
    word_count = record_bytes // 8 + 1  # a word, a number and a space have 8 bytes at least
    return [
        " ".join(f"{word}={chance.randrange(10**6)}" for word in chance.choices(_WORDS, k=word_count))
        .ljust(record_bytes)[:record_bytes]
        .encode()
        for _ in range(max(2, min(VARIANTS_MAX, _PAYLOADS_BYTES // (record_bytes + 1))))
    ]


class _Budget:
    """How many records may still be sent, by all connections together."""

    def __init__(self, load: Load, started_at: float) -> None:
        self._left = load.count
        self._ends_at = None if load.seconds is None else started_at + load.seconds

    def take(self) -> bool:
        """Whether one more may be sent."""
        if self._ends_at is not None and perf_counter() >= self._ends_at:
            return False
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0


async def produce(clients: Sequence[Client], load: Load, meter: Meter, timed: str | None = "acknowledged") -> None:
    """Send as fast as it goes; one record in a hundred is timed, if the name of that is given."""
    producers = [
        client.producer(acks=load.acks, codec=load.codec, batch_bytes=load.batch_bytes, buffer_bytes=BUFFER_BYTES)
        for client in clients
    ]
    values = payloads(load.record_bytes)
    try:
        for producer in producers:
            await producer.start()
            await producer.send(
                load.topic, values[0]
            )  # opens the connections, and shows what is wrong before it starts
        meter.started_at = perf_counter()
        budget = _Budget(load, meter.started_at)
        histogram = None if timed is None else meter.histogram(timed)
        await together(_send_all(producer, load.topic, values, budget, meter, histogram) for producer in producers)
        meter.stopped_at = perf_counter()
    finally:
        await asyncio.gather(*(producer.close() for producer in producers))


async def _send_all(
    producer: Producer, topic: str, values: list[bytes], budget: _Budget, meter: Meter, histogram: Histogram | None
) -> None:
    records = [NewRecord(value) for value in values]
    size_bytes = len(values[0])

    def stream() -> Iterator[NewRecord]:
        number = 0
        while budget.take():
            meter.records += 1
            meter.size_bytes += size_bytes
            number += 1
            if histogram is not None and number % SAMPLE_EVERY == 0:
                try:
                    future = producer.send_soon(topic, values[number % len(values)])
                except BufferFullError:
                    pass
                else:
                    future.add_done_callback(partial(_time, histogram, perf_counter()))
                    continue
            yield records[number % len(records)]

    await producer.send_many(topic, stream())
    await producer.flush()


def _time(histogram: Histogram, sent_at: float, future: DeliveryFuture) -> None:
    if not future.cancelled() and future.exception() is None:
        histogram.add(perf_counter() - sent_at)


async def consume(
    clients: Sequence[Client], partitions: Sequence[TopicPartition], count: int | None, meter: Meter
) -> None:
    """Read what is there, up to a number; each connection has a share of the partitions. Every poll is timed."""
    shares = [share for share in (partitions[at :: len(clients)] for at in range(len(clients))) if share]
    meter.started_at = perf_counter()
    await together(_read_all(client, share, count, meter) for client, share in zip(clients, shares, strict=False))
    meter.stopped_at = perf_counter()


async def _read_all(client: Client, share: Sequence[TopicPartition], count: int | None, meter: Meter) -> None:
    histogram = meter.histogram("poll")
    async with client.consumer(list(share), follow=False) as consumer:
        while count is None or meter.records < count:
            asked_at = perf_counter()
            records = await consumer.poll(POLL_RECORDS, POLL_MS)
            took = perf_counter() - asked_at
            if not records and came_early(took, POLL_MS):
                return
            histogram.add(took)
            meter.records += len(records)
            meter.size_bytes += sum([len(record.value or b"") + len(record.key or b"") for record in records])


async def steady(clients: Sequence[Client], load: Load, rate: float, meter: Meter) -> None:
    """Send at a steady rate, whatever the broker does, and time each record to its acknowledgement and delivery."""
    acknowledged, delivered = meter.histogram("acknowledged"), meter.histogram("delivered")
    producers = [client.producer(acks=load.acks, codec=load.codec, batch_bytes=load.batch_bytes) for client in clients]
    values = payloads(load.record_bytes - STAMP_BYTES)
    try:
        for producer in producers:
            await producer.start()
            await producer.send(load.topic, bytes(STAMP_BYTES) + values[0])
        async with clients[0].consumer([load.topic], start="end") as consumer:
            run = random.getrandbits(64)
            reading = asyncio.get_running_loop().create_task(_receive(consumer, run, delivered))
            try:
                meter.started_at = perf_counter()
                await _send_steadily(producers, load, rate, run, values, meter, acknowledged)
                await asyncio.gather(*(producer.flush() for producer in producers))
                meter.stopped_at = perf_counter()
                await _until_delivered(reading, meter, delivered)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    finally:
        await asyncio.gather(*(producer.close() for producer in producers))


async def _send_steadily(
    producers: Sequence[Producer],
    load: Load,
    rate: float,
    run: int,
    values: list[bytes],
    meter: Meter,
    histogram: Histogram,
) -> None:
    budget = _Budget(load, meter.started_at)
    failures: list[BaseException] = []

    def settled(sent_at: float, future: DeliveryFuture) -> None:
        _time(histogram, sent_at, future)
        if not future.cancelled() and (error := future.exception()) is not None:
            failures.append(error)

    while not failures:
        due = int((perf_counter() - meter.started_at) * rate) + 1
        while meter.records < due:
            if not budget.take():
                return
            sent_at = perf_counter()
            producer = producers[meter.records % len(producers)]
            value = _STAMP.pack(run, sent_at) + values[meter.records % len(values)]
            try:
                future = producer.send_soon(load.topic, value)
            except BufferFullError:
                raise TimedOutError(
                    f"the broker does not keep up with {rate:g} records a second: choose a lower --rate"
                ) from None
            future.add_done_callback(partial(settled, sent_at))
            meter.records += 1
            meter.size_bytes += load.record_bytes
        await asyncio.sleep(STEP_SECONDS)
    raise failures[0]


async def _receive(consumer: Consumer, run: int, histogram: Histogram) -> None:
    async for record in consumer:
        if record.value is None or len(record.value) < STAMP_BYTES:
            continue  # somebody else's
        its_run, sent_at = _STAMP.unpack_from(record.value)
        if its_run == run:
            histogram.add(perf_counter() - sent_at)


async def _until_delivered(reading: asyncio.Task[None], meter: Meter, delivered: Histogram) -> None:
    """Wait for the last records; what has not come by then is missing in the figures, not in the topic."""
    deadline = perf_counter() + DELIVERY_SECONDS_MAX
    while delivered.count < meter.records and perf_counter() < deadline and not reading.done():
        await asyncio.sleep(STEP_SECONDS)
    if reading.done():
        reading.result()
