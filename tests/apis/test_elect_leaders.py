"""Elections of a broker that stands alone: never needed, and never for what there is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.testing import EmbeddedBroker, broker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics, elect_leaders, list_config_resources
from tests.edge.raw import RawClient


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    with broker() as embedded:
        yield embedded


@pytest.fixture
def client(server: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(int(server.bootstrap_servers.rpartition(":")[2])) as raw:
        topic = create_topics.RequestTopic(name="orders", num_partitions=2, replication_factor=1)
        raw.ask(create_topics.Request(topics=[topic]), create_topics.Response, 5)
        yield raw


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed_and_unknown_partitions_are_named(client: RawClient, version: int) -> None:
    wanted = [elect_leaders.RequestTopic(topic="orders", partitions=[0, 1, 7])]
    answer = client.ask(elect_leaders.Request(topic_partitions=wanted), elect_leaders.Response, version)
    assert isinstance(answer, elect_leaders.Response)
    (topic,) = answer.replica_election_results
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in topic.partition_result] == [needless, needless, unknown]


def test_all_partitions_are_meant_if_none_are_named(client: RawClient) -> None:
    answer = client.ask(elect_leaders.Request(topic_partitions=None), elect_leaders.Response, 2)
    assert isinstance(answer, elect_leaders.Response)
    assert [(topic.topic, len(topic.partition_result)) for topic in answer.replica_election_results] == [("orders", 2)]


@pytest.mark.parametrize(
    ("types", "expected"),
    [([], {("orders", 2), ("1", 4)}), ([2], {("orders", 2)}), ([4], {("1", 4)}), ([16], set())],
)
def test_what_has_settings_is_listed_by_type(
    client: RawClient, types: list[int], expected: set[tuple[str, int]]
) -> None:
    answer = client.ask(list_config_resources.Request(resource_types=types), list_config_resources.Response, 1)
    assert isinstance(answer, list_config_resources.Response)
    assert {(each.resource_name, each.resource_type) for each in answer.config_resources} == expected
