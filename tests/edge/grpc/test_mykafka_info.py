"""The text of BrokerInfo: what it says, that it can be read back, and that it knows its bound."""

from __future__ import annotations

from odradek.broker.mykafka import Description, Offsets
from odradek.controller.image import PartitionLimits
from odradek.edge.grpc.mykafka_info import read_offsets, render
from odradek.model import TopicPartition

LIMITS = PartitionLimits(4096, 0, 2)


def described(topic: str, index: int, offsets: Offsets | None) -> Description:
    return Description(TopicPartition(topic, index), LIMITS, 1, offsets)


def test_what_a_broker_tells_another_one_reads() -> None:
    known = {
        TopicPartition("a-1", 0): Offsets(0, -1, -1),
        TopicPartition("a-1", 34): Offsets(500, 456_652, 456_671),
        TopicPartition("b", 0): Offsets(7, 7, 9),
    }
    text = render([described(*place, offsets) for place, offsets in known.items()], {}, 10_000)
    assert text.count("Topic:") == 2
    assert read_offsets(text) == known


def test_offsets_of_partitions_led_elsewhere_are_filled_in_or_unknown() -> None:
    there, nowhere = TopicPartition("a", 0), TopicPartition("a", 1)
    learnt = {there: Offsets(1, 2, 3)}
    text = render([described(*there, None), described(*nowhere, None)], learnt, 10_000)
    assert "next_offset: 4" in text and text.count("unknown") == 3
    assert read_offsets(text) == learnt


def test_what_has_no_room_is_counted() -> None:
    text = render([described("a", index, Offsets(0, 0, 0)) for index in range(100)], {}, 5_000)
    shown = text.count(" partition ")
    assert 10 < shown < 100
    assert text.endswith(
        f"and {100 - shown} partitions more, for which a message has no room (max.grpc.message.bytes)\n"
    )
    assert len(read_offsets(text)) == shown
