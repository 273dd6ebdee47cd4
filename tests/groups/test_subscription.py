"""Reading the topics out of what consumers send as their metadata."""

from __future__ import annotations

import struct

import pytest

from odradek.groups.subscription import subscribed_topics
from odradek.wire.messages.consumer_protocol import Subscription, TopicPartitions


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_topics_are_read_whatever_the_version(version: int) -> None:
    owned = [TopicPartitions(topic="a", partitions=[0, 1])] if version >= 1 else []
    sent = Subscription(topics=["a", "b"], user_data=b"u", owned_partitions=owned)
    assert subscribed_topics(struct.pack(">h", version) + sent.encode(version)) == frozenset({"a", "b"})


def test_a_version_from_the_future_is_read_as_far_as_it_is_known() -> None:
    sent = struct.pack(">h", 99) + Subscription(topics=["a"]).encode(0) + b"news"
    assert subscribed_topics(sent) == frozenset({"a"})


def test_what_is_no_subscription_names_no_topics() -> None:
    whole = struct.pack(">h", 0) + Subscription(topics=["a", "bb"], user_data=b"").encode(0)
    for end in range(len(whole)):
        assert subscribed_topics(whole[:end]) is None
    assert subscribed_topics(b"\x00\x00\xff\xff\xff\xff") is None
