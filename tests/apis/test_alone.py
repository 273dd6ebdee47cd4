"""What a broker that stands alone says of replicas, moves and the quorum: what is so, and no to everything else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.testing import EmbeddedBroker, broker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_topics,
    describe_quorum,
    list_partition_reassignments,
)
from tests.edge.raw import RawClient

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    with broker({"broker.id": "3"}) as embedded:
        with RawClient(int(embedded.bootstrap_servers.rpartition(":")[2])) as raw:
            topic = create_topics.RequestTopic(name="orders", num_partitions=2, replication_factor=1)
            raw.ask(create_topics.Request(topics=[topic]), create_topics.Response, 5)
        yield embedded


@pytest.fixture
def client(server: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(int(server.bootstrap_servers.rpartition(":")[2])) as raw:
        yield raw


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_can_be_given_only_to_the_broker_that_has_it(client: RawClient, version: int) -> None:
    wanted: list[tuple[int, list[int] | None]] = [(0, [3]), (1, [4]), (1, [3, 4]), (0, None), (7, [3])]
    partitions = [
        alter_partition_reassignments.RequestPartition(partition_index=index, replicas=replicas)
        for index, replicas in wanted
    ]
    topics = [alter_partition_reassignments.RequestTopic(name="orders", partitions=partitions)]
    request = alter_partition_reassignments.Request(topics=topics)
    answer = client.ask(request, alter_partition_reassignments.Response, version)
    assert isinstance(answer, alter_partition_reassignments.Response)
    invalid, idle = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    codes = [partition.error_code for partition in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, invalid, invalid, idle, UNKNOWN]


@pytest.mark.parametrize(("partition", "code"), [(0, ErrorCode.NONE), (9, UNKNOWN)])
def test_no_moves_are_under_way_and_unknown_partitions_are_named(
    client: RawClient, partition: int, code: ErrorCode
) -> None:
    topics = [list_partition_reassignments.RequestTopic(name="orders", partition_indexes=[partition])]
    request = list_partition_reassignments.Request(topics=topics)
    answer = client.ask(request, list_partition_reassignments.Response, 0)
    assert isinstance(answer, list_partition_reassignments.Response)
    assert (answer.error_code, answer.topics) == (code, [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_stays_in_the_one_directory(client: RawClient, server: EmbeddedBroker, version: int) -> None:
    topics = [alter_replica_log_dirs.RequestTopic(name="orders", partitions=[0, 5])]
    dirs = [
        alter_replica_log_dirs.RequestDir(path=path, topics=topics) for path in (str(server.directory), "/elsewhere")
    ]
    answer = client.ask(alter_replica_log_dirs.Request(dirs=dirs), alter_replica_log_dirs.Response, version)
    assert isinstance(answer, alter_replica_log_dirs.Response)
    codes = [[partition.error_code for partition in topic.partitions] for topic in answer.results]
    assert codes == [[ErrorCode.NONE, UNKNOWN], [ErrorCode.LOG_DIR_NOT_FOUND, UNKNOWN]]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_of_the_metadata_is_this_broker(client: RawClient, version: int) -> None:
    asked = describe_quorum.Request(
        topics=[
            describe_quorum.RequestTopic(
                topic_name=name, partitions=[describe_quorum.RequestPartition(partition_index=0)]
            )
            for name in ("__cluster_metadata", "orders")
        ]
    )
    answer = client.ask(asked, describe_quorum.Response, version)
    assert isinstance(answer, describe_quorum.Response)
    metadata, orders = (topic.partitions[0] for topic in answer.topics)
    assert (metadata.leader_id, [voter.replica_id for voter in metadata.current_voters]) == (3, [3])
    assert metadata.high_watermark == metadata.current_voters[0].log_end_offset > 0
    assert orders.error_code == UNKNOWN
