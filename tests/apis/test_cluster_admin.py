"""The APIs that change and show a cluster of brokers: the controller's own decisions, without a quorum beneath them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from odradek.apis import (
    alter_partition_reassignments,
    describe_cluster,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from odradek.apis.context import Context, Door
from odradek.apis.registry import Api
from odradek.clock import ManualClock
from odradek.controller.decisions import COMMANDS
from odradek.controller.decisions_base import Facts
from odradek.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import alter_partition_reassignments as alter_messages
from odradek.wire.messages import describe_cluster as cluster_messages
from odradek.wire.messages import describe_quorum as quorum_messages
from odradek.wire.messages import elect_leaders as elect_messages
from odradek.wire.messages import list_partition_reassignments as list_messages
from odradek.wire.messages import unregister_broker as unregister_messages
from odradek.wire.schema import Message
from tests.apis.houses import versions
from tests.client.support import tick

HOST, PORT = "broker.example", 9092
NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Answer = TypeVar("Answer", bound=Message)


class Metadata:
    """A controller that decides at once; brokers 1, 2 and 4 are alive, 3 is fenced."""

    def __init__(self) -> None:
        self.image = ClusterImage(cluster_id="c")
        partitions = {
            0: PartitionImage((1, 2), (1, 2), 1),
            1: PartitionImage((1, 2), (1, 2), 2),
            2: PartitionImage((3, 2), (3,), -1),
            3: PartitionImage((3,), (3,), -1),
        }
        self.image.topics["orders"] = TopicImage("orders", TOPIC_ID, partitions)
        self.image.names[TOPIC_ID] = "orders"
        for id_ in (1, 2, 3, 4):
            self.image.brokers[id_] = BrokerImage(
                id_, id_, "i", ("broker.example", 9091 + id_), None, f"rack-{id_}", fenced=id_ == 3
            )
        self.quorum = self
        self.leader_id = 2
        self.calls: list[tuple[str, Mapping[str, Any], int]] = []
        self.failure: PeerError | None = None

    def describe(self) -> dict[str, Any]:
        """What the leader of the quorum knows, if broker 2 is asked; little otherwise."""
        told = [(1, 90, True), (3, 40, True), (4, 99, False)]
        replicas = [
            {"id": id_, "end_offset": end, "last_fetch_ms": 5, "last_caught_up_ms": 4, "is_voter": is_voter}
            for id_, end, is_voter in told
        ]
        return {
            "leader_id": self.leader_id,
            "epoch": 7,
            "high_watermark": 90,
            "end_offset": 100,
            "voters": {str(id_): ["10.0.0.1", 8000 + id_] for id_ in (1, 2, 3)},
            "replicas": replicas if self.leader_id == 2 else [],
        }

    async def call(self, command: str, args: dict[str, Any], *, timeout_ms: int = 30_000) -> dict[str, Any]:
        self.calls.append((command, args, timeout_ms))
        await tick()  # others get their turn
        if self.failure is not None:
            raise self.failure
        decision = COMMANDS[command](self.image, args, Facts(0, 2, frozenset({1, 2, 4}), 0, Random(1), 50))
        for offset, record in enumerate(decision.records, 50):
            self.image.apply(record, offset)
        return decision.result


@pytest.fixture
def metadata() -> Metadata:
    return Metadata()


def ask(metadata: Metadata, api: Api, version: int, request: Message, answer: type[Answer], *, node: int = 2) -> Answer:
    """Send a request to a broker, and read the answer, in the formats of a version."""
    broker = SimpleNamespace(metadata=metadata, node_id=node, cluster_id="c", clock=ManualClock(NOW_MS))
    door = cast("Door", SimpleNamespace(broker=broker, groups=None, host=HOST, port=PORT))
    received = api.request.decode(request.encode(version), version)

    async def handled() -> Message:
        response = api.handle(Context(door, version, "client", "10.0.0.1"), received)
        found = await response if inspect.isawaitable(response) else response
        assert found is not None
        return found

    return answer.decode(asyncio.run(handled()).encode(version), version)


# ElectLeaders.


def elected(metadata: Metadata, partitions: list[int] | None, *, kind: int = 0, version: int = 2) -> dict[int, int]:
    wanted = None if partitions is None else [elect_messages.RequestTopic(topic="orders", partitions=partitions)]
    request = elect_messages.Request(election_type=kind, topic_partitions=wanted, timeout_ms=50_000)
    answer = ask(metadata, elect_leaders.API, version, request, elect_messages.Response)
    (topic,) = answer.replica_election_results
    return {each.partition_id: each.error_code for each in topic.partition_result}


@pytest.mark.parametrize("version", versions(elect_leaders.API))
def test_each_partition_has_an_outcome_of_its_own(metadata: Metadata, version: int) -> None:
    needless, nobody = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elected(metadata, [0, 1, 2, 9], version=version) == {0: needless, 1: 0, 2: nobody, 9: UNKNOWN}
    assert metadata.image.topics["orders"].partitions[1].leader == 1
    assert {timeout_ms for _, _, timeout_ms in metadata.calls} == {30_000}, "longer than that nobody waits"


def test_for_all_only_those_that_need_an_election_are_asked_about(metadata: Metadata) -> None:
    codes = elected(metadata, None)
    assert codes[0] == ErrorCode.ELECTION_NOT_NEEDED and codes[1] == 0 and len(codes) == 4
    assert [args["partition"] for _, args, _ in metadata.calls] == [1, 2, 3]


def test_an_unclean_election_takes_whoever_is_alive(metadata: Metadata) -> None:
    codes = elected(metadata, None, kind=1)
    needless, nobody = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert codes == {0: needless, 1: needless, 2: 0, 3: nobody}
    assert metadata.image.topics["orders"].partitions[2].leader == 2


def test_an_election_of_an_unknown_kind_is_refused(metadata: Metadata) -> None:
    answer = ask(metadata, elect_leaders.API, 2, elect_messages.Request(election_type=7), elect_messages.Response)
    assert answer.error_code == ErrorCode.INVALID_REQUEST and not metadata.calls


# AlterPartitionReassignments, ListPartitionReassignments.


def moved(metadata: Metadata, wanted: dict[int, list[int] | None], **options: Any) -> dict[int, int]:
    partitions = [
        alter_messages.RequestPartition(partition_index=index, replicas=replicas) for index, replicas in wanted.items()
    ]
    topics = [alter_messages.RequestTopic(name="orders", partitions=partitions)]
    request = alter_messages.Request(topics=topics, **options)
    answer = ask(metadata, alter_partition_reassignments.API, 1, request, alter_messages.Response)
    return {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}


def moving(metadata: Metadata) -> dict[int, tuple[list[int], list[int], list[int]]]:
    answer = ask(
        metadata, list_partition_reassignments.API, 0, list_messages.Request(topics=None), list_messages.Response
    )
    return {
        each.partition_index: (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }


def test_moves_are_begun_with_one_command_listed_and_cancelled(metadata: Metadata) -> None:
    assert moving(metadata) == {}
    assert moved(metadata, {0: [4, 1], 1: [2, 4]}) == {0: 0, 1: 0}
    assert len(metadata.calls) == 1
    assert moving(metadata) == {0: ([4, 1, 2], [4], [2]), 1: ([2, 4, 1], [4], [1])}
    assert moved(metadata, {0: None}) == {0: 0}
    assert list(moving(metadata)) == [1]


def test_a_move_that_is_refused_does_not_hold_up_the_others(metadata: Metadata) -> None:
    invalid, idle = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert moved(metadata, {0: [4, 1], 1: [9], 2: None, 9: [1]}) == {0: 0, 1: invalid, 2: idle, 9: UNKNOWN}
    assert list(moving(metadata)) == [0]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
def test_without_a_controller_no_move_is_tried_alone(metadata: Metadata, code: ErrorCode) -> None:
    metadata.failure = PeerError(code, "no leader")
    assert moved(metadata, {0: [4, 1], 1: [2, 4]}) == {0: code, 1: code}
    assert len(metadata.calls) == 1


def test_the_number_of_replicas_stays_if_it_must(metadata: Metadata) -> None:
    factor = ErrorCode.INVALID_REPLICATION_FACTOR
    wanted: dict[int, list[int] | None] = {0: [4, 1], 1: [1, 2, 4]}
    assert moved(metadata, wanted, allow_replication_factor_change=False) == {0: 0, 1: factor}
    assert list(moving(metadata)) == [0]
    assert moved(metadata, {0: [1, 2, 4]}, allow_replication_factor_change=False) == {0: factor}, (
        "not the one under way"
    )


@pytest.mark.parametrize(("name", "index"), [("orders", 9), ("users", 0)])
def test_moves_of_what_there_is_not_are_refused(metadata: Metadata, name: str, index: int) -> None:
    topics = [list_messages.RequestTopic(name=name, partition_indexes=[index])]
    request = list_messages.Request(topics=topics)
    answer = ask(metadata, list_partition_reassignments.API, 0, request, list_messages.Response)
    assert answer.error_code == UNKNOWN and answer.error_message and name in answer.error_message


def test_only_the_moves_asked_for_are_listed(metadata: Metadata) -> None:
    moved(metadata, {0: [4, 1], 1: [2, 4]})
    topics = [list_messages.RequestTopic(name="orders", partition_indexes=[1, 2])]
    request = list_messages.Request(topics=topics)
    answer = ask(metadata, list_partition_reassignments.API, 0, request, list_messages.Response)
    assert [each.partition_index for topic in answer.topics for each in topic.partitions] == [1]


# DescribeQuorum.


def described(metadata: Metadata, *, node: int, version: int = 2) -> quorum_messages.Response:
    partition = quorum_messages.RequestPartition(partition_index=0)
    topics = [
        quorum_messages.RequestTopic(topic_name=name, partitions=[partition])
        for name in (describe_quorum.METADATA_TOPIC, "orders")
    ]
    request = quorum_messages.Request(topics=topics)
    return ask(metadata, describe_quorum.API, version, request, quorum_messages.Response, node=node)


@pytest.mark.parametrize("version", versions(describe_quorum.API))
def test_the_leader_of_the_quorum_knows_how_far_the_others_are(metadata: Metadata, version: int) -> None:
    answer = described(metadata, node=2, version=version)
    quorum, other = (topic.partitions[0] for topic in answer.topics)
    assert other.error_code == UNKNOWN
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (2, 7, 90)
    assert {each.replica_id: each.log_end_offset for each in quorum.current_voters} == {1: 90, 2: 100, 3: 40}
    assert [(each.replica_id, each.log_end_offset) for each in quorum.observers] == [(4, 99)]
    if version > 0:
        times = {each.replica_id: each.last_fetch_timestamp for each in quorum.current_voters}
        assert times == {1: 5, 2: NOW_MS, 3: 5}
    if version > 1:
        listeners = [(node.node_id, node.listeners[0]) for node in answer.nodes]
        assert [(id_, each.name, each.host, each.port) for id_, each in listeners] == [
            (id_, "HTTP", "10.0.0.1", 8000 + id_) for id_ in (1, 2, 3)
        ]


def test_another_broker_knows_only_its_own_end(metadata: Metadata) -> None:
    metadata.leader_id = -1
    quorum = described(metadata, node=1).topics[0].partitions[0]
    assert quorum.leader_id == -1
    assert {each.replica_id: each.log_end_offset for each in quorum.current_voters} == {1: 100, 2: -1, 3: -1}
    assert quorum.current_voters[0].last_fetch_timestamp == -1


def test_an_observer_is_not_among_the_voters(metadata: Metadata) -> None:
    metadata.leader_id = 1
    quorum = described(metadata, node=4).topics[0].partitions[0]
    assert [each.replica_id for each in quorum.current_voters] == [1, 2, 3]
    assert [each.replica_id for each in quorum.observers] == [4]


# DescribeCluster, UnregisterBroker.


@pytest.mark.parametrize("version", versions(describe_cluster.API))
def test_the_live_brokers_are_named_and_the_fenced_on_request(metadata: Metadata, version: int) -> None:
    request = cluster_messages.Request(include_fenced_brokers=version > 1)
    answer = ask(metadata, describe_cluster.API, version, request, cluster_messages.Response)
    assert (answer.cluster_id, answer.controller_id) == ("c", 2)
    found = {each.broker_id: (each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers}
    assert found[2] == (HOST, PORT, "rack-2", False), "its own address is the one that the door tells"
    assert found[4] == ("broker.example", 9095, "rack-4", False)
    assert found.get(3) == (("broker.example", 9094, "rack-3", True) if version > 1 else None)


def test_a_broker_that_nobody_knows_yet_names_itself(metadata: Metadata) -> None:
    metadata.image.brokers.clear()
    answer = ask(metadata, describe_cluster.API, 2, cluster_messages.Request(), cluster_messages.Response)
    assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == [(2, True)]


@pytest.mark.parametrize(
    ("broker", "code"),
    [(4, ErrorCode.NONE), (3, ErrorCode.INVALID_REQUEST), (9, ErrorCode.BROKER_ID_NOT_REGISTERED)],
)
def test_a_broker_is_forgotten_if_it_holds_nothing(metadata: Metadata, broker: int, code: ErrorCode) -> None:
    request = unregister_messages.Request(broker_id=broker)
    answer = ask(metadata, unregister_broker.API, 0, request, unregister_messages.Response)
    assert answer.error_code == code
    assert (broker in metadata.image.brokers) is (broker == 3)
    assert (answer.error_message is None) is (code == ErrorCode.NONE)
