"""Eeylops' codes: every error that a broker can meet has one, and a partition's trouble says who leads."""

from __future__ import annotations

import pytest

from odradek.broker.consumers import ConsumerNotRegistered
from odradek.broker.eeylops_topics import EeylopsTopics
from odradek.edge.grpc.eeylops_errors import Subject, code_of, error_of
from odradek.model import TopicPartition
from odradek.proto import eeylops_pb2 as pb
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import House, at_home
from tests.client.support import asynchronous

MS = 5_000
PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, pb.KErrInvalidArg),
        (ErrorCode.INVALID_REQUEST, pb.KErrInvalidArg),
        (ErrorCode.MESSAGE_TOO_LARGE, pb.KErrInvalidArg),
        (ErrorCode.OFFSET_OUT_OF_RANGE, pb.KErrInvalidArg),
        (ErrorCode.UNKNOWN_MEMBER_ID, pb.KErrInvalidArg),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, pb.KErrNotLeader),
        (ErrorCode.LEADER_NOT_AVAILABLE, pb.KErrNotLeader),
        (ErrorCode.KAFKA_STORAGE_ERROR, pb.KErrBackend),
        (ErrorCode.UNKNOWN_SERVER_ERROR, pb.KErrBackend),
        (ErrorCode.NOT_ENOUGH_REPLICAS, pb.KErrReplication),
        (ErrorCode.NOT_CONTROLLER, pb.KErrReplication),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, pb.KErrTopicNotFound),
        (ErrorCode.UNKNOWN_TOPIC_ID, pb.KErrTopicNotFound),
        (ErrorCode.TOPIC_ALREADY_EXISTS, pb.KErrTopicExists),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, pb.KErrInvalidClusterId),
        (ErrorCode.NETWORK_EXCEPTION, pb.KErrTransport),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, pb.KErrTransport),
        (ErrorCode.REQUEST_TIMED_OUT, pb.KErrTimeout),
    ],
)
def test_an_error_has_the_documents_code(code: ErrorCode, expected: pb.ErrorCodes) -> None:
    assert code_of(PeerError(code)) == expected


def test_no_error_of_any_kind_is_told_as_none() -> None:
    for code in ErrorCode:
        assert code_of(PeerError(code)) != pb.KNoError
    assert code_of(ConsumerNotRegistered("me", PLACE)) == pb.KErrConsumerNotRegistered


async def opened(house: House) -> EeylopsTopics:
    topics = EeylopsTopics(house.broker)
    await topics.create("orders", [], 0, MS)
    return topics


def lead(house: House, leader: int) -> None:
    """Have the metadata say that this broker leads the partition."""
    topic = house.broker.metadata.image.topics["orders"]
    topic.partitions[0] = topic.partitions[0]._replace(leader=leader)


@asynchronous
async def test_who_does_not_lead_says_who_does() -> None:
    async with at_home() as house:
        topics = await opened(house)
        not_led = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
        lead(house, 7)
        error = error_of(not_led, topics, Subject(1, 1))
        assert (error.error_code, error.error_msg, error.leader_id) == (pb.KErrNotLeader, "not here", 7)
        for nobody in (-1, house.broker.node_id):  # nobody, or this broker, which does not yet
            lead(house, nobody)
            assert error_of(not_led, topics, Subject(1, 1)).leader_id == -1
        lead(house, 7)
        full = PeerError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
        assert error_of(full, topics, Subject(1, 1)).leader_id == -1, "the leader's id does not matter here"


@asynchronous
async def test_what_was_deleted_meanwhile_is_told_as_that() -> None:
    async with at_home() as house:
        topics = await opened(house)
        for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            lost = PeerError(code, "it is no longer here")
            assert error_of(lost, topics, Subject(1, 1)).error_code == pb.KErrNotLeader, "the topic is there: ask again"
            assert error_of(lost, topics, Subject(1, 2)).error_code == pb.KErrPartitionNotFound
            assert error_of(lost, topics, Subject(9, 1)).error_code == pb.KErrTopicNotFound
        timed_out = PeerError(ErrorCode.REQUEST_TIMED_OUT, "who knows")
        assert error_of(timed_out, topics, Subject(9, 1)).error_code == pb.KErrTimeout
        assert error_of(PeerError(ErrorCode.UNKNOWN_TOPIC_ID, "gone"), topics).leader_id == -1
