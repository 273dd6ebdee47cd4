"""What Eeylops' clients are told when something cannot be done: one table from Kafka's errors to the document's codes.

It needs no gRPC; the codes are numbers of `proto/eeylops.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from odradek.broker.consumers import ConsumerNotRegistered
from odradek.broker.eeylops_topics import EeylopsTopics, PartitionNotFound
from odradek.model import TopicPartition
from odradek.proto import eeylops_pb2 as pb
from odradek.wire.errors import ErrorCode, PeerError

NOBODY = -1

_CODES: Mapping[ErrorCode, pb.ErrorCodes] = MappingProxyType({
    ErrorCode.INVALID_TOPIC_EXCEPTION: pb.KErrInvalidArg,
    ErrorCode.INVALID_PARTITIONS: pb.KErrInvalidArg,
    ErrorCode.INVALID_REPLICATION_FACTOR: pb.KErrInvalidArg,
    ErrorCode.INVALID_CONFIG: pb.KErrInvalidArg,
    ErrorCode.INVALID_REQUEST: pb.KErrInvalidArg,
    ErrorCode.INVALID_RECORD: pb.KErrInvalidArg,
    ErrorCode.INVALID_TIMESTAMP: pb.KErrInvalidArg,
    ErrorCode.MESSAGE_TOO_LARGE: pb.KErrInvalidArg,
    ErrorCode.RECORD_LIST_TOO_LARGE: pb.KErrInvalidArg,
    ErrorCode.OFFSET_OUT_OF_RANGE: pb.KErrInvalidArg,
    ErrorCode.POLICY_VIOLATION: pb.KErrInvalidArg,
    ErrorCode.TOPIC_DELETION_DISABLED: pb.KErrInvalidArg,
    ErrorCode.INVALID_GROUP_ID: pb.KErrInvalidArg,
    ErrorCode.UNKNOWN_MEMBER_ID: pb.KErrInvalidArg,  # a group of Kafka's, whose members commit for themselves
    ErrorCode.ILLEGAL_GENERATION: pb.KErrInvalidArg,
    ErrorCode.REBALANCE_IN_PROGRESS: pb.KErrInvalidArg,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: pb.KErrInvalidArg,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: pb.KErrNotLeader,
    ErrorCode.LEADER_NOT_AVAILABLE: pb.KErrNotLeader,
    ErrorCode.REPLICA_NOT_AVAILABLE: pb.KErrNotLeader,
    ErrorCode.OFFSET_NOT_AVAILABLE: pb.KErrNotLeader,
    ErrorCode.FENCED_LEADER_EPOCH: pb.KErrNotLeader,
    ErrorCode.UNKNOWN_LEADER_EPOCH: pb.KErrNotLeader,
    ErrorCode.NOT_ENOUGH_REPLICAS: pb.KErrReplication,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: pb.KErrReplication,
    ErrorCode.NOT_CONTROLLER: pb.KErrReplication,
    ErrorCode.BROKER_NOT_AVAILABLE: pb.KErrReplication,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: pb.KErrTopicNotFound,
    ErrorCode.UNKNOWN_TOPIC_ID: pb.KErrTopicNotFound,
    ErrorCode.TOPIC_ALREADY_EXISTS: pb.KErrTopicExists,
    ErrorCode.INCONSISTENT_CLUSTER_ID: pb.KErrInvalidClusterId,
    ErrorCode.NETWORK_EXCEPTION: pb.KErrTransport,
    ErrorCode.NOT_COORDINATOR: pb.KErrTransport,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: pb.KErrTransport,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: pb.KErrTransport,
    ErrorCode.REQUEST_TIMED_OUT: pb.KErrTimeout,
})  # fmt: skip


class Subject(NamedTuple):
    """The topic and the partition that a call was about."""

    topic_id: int
    partition_id: int


def code_of(error: PeerError) -> pb.ErrorCodes:
    """The document's code; what has none is the broker's own trouble."""
    if isinstance(error, ConsumerNotRegistered):
        return pb.KErrConsumerNotRegistered
    if isinstance(error, PartitionNotFound):
        return pb.KErrPartitionNotFound
    return _CODES.get(error.code, pb.KErrBackend)


def error_of(error: PeerError, topics: EeylopsTopics, subject: Subject | None = None) -> pb.Error:
    """What a call's answer says of an error; of a partition that another broker leads, who that is."""
    if subject is None:
        return pb.Error(error_code=code_of(error), error_msg=error.message, leader_id=NOBODY)
    found: TopicPartition | None = None
    try:
        found = topics.place(*subject)
    except PeerError as gone:
        # What came in between says more: the topic or the partition was deleted.
        if code_of(error) in (pb.KErrTopicNotFound, pb.KErrNotLeader):
            error = gone
    code = code_of(error)
    if code == pb.KErrTopicNotFound and found is not None:  # it is there, and not yet, or no longer, on this broker
        code = pb.KErrNotLeader
    leader_id = topics.leader_of(found) if code == pb.KErrNotLeader and found is not None else NOBODY
    return pb.Error(error_code=code, error_msg=error.message, leader_id=leader_id)
