"""Assigning topics whose partitions are not numbered in a row: an assignor sees them as if they were. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek.groups.assignors import Assignor, Partitions, Subscriber, TopicIdPartition
from odradek.groups.consumer_types import TopicFacts


def assign_around_gaps(
    assignor: Assignor, subscribers: Sequence[Subscriber], topics: Iterable[TopicFacts]
) -> dict[str, Partitions]:
    """Say who should read which partition, of those that there are."""
    known = list(topics)
    counts = {facts.topic_id: facts.partition_count - len(facts.gaps) for facts in known}
    numbers = {
        facts.topic_id: [number for number in range(facts.partition_count) if number not in facts.gaps]
        for facts in known
        if facts.gaps
    }
    if not numbers:
        return assignor(subscribers, counts)
    places = {topic_id: {number: place for place, number in enumerate(each)} for topic_id, each in numbers.items()}
    dense = [member._replace(held=_at_places(member.held, places)) for member in subscribers]
    return {
        member_id: frozenset(
            TopicIdPartition(at.topic_id, numbers[at.topic_id][at.partition]) if at.topic_id in numbers else at
            for at in partitions
        )
        for member_id, partitions in assignor(dense, counts).items()
    }


def _at_places(held: Partitions, places: Mapping[bytes, Mapping[int, int]]) -> Partitions:
    """What a member has, counted without gaps, and without what is gone."""
    return frozenset(
        at if at.topic_id not in places else TopicIdPartition(at.topic_id, places[at.topic_id][at.partition])
        for at in held
        if at.topic_id not in places or at.partition in places[at.topic_id]
    )
