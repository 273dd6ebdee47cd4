"""Keys and values of the records in __consumer_offsets, as Kafka's own tools read them.

Not an API: key and value each start with an int16, which the caller reads and writes. A key's is the kind of the record
(and the version of the key's class here), a value's is the version. Flexible values since KIP-915, the ConsumerGroup
kinds since KIP-848, the hash of subscribed topics since KIP-1101. A null value is a tombstone.
"""

from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Struct, array, data, int8, int32, int64, string, struct, uuid


class OffsetCommitKey(Struct, versions=(0, 1)):
    """Kinds 0 and 1: a group's position in one partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Struct, versions=(0, 4), flexible=4):
    """The position, and when it was committed."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1)
    topic_id: bytes = uuid(since=4, tag=0)


class GroupMetadataKey(Struct, versions=(2, 2)):
    """Kind 2: a classic group."""

    group: str = string()


class GroupMetadataMember(Struct):
    """A member of a classic group, with its subscription and assignment as opaque bytes."""

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1)
    session_timeout: int = int32()
    subscription: ReadBuffer = data()
    assignment: ReadBuffer = data()


class GroupMetadataValue(Struct, versions=(0, 4), flexible=4):
    """A generation of a classic group."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0, default=None)
    leader: str | None = string(nullable=0, default=None)
    current_state_timestamp: int = int64(since=2, default=-1)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


class ConsumerGroupMetadataKey(Struct, versions=(3, 3)):
    """Kind 3: a consumer group."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Struct, versions=(0, 0), flexible=0):
    """The epoch of a consumer group."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Struct, versions=(4, 4)):
    """Kind 4: the topics a consumer group subscribes to. Kafka 4.1 and later write only tombstones of it."""

    group_id: str = string()


class PartitionRacks(Struct):
    """The racks of one partition."""

    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    """A topic as it was when the group's epoch was set."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class ConsumerGroupPartitionMetadataValue(Struct, versions=(0, 0), flexible=0):
    """The topics a consumer group subscribes to, with their numbers of partitions."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Struct, versions=(5, 5)):
    """Kind 5: a member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    """One assignor that a member knows, with its subscription as opaque bytes."""

    name: str = string()
    metadata: ReadBuffer = data()


class ClassicMemberMetadata(Struct):
    """What is kept of a member that speaks the classic protocol within a consumer group."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Struct, versions=(0, 0), flexible=0):
    """Who a member is and what it subscribes to."""

    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=0, default=None)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable=0, default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Struct, versions=(6, 6)):
    """Kind 6: the target assignment of a consumer group."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Struct, versions=(0, 0), flexible=0):
    """The group epoch that the target assignment was computed for."""

    assignment_epoch: int = int32()


class ConsumerGroupTargetAssignmentMemberKey(Struct, versions=(7, 7)):
    """Kind 7: what one member shall own."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Struct, versions=(0, 0), flexible=0):
    """The partitions that one member shall own."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Struct, versions=(8, 8)):
    """Kind 8: what one member owns now."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupCurrentMemberAssignmentValue(Struct, versions=(0, 0), flexible=0):
    """A member's epochs, its state, and the partitions it owns or has yet to give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)
