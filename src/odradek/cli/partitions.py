"""Which partitions of a topic are meant, and which offsets the places are that people name in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.cli.connect import EXIT_USAGE
from odradek.cli.terminal import CommandError
from odradek.client.client import Client
from odradek.client.cluster import TopicInfo
from odradek.client.offsets import resolve
from odradek.client.partitioner import shown_partitions
from odradek.client.start import Start
from odradek.model import TopicPartition


def partitions_of(topic: TopicInfo) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic.name, index) for index in topic.partitions]


def chosen_partitions(topic: TopicInfo, wanted: Iterable[int] | None) -> list[TopicPartition]:
    """The partitions of a topic that were named, or all; an error if there is no such partition."""
    if wanted is None:
        return partitions_of(topic)
    for index in wanted:
        if index not in topic.partitions:
            raise CommandError(
                f"topic {topic.name} has no partition {index}: it has {shown_partitions(topic.partitions)}",
                EXIT_USAGE,
            )
    return [TopicPartition(topic.name, index) for index in dict.fromkeys(wanted)]


async def resolve_within(
    client: Client, places: Mapping[TopicPartition, Start], last: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Turn places into offsets; one behind a partition's end is an error."""
    found = await resolve(client.cluster, places)
    for partition, offset in found.items():
        if offset > last[partition]:
            raise CommandError(
                f"there is no offset {offset} in {partition}, which ends at {last[partition]}: name a smaller one, or"
                " 'end'",
            )
    return found
