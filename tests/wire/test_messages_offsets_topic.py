"""Records of __consumer_offsets against bytes written by hand: no library that we test with reads them."""

from __future__ import annotations

import pytest

from odradek.wire.messages import offsets_topic
from odradek.wire.schema import Struct
from tests.wire.message_samples import to_plain

TOPIC_ID = bytes(range(16))

GOLDEN: list[tuple[Struct, int, bytes]] = [
    (
        offsets_topic.OffsetCommitKey(group="g", topic="orders", partition=7),
        1,
        b"\0\x01g" b"\0\x06orders" b"\0\0\0\x07",
    ),
    (
        offsets_topic.OffsetCommitValue(offset=258, metadata="m", commit_timestamp=1, expire_timestamp=2),
        1,
        b"\0\0\0\0\0\0\x01\x02" b"\0\x01m" b"\0\0\0\0\0\0\0\x01" b"\0\0\0\0\0\0\0\x02",
    ),
    (
        offsets_topic.OffsetCommitValue(offset=258, leader_epoch=5, metadata="", commit_timestamp=1),
        3,
        b"\0\0\0\0\0\0\x01\x02" b"\0\0\0\x05" b"\0\0" b"\0\0\0\0\0\0\0\x01",
    ),
    (
        offsets_topic.OffsetCommitValue(offset=258, metadata="m", commit_timestamp=1, topic_id=TOPIC_ID),
        4,
        b"\0\0\0\0\0\0\x01\x02" b"\xff\xff\xff\xff" b"\x02m" b"\0\0\0\0\0\0\0\x01" b"\x01\0\x10" + TOPIC_ID,
    ),
    (offsets_topic.GroupMetadataKey(group="g"), 2, b"\0\x01g"),
    (
        offsets_topic.GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            current_state_timestamp=1,
            members=[
                offsets_topic.GroupMetadataMember(
                    member_id="m",
                    client_id="c",
                    client_host="h",
                    rebalance_timeout=4,
                    session_timeout=5,
                    subscription=b"in",
                    assignment=b"out",
                )
            ],
        ),
        3,
        b"\0\x08consumer" b"\0\0\0\x03" b"\xff\xff" b"\xff\xff" b"\0\0\0\0\0\0\0\x01"
        b"\0\0\0\x01" b"\0\x01m" b"\xff\xff" b"\0\x01c" b"\0\x01h" b"\0\0\0\x04" b"\0\0\0\x05"
        b"\0\0\0\x02in" b"\0\0\0\x03out",
    ),
    (offsets_topic.ConsumerGroupMetadataKey(group_id="g"), 3, b"\0\x01g"),
    (offsets_topic.ConsumerGroupMetadataValue(epoch=6), 0, b"\0\0\0\x06" b"\0"),
    (
        offsets_topic.ConsumerGroupMetadataValue(epoch=6, metadata_hash=-1),
        0,
        b"\0\0\0\x06" b"\x01\0\x08\xff\xff\xff\xff\xff\xff\xff\xff",
    ),
    (
        offsets_topic.ConsumerGroupPartitionMetadataValue(
            topics=[offsets_topic.TopicMetadata(topic_id=TOPIC_ID, topic_name="t", num_partitions=2)]
        ),
        0,
        b"\x02" + TOPIC_ID + b"\x02t" b"\0\0\0\x02" b"\x01" b"\0" b"\0",
    ),
    (offsets_topic.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), 5, b"\0\x01g" b"\0\x01m"),
    (
        offsets_topic.ConsumerGroupMemberMetadataValue(
            client_id="c", client_host="h", subscribed_topic_names=["t"], rebalance_timeout_ms=9
        ),
        0,
        b"\0" b"\0" b"\x02c" b"\x02h" b"\x02\x02t" b"\0" b"\0\0\0\x09" b"\0" b"\0",
    ),
    (
        offsets_topic.ConsumerGroupMemberMetadataValue(
            classic_member_metadata=offsets_topic.ClassicMemberMetadata(
                session_timeout_ms=8,
                supported_protocols=[offsets_topic.ClassicProtocol(name="range", metadata=b"in")],
            )
        ),
        0,
        b"\0" b"\0" b"\x01" b"\x01" b"\x01" b"\0" b"\xff\xff\xff\xff" b"\0"
        b"\x01\0\x11" b"\x01" b"\0\0\0\x08" b"\x02\x06range\x03in\0" b"\0",
    ),
    (offsets_topic.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=6), 0, b"\0\0\0\x06" b"\0"),
    (
        offsets_topic.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[offsets_topic.TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
        ),
        0,
        b"\x02" + TOPIC_ID + b"\x03\0\0\0\0\0\0\0\x01\0" b"\0",
    ),
    (
        offsets_topic.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=6,
            previous_member_epoch=5,
            state=2,
            assigned_partitions=[offsets_topic.TopicPartitions(topic_id=TOPIC_ID, partitions=[1])],
        ),
        0,
        b"\0\0\0\x06" b"\0\0\0\x05" b"\x02" b"\x02" + TOPIC_ID + b"\x02\0\0\0\x01\0" b"\x01" b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "version", "encoded"), GOLDEN, ids=[type(each).__name__ for each, _, _ in GOLDEN])
def test_a_record_is_the_bytes_that_kafka_writes(record: Struct, version: int, encoded: bytes) -> None:
    assert record.encode(version).hex(" ") == encoded.hex(" ")
    assert to_plain(type(record).decode(encoded, version), version) == to_plain(record, version)
