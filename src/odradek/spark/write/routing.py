"""Finds the target of each row: the topic it names or the one of the option, and a partition of it.

A partition that a row names wins, then its key decides, then rows fill one partition after the other. The number of
partitions is asked for once a task, so that all rows of a key go to the same place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.cluster import Cluster
from odradek.client.errors import RequestError
from odradek.client.partitioner import shown_partitions
from odradek.client.retry import retry
from odradek.model import TopicPartition
from odradek.spark.errors import MissingTopicError
from odradek.spark.write.encode import RowError, Rows, row_bytes
from odradek.spark.write.partitioning import Sticky, partitions_of_keys
from odradek.wire.errors import ErrorCode

Integers: TypeAlias = npt.NDArray[Any]

UNKNOWN_TOPIC_MS = 5_000  # how long a topic may take to appear, where brokers create topics by themselves


class _Topic(NamedTuple):
    """A topic that rows go to."""

    name: str
    first_target: int  # of its first partition; the others follow
    numbers: Integers  # of its partitions, in their order
    sticky: Sticky


class Router:
    """The topics of one task, as far as its rows have named them."""

    def __init__(self, partitions_of: Callable[[str], Sequence[int]], *, seed: str, batch_bytes: int) -> None:
        """`partitions_of` asks which partitions a topic has; `seed` spreads tasks over the partitions."""
        self.targets: list[TopicPartition] = []
        self._partitions_of = partitions_of
        self._seed = seed
        self._batch_bytes = batch_bytes
        self._topics: dict[str, _Topic] = {}

    def route(self, rows: Rows, topics: str | pa.Array, partitions: pa.Array | None) -> Integers | int:
        """Say for each row, or for all of them, which of `targets` it goes to."""
        if isinstance(topics, str):
            return self._in_topic(self._topic(topics), rows, partitions)
        if topics.null_count:
            raise RowError("a row has a null topic: give every row one, or set the option topic")
        named = pc.dictionary_encode(topics)
        names = named.dictionary.to_pylist()
        if len(names) == 1:
            return self._in_topic(self._topic(names[0]), rows, partitions)
        chosen = named.indices.to_numpy()
        targets = np.empty(len(topics), np.int32)
        for index, name in enumerate(names):
            where = np.flatnonzero(chosen == index)
            given = None if partitions is None else partitions.take(pa.array(where))
            targets[where] = self._in_topic(self._topic(name), rows.taken(where), given)
        return targets

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            numbers = self._partitions_of(name)
            sticky = Sticky(zlib.crc32(f"{self._seed}/{name}".encode()), self._batch_bytes)
            topic = self._topics[name] = _Topic(name, len(self.targets), np.asarray(numbers, np.int32), sticky)
            self.targets += [TopicPartition(name, number) for number in numbers]
        return topic

    def _in_topic(self, topic: _Topic, rows: Rows, given: pa.Array | None) -> Integers | int:
        if given is not None and given.null_count < len(given):
            named = _named_partitions(topic, given)
            if given.null_count == 0:
                return topic.first_target + named
            return topic.first_target + np.where(given.is_valid().to_numpy(False), named, _free(topic, rows))
        if len(topic.numbers) == 1:
            return topic.first_target
        return topic.first_target + _free(topic, rows)


def _free(topic: _Topic, rows: Rows) -> Integers:
    """The places in `numbers` of rows that name none: by the key, or where there is none in turn."""
    key, count = rows.key, len(topic.numbers)
    if key is None or key.null_count == len(key):
        return topic.sticky.assign(row_bytes(rows), count)
    by_key = partitions_of_keys(key, count)
    if key.null_count:
        keyless = key.is_null().to_numpy(False)
        by_key[keyless] = topic.sticky.assign(row_bytes(rows)[keyless], count)
    return by_key


def _named_partitions(topic: _Topic, given: pa.Array) -> Integers:
    """The places in `numbers` of the partitions that rows name, any where they name none; all others must exist."""
    named = np.asarray(given.fill_null(int(topic.numbers[0])).to_numpy(False), np.int32)
    places = np.searchsorted(topic.numbers, named).clip(max=len(topic.numbers) - 1)
    wrong = named[topic.numbers[places] != named]
    if len(wrong):
        there = shown_partitions(topic.numbers.tolist())
        raise RowError(f"a row names partition {wrong[0]} of topic {topic.name}, which has {there}")
    return places.astype(np.int32)


async def partitions_of(cluster: Cluster, topic: str) -> tuple[int, ...]:
    """The partitions that a topic has now; a broker that creates topics by itself may do so."""
    missing: RequestError | None = None

    async def attempt() -> tuple[int, ...]:
        nonlocal missing
        await cluster.refresh([topic], create=True)
        try:
            return tuple((await cluster.topic(topic, create=True, timeout_ms=UNKNOWN_TOPIC_MS)).partitions)
        except RequestError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            missing = error
        return ()

    found = await retry(attempt, what=f"topic {topic}", timeout_ms=cluster.timeouts.total_ms)
    if missing is not None:
        raise MissingTopicError(
            f"topic {topic} does not exist, and the broker does not create it: create it, or look at its name"
        ) from missing
    return found
