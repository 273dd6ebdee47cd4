"""What tests of the sink share: rows as a task would spool them, attempts to write them, and what is in the topic."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.spark.write.delivery import deliver
from odradek.spark.write.encode import Rows, encode
from odradek.spark.write.routing import Router, partitions_of
from odradek.spark.write.sender import BatchSender, Lane, Prepared
from odradek.spark.write.sink_state import Claim, Identity, SinkState
from odradek.spark.write.spool import Spool, Spooled

Row: TypeAlias = tuple[bytes | None, bytes | None]

BATCH_BYTES = 500  # small, so that a few rows make several batches


class Place(NamedTuple):
    """A topic of three partitions, and a task that writes to it."""

    topic: str
    task: Identity


class Unsupervised:
    """Sends on, whatever happens."""

    async def check(self) -> None: ...

    async def landed(self, partition: TopicPartition, batch: Prepared, offset: int, is_last: bool) -> None: ...


class WatchedSpool(Spool):
    """A spool that calls back before it hands out a batch: the place to do something in the middle of a delivery."""

    def __init__(self, watch: Callable[[TopicPartition, int], None] | None = None) -> None:
        super().__init__()
        self.watch = watch

    def batches(self, partition: TopicPartition) -> Iterator[Spooled]:
        for spooled in super().batches(partition):
            if self.watch is not None:
                self.watch(partition, spooled.place)
            yield spooled


def spooled(
    client: Client, topic: str, rows: Sequence[Row], *, batch_bytes: int = BATCH_BYTES, codec: Codec = Codec.NONE
) -> WatchedSpool:
    """Spool rows as a task does."""
    router = Router(lambda name: client.call(partitions_of(client.cluster, name)), seed="test", batch_bytes=batch_bytes)
    columns = Rows(pa.array([value for _, value in rows], pa.binary()), pa.array([key for key, _ in rows], pa.binary()))
    targets = router.route(columns, topic, None)
    spool = WatchedSpool()
    now_ms = time.time_ns() // 1_000_000
    for target, count, data in encode(columns, targets, codec=codec, batch_bytes=batch_bytes, now_ms=now_ms):
        spool.add(router.targets[target], count, data)
    return spool


def write(client: Client, identity: Identity, topic: str, rows: Sequence[Row]) -> int:
    """Make one whole attempt; return how many rows it sent."""
    return client.call(deliver(client.cluster, identity, spooled(client, topic, rows)))


def read(client: Client, topic: str) -> Counter[Row]:
    """All rows of a topic, as often as they are there."""
    with client.consumer(topic, follow=False) as consumer:
        return Counter((record.key, record.value) for record in consumer)


def shuffled(rows: list[Row], seed: int = 1) -> list[Row]:
    mixed = list(rows)
    random.Random(seed).shuffle(mixed)
    return mixed


def sample(count: int, *, distinct: int | None = None) -> list[Row]:
    """Rows with keys and without, some of them equal."""
    numbers = [index % (distinct or count) for index in range(count)]
    return [(None if index % 4 == 0 else b"key-%d" % (index % 17), b"value-%d" % index) for index in numbers]


def claimed(client: Client, identity: Identity, partitions: list[TopicPartition]) -> Claim:
    claim = client.call(SinkState(client.cluster, identity).claim(partitions))
    assert claim is not None
    return claim


def write_some(client: Client, place: Place, rows: list[Row], batch_count: int) -> Claim:
    """Be an attempt that dies after some batches of each partition."""
    spool = spooled(client, place.topic, rows)
    claim = claimed(client, place.task, spool.partitions())
    send(
        client, claim, {key: [Prepared(*item[1:]) for item in spool.batches(key)][:batch_count] for key in claim.starts}
    )
    return claim


def send(client: Client, claim: Claim, batches: dict[TopicPartition, list[Prepared]], sequence: int = 0) -> None:
    async def run() -> None:
        lanes = [Lane(partition, iter(items), sequence) for partition, items in batches.items()]
        await BatchSender(client.cluster, claim.producer_id, claim.epoch, Unsupervised()).send(lanes)

    client.call(run())
