from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.assignors import (
    ASSIGNORS,
    Assignor,
    GroupMember,
    assign_in_turn,
    assign_ranges,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.errors import ClientError
from odradek.model import TopicPartition
from odradek.wire.messages.consumer_protocol import Subscription

TOPICS = ("a", "b", "c")


def member(name: str, *topics: str, instance: str | None = None) -> GroupMember:
    return GroupMember(name, instance, frozenset(topics))


def numbers(partitions: list[TopicPartition]) -> list[str]:
    return [str(partition) for partition in partitions]


def test_ranges_are_contiguous_and_the_first_members_get_the_rest() -> None:
    assigned = assign_ranges([member("m2", "a"), member("m1", "a"), member("m3", "a")], {"a": range(7)})
    assert numbers(assigned["m1"]) == ["a-0", "a-1", "a-2"]
    assert numbers(assigned["m2"]) == ["a-3", "a-4"]
    assert numbers(assigned["m3"]) == ["a-5", "a-6"]


def test_in_turn_every_member_gets_the_next_partition_of_any_topic() -> None:
    assigned = assign_in_turn([member("m1", "a", "b"), member("m2", "a", "b")], {"a": range(3), "b": range(3)})
    assert numbers(assigned["m1"]) == ["a-0", "a-2", "b-1"]
    assert numbers(assigned["m2"]) == ["a-1", "b-0", "b-2"]


def test_in_turn_whoever_is_not_subscribed_is_passed_over() -> None:
    assigned = assign_in_turn(
        [member("m1", "a"), member("m2", "b")], {"a": range(1), "b": range(2), "nobody": range(4)}
    )
    assert numbers(assigned["m1"]) == ["a-0"]
    assert numbers(assigned["m2"]) == ["b-0", "b-1"]


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = [member("m1", "a"), member("m9", "a", instance="x"), member("m0", "a", instance="y")]
    assigned = assign_ranges(members, {"a": range(3)})
    assert [numbers(assigned[name]) for name in ("m9", "m0", "m1")] == [["a-0"], ["a-1"], ["a-2"]]


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@given(
    subscriptions=st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=6),
    there=st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 15)).map(sorted)),
)
def test_every_partition_that_somebody_wants_goes_to_exactly_one_subscriber(
    assignor: Assignor, subscriptions: list[set[str]], there: dict[str, list[int]]
) -> None:
    members = [member(f"m{number}", *topics) for number, topics in enumerate(subscriptions)]
    assigned = assignor(members, there)
    wanted = {topic for topics in subscriptions for topic in topics}
    dealt = sorted(partition for partitions in assigned.values() for partition in partitions)
    assert dealt == sorted(TopicPartition(topic, index) for topic in there if topic in wanted for index in there[topic])
    for someone in members:
        assert {partition.topic for partition in assigned[someone.member_id]} <= someone.topics


def test_blobs_survive_the_way_through_the_coordinator() -> None:
    assert decode_subscription(encode_subscription(["b", "a"])) == {"a", "b"}
    partitions = [TopicPartition("a", 0), TopicPartition("a", 5), TopicPartition("b", 1)]
    assert decode_assignment(encode_assignment(reversed(partitions))) == partitions
    assert decode_assignment(b"") == []


def test_a_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newest = Subscription.versions[1]
    blob = struct.pack(">h", newest + 1) + Subscription(topics=["a"]).encode(newest) + b"more"
    assert decode_subscription(blob) == {"a"}


@pytest.mark.parametrize("blob", [b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x09"])
def test_a_blob_that_makes_no_sense_is_blamed_on_the_other_member(blob: bytes) -> None:
    with pytest.raises(ClientError, match="another member of the group sent something that is no Assignment"):
        decode_assignment(blob)
