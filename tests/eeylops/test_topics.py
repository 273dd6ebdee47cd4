"""Eeylops' topics on one broker: names, numbers, partitions, ttl, and who else sees them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import CALL_SECONDS, Asker, code
from tests.process import BrokerProcess

INT32_MAX = (1 << 31) - 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("topics") / "data", http=True, grpc=True) as process:
        yield process


@pytest.fixture
def asker(broker: BrokerProcess) -> Iterator[Asker]:
    with Asker(broker.grpc) as channel:
        yield channel


def test_a_topic_has_one_partition_unless_more_are_asked_for(asker: Asker) -> None:
    assert code(asker.create("plain")) == "KNoError"
    found = asker.topic("plain").topic
    assert (found.topic_name, list(found.partition_ids), found.ttl_seconds) == ("plain", [1], 0)
    assert found.topic_id > 0
    assert code(asker.create("many", [3, 1, 2])) == "KNoError"
    assert list(asker.topic("many", sync=False).topic.partition_ids) == [1, 2, 3]


@pytest.mark.parametrize("ids", [[0], [2], [-1], [1, 1], [1, 3], [2, 3], [0, 1], [1, INT32_MAX], [*range(2, 102)]])
def test_partitions_are_counted_from_one_without_gaps(asker: Asker, ids: list[int]) -> None:
    error = asker.create("gaps", ids)
    assert (code(error), error.leader_id) == ("KErrInvalidArg", -1)
    assert code(asker.topic("gaps").error) == "KErrTopicNotFound"


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a.b", "..", "a-b", "a b", "a\0b", "a\n", "é", "x" * 250, "../../etc/passwd", "__consumer_offsets"],
)
def test_a_name_is_made_of_letters_digits_and_underscores(asker: Asker, name: str) -> None:
    assert code(asker.create(name)) == "KErrInvalidArg"
    assert name not in asker.topics().values()
    assert code(asker.topic(name).error) == code(asker.topic(name, sync=False).error) == "KErrTopicNotFound"


def test_the_longest_name_has_249_characters(asker: Asker) -> None:
    assert code(asker.create("x" * 249)) == "KNoError"
    assert asker.topic("x" * 249).topic.topic_name == "x" * 249


def test_the_cluster_chooses_the_id(asker: Asker) -> None:
    for number in (1, 7, -1):
        error = asker.create("chosen", topic_id=number)
        assert code(error) == "KErrInvalidArg"
        assert "topic_id" in error.error_msg
    assert code(asker.topic("chosen").error) == "KErrTopicNotFound"


def test_too_many_partitions_are_refused(asker: Asker) -> None:
    error = asker.create("crowd", range(1, 20_002))
    assert code(error) == "KErrInvalidArg"
    assert "partitions.max" in error.error_msg


def test_ttl_is_the_topics_retention(asker: Asker, broker: BrokerProcess) -> None:
    for ttl_seconds, retention_ms in ((60, 60_000), (-1, -1), (1, 1_000), (INT32_MAX, INT32_MAX * 1000)):
        name = f"ttl_{ttl_seconds}".replace("-", "never")
        assert code(asker.create(name, ttl_seconds=ttl_seconds)) == "KNoError"
        assert asker.topic(name).topic.ttl_seconds == ttl_seconds
        with urllib.request.urlopen(f"{broker.http_url}/topic/{name}", timeout=30) as answer:
            (described,) = json.loads(answer.read())["topics"]
        assert described["config"]["retention.ms"] == retention_ms
    for ttl_seconds in (-2, -INT32_MAX - 1):
        assert code(asker.create("ttl_wrong", ttl_seconds=ttl_seconds)) == "KErrInvalidArg"


def test_topics_of_other_doors_are_shown_with_ids(asker: Asker, broker: BrokerProcess) -> None:
    body = json.dumps({"name": "by.rest-2", "partitions": 2, "config": {"retention.ms": 1_500}}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{broker.http_url}/topic", body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 201
    found = asker.topic("by.rest-2").topic
    assert (list(found.partition_ids), found.ttl_seconds) == ([1, 2], 2)
    assert asker.topics()[found.topic_id] == "by.rest-2"
    assert code(asker.produce(found.topic_id, 2, [b"x"])) == "KNoError"
    assert asker.values(found.topic_id, 2) == [b"x"]


def test_topics_are_told_by_id_and_the_brokers_own_are_not(asker: Asker) -> None:
    made = {asker.created(name): name for name in ("zebra", "ant", "mole")}
    topic = min(made)
    asked = pb.RegisterConsumerRequest(consumer_id="somebody", topic_id=topic, partition_id=1)
    assert code(asker.stub.RegisterConsumer(asked, timeout=CALL_SECONDS).error) == "KNoError"  # makes a topic, too
    for sync in (False, True):
        found = asker.topics(sync=sync)
        assert list(found) == sorted(found)
        assert {number: found[number] for number in made} == made
        assert not any(name.startswith("__") for name in found.values())


def test_a_name_is_taken_once(asker: Asker) -> None:
    topic = asker.created("taken", 2)
    error = asker.create("taken")
    assert (code(error), error.leader_id) == ("KErrTopicExists", -1)
    assert asker.topic("taken").topic.topic_id == topic


def test_of_a_thousand_who_make_one_topic_at_once_one_has_made_it(asker: Asker) -> None:
    asked = pb.CreateTopicRequest(topic=pb.Topic(topic_name="raced", partition_ids=[1, 2]))
    calls = [asker.stub.CreateTopic.future(asked, timeout=CALL_SECONDS) for _ in range(1_000)]
    codes = [code(call.result().error) for call in calls]
    assert {name: codes.count(name) for name in set(codes)} == {"KNoError": 1, "KErrTopicExists": 999}
    assert list(asker.topic("raced").topic.partition_ids) == [1, 2]


def test_an_id_that_was_removed_means_no_topic_ever_again(asker: Asker) -> None:
    first = asker.created("phoenix")
    assert code(asker.produce(first, 1, [b"ashes"])) == "KNoError"
    assert code(asker.remove(first)) == "KNoError"
    assert code(asker.topic("phoenix").error) == "KErrTopicNotFound"
    second = asker.created("phoenix")
    assert second > first
    assert asker.values(second) == []
    for stale in (first, 0, -1, INT32_MAX, -INT32_MAX - 1):
        assert code(asker.remove(stale)) == "KErrTopicNotFound"
        assert code(asker.produce(stale, 1, [b"x"])) == "KErrTopicNotFound"
        assert code(asker.broker(stale, 1).error) == "KErrTopicNotFound"
        error, stored = asker.publish([(stale, 1, [b"x"])])
        assert (code(error), stored) == ("KErrTopicNotFound", 0)
        asked = pb.ConsumeRequest(topic_id=stale, partition_id=1)
        assert code(asker.stub.Consume(asked, timeout=CALL_SECONDS).error) == "KErrTopicNotFound"
    assert asker.topic("phoenix").topic.topic_id == second
    assert asker.values(second) == []


def test_ids_and_topics_outlive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process:
        seen: list[int] = []
        for ending in (process.stop, process.kill, process.stop):
            with Asker(process.grpc) as asker:
                if seen:
                    assert asker.topics() == {seen[0]: "stays"}
                    assert asker.topic("stays").topic.ttl_seconds == 60
                else:
                    seen.append(asker.created("stays", 2, ttl_seconds=60))
                    assert seen == [1], "they count from 1"
                seen.append(asker.created("goes"))
                assert code(asker.remove(seen[-1])) == "KNoError"
            ending()
            process.start()
        assert seen == sorted(set(seen)), "no id came twice"


def test_a_broker_alone_leads_everything(asker: Asker, broker: BrokerProcess) -> None:
    host, _, port = broker.grpc.rpartition(":")
    config = asker.config()
    assert [(node.host, node.port) for node in config.node_config_list] == [(host, int(port))]
    own = config.node_config_list[0]
    assert config.leader_id == own.id
    assert (code(asker.leader().error), asker.leader().leader_config) == ("KNoError", own)
    topic = asker.created("led", 3)
    for partition in (1, 2, 3):
        assert asker.broker(topic, partition).leader_config == own
    for partition in (0, 4, -1):
        assert code(asker.broker(topic, partition).error) == "KErrPartitionNotFound"
