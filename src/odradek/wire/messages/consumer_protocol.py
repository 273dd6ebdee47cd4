"""What consumers of classic groups say to each other through JoinGroup and SyncGroup, as opaque bytes.

Not an API: each blob starts with its version as an int16, which the caller reads and writes. A reader that meets a
newer version reads the newest it knows. Owned partitions since version 1 (KIP-429), the generation they stem from
since 2 (KIP-792), racks since 3 (KIP-881).
"""

from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Struct, array, data, int32, string


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class Subscription(Struct, versions=(0, 3)):
    """What a member wants to read and what it owns so far; the metadata of a JoinGroup protocol."""

    topics: list[str] = array(string)
    user_data: ReadBuffer | None = data(nullable=0, default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, since=1)
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string(since=3, nullable=3, default=None)


class Assignment(Struct, versions=(0, 3)):
    """What the leader gave to a member; the assignment of a SyncGroup."""

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: ReadBuffer | None = data(nullable=0, default=None)
