"""Finds the target of each row: the topic it names or the one of the option, and a partition of it.

A partition that a row names wins, then its key decides, then rows fill one partition after the other. The number of
partitions is asked for once a task, so that all rows of a key go to the same place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.cluster import Cluster
from odradek.client.errors import RequestError
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
    first_target: int  # of its partition 0; the others follow
    partition_count: int
    sticky: Sticky


class Router:
    """The topics of one task, as far as its rows have named them."""

    def __init__(self, partitions_of: Callable[[str], int], *, seed: str, batch_bytes: int) -> None:
        """`partitions_of` asks how many partitions a topic has; `seed` spreads tasks over the partitions."""
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
            count = self._partitions_of(name)
            sticky = Sticky(zlib.crc32(f"{self._seed}/{name}".encode()), self._batch_bytes)
            topic = self._topics[name] = _Topic(name, len(self.targets), count, sticky)
            self.targets += [TopicPartition(name, index) for index in range(count)]
        return topic

    def _in_topic(self, topic: _Topic, rows: Rows, given: pa.Array | None) -> Integers | int:
        if given is not None and given.null_count < len(given):
            named = _named_partitions(topic, given)
            if given.null_count == 0:
                return topic.first_target + named
            return topic.first_target + np.where(given.is_valid().to_numpy(False), named, _free(topic, rows))
        if topic.partition_count == 1:
            return topic.first_target
        return topic.first_target + _free(topic, rows)


def _free(topic: _Topic, rows: Rows) -> Integers:
    """The partitions of rows that name none: by the key, or where there is none in turn."""
    key, count = rows.key, topic.partition_count
    if key is None or key.null_count == len(key):
        return topic.sticky.assign(row_bytes(rows), count)
    by_key = partitions_of_keys(key, count)
    if key.null_count:
        keyless = key.is_null().to_numpy(False)
        by_key[keyless] = topic.sticky.assign(row_bytes(rows)[keyless], count)
    return by_key


def _named_partitions(topic: _Topic, given: pa.Array) -> Integers:
    """The partitions that rows name, 0 where they do not; all others must exist."""
    named = np.asarray(given.fill_null(0).to_numpy(False), np.int32)
    wrong = named[(named < 0) | (named >= topic.partition_count)]
    if len(wrong):
        count = topic.partition_count
        raise RowError(
            f"a row names partition {wrong[0]} of topic {topic.name}, which has {count}"
            f" partition{'s' if count > 1 else ''}, numbered from 0"
        )
    return named


async def partition_count(cluster: Cluster, topic: str) -> int:
    """How many partitions a topic has now; a broker that creates topics by itself may do so."""
    missing: RequestError | None = None

    async def attempt() -> int:
        nonlocal missing
        await cluster.refresh([topic], create=True)
        try:
            return (await cluster.topic(topic, create=True, timeout_ms=UNKNOWN_TOPIC_MS)).partition_count
        except RequestError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            missing = error
        return 0

    count = await retry(attempt, what=f"topic {topic}", timeout_ms=cluster.timeouts.total_ms)
    if missing is not None:
        raise MissingTopicError(
            f"topic {topic} does not exist, and the broker does not create it: create it, or look at its name"
        ) from missing
    return count
