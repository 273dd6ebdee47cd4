"""Consumers on three brokers: any of them answers, followers serve whoever allows it, and leaders come and go."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.consuming import NODES, SOON, Three, numbered, three_brokers, told, values
from tests.process import wait_until

pytestmark = pytest.mark.xdist_group("eeylops-three")

NAMES = [f"consumer{number}" for number in range(12)]  # so many that each broker coordinates some


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """Three brokers, which all run at the end of each test."""
    with three_brokers(tmp_path_factory.mktemp("three"), {"default.replication.factor": "3"}) as started:
        yield started


def topic_of(three: Three, name: str, partitions: int = 1) -> int:
    """A topic with ten values, known to all."""
    topic = three.consumers[1].created(name, partitions)
    three.produce(topic, 1, numbered(0, 10))
    return topic


def test_any_broker_registers_commits_and_tells(three: Three) -> None:
    topic = topic_of(three, "anywhere")
    for at, name in enumerate(NAMES):
        one, two, last = (three.consumers[NODES[(at + shift) % 3]] for shift in range(3))
        assert one.committed(name, topic) == "KErrConsumerNotRegistered"
        assert two.commit(name, topic, 1) == "KErrConsumerNotRegistered"
        assert one.register(name, topic) == "KNoError"
        assert two.committed(name, topic) == -1
        assert last.register(name, topic) == "KNoError"
        for consumer, offset in ((two, 9), (last, 4), (one, 5)):
            assert consumer.commit(name, topic, offset) == "KNoError"
            assert [each.committed(name, topic) for each in three.consumers.values()] == [offset] * 3
        assert last.register(name, topic) == "KNoError"
        assert one.committed(name, topic) == 5
        assert two.commit(name, topic, 11) == "KErrInvalidArg"
        assert two.register("a::b", topic) == "KErrInvalidArg"


def test_many_consumers_at_once_through_all_brokers(three: Three) -> None:
    topic = topic_of(three, "crowded")

    def work(number: int) -> list[object]:
        consumer, name = three.consumers[NODES[number % 3]], f"busy{number}"
        return [
            consumer.register(name, topic),
            *(consumer.commit(name, topic, offset) for offset in range(5)),
            three.consumers[NODES[(number + 1) % 3]].committed(name, topic),
        ]

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(work, range(48))) == [["KNoError"] * 6 + [4]] * 48


def has_all(three: Three, node: int, topic: int) -> bool:
    return len(values(three.consumers[node].consume(topic, follower=True))) == 10


def test_values_are_the_leaders_and_followers_serve_whoever_allows_it(three: Three) -> None:
    topic = topic_of(three, "followed")
    leader = three.leader(topic)
    for node in NODES:
        consumer = three.consumers[node]
        if node != leader:
            answer = consumer.consume(topic)
            assert told(answer) == "KErrNotLeader"
            assert answer.error.leader_id == leader
            (streamed,) = consumer.subscribe(topic)
            assert (told(streamed), streamed.error.leader_id) == ("KErrNotLeader", leader)
            assert consumer.read(topic, follower=True, start_offset=12) == ([], 12)  # it may only be late
        wait_until(partial(has_all, three, node, topic), SOON, "what the leader has")
        assert consumer.read(topic, follower=True, start_offset=-1, start_timestamp=1) == (numbered(0, 10), 10)


def test_a_stream_from_a_follower_follows_the_head(three: Three) -> None:
    topic = topic_of(three, "behind")
    follower = next(node for node in NODES if node != three.leader(topic))
    consumer = three.consumers[follower]
    assert consumer.register("behind", topic) == "KNoError"
    stream = consumer.subscribe(topic, follower=True, consumer_id="behind", auto_commit=True)
    found: list[bytes] = []
    for at in range(10, 40, 10):
        three.produce(topic, 1, numbered(at, at + 10))
        while len(found) < at + 10:
            found += values(next(stream))
    assert found == numbered(0, 40)
    wait_until(lambda: three.consumers[1].committed("behind", topic) == 40, SOON, "its commits")
    stream.cancel()


def test_a_deleted_topics_consumers_are_gone_everywhere(three: Three) -> None:
    topic = topic_of(three, "passing")
    for name in NAMES:
        assert three.consumers[2].register(name, topic) == "KNoError"
    assert three.consumers[3].remove(topic).error_code == pb.KNoError
    again = topic_of(three, "passing")

    def are_gone() -> bool:  # their coordinators hear of it each at its time
        told_by = {each.committed(name, again) for name in NAMES for each in three.consumers.values()}
        return told_by == {"KErrConsumerNotRegistered"}

    wait_until(are_gone, SOON, "consumers that are gone")


def test_commits_outlive_their_coordinator_and_streams_name_the_new_leader(three: Three) -> None:
    topic = topic_of(three, "moved")
    for at, name in enumerate(NAMES):
        assert three.consumers[1].register(name, topic) == "KNoError"
        assert three.consumers[1].commit(name, topic, at % 10) == "KNoError"
    gone = three.leader(topic)
    stays = next(node for node in NODES if node != gone)
    stream = three.consumers[gone].subscribe(topic)
    assert values(next(stream)) == numbered(0, 10)
    three.cluster.kill([gone])
    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [three.consumers[stays].committed(name, topic) for name in NAMES] == [at % 10 for at in range(len(NAMES))]
    leader = three.leader(topic, among=stays, other_than=gone)
    assert three.consumers[stays].commit(NAMES[0], topic, 7) == "KNoError"
    three.produce(topic, 1, numbered(10, 20), among=stays)
    assert three.consumers[leader].resume(NAMES[0], topic) == (numbered(7, 20), 20)
    three.cluster.restart([gone])
    three.consumers[gone].ready()

    def is_told() -> bool:
        return three.consumers[gone].committed(NAMES[0], topic) == 7

    wait_until(is_told, SOON, "the commit on the broker that was away")


def test_a_leader_that_hands_over_ends_its_streams_with_the_new_one(three: Three) -> None:
    topic = topic_of(three, "handed")
    leader = three.leader(topic)
    stream = three.consumers[leader].subscribe(topic)
    assert values(next(stream)) == numbered(0, 10)
    three.cluster.brokers[leader].stop()  # it hands over what it leads, then closes its doors
    ended: list[object] = []
    try:
        ended += [told(answer) for answer in stream]
    except grpc.RpcError as error:
        ended.append(error.code())
    assert ended in (["KErrNotLeader"], [grpc.StatusCode.UNAVAILABLE])
    three.cluster.restart([leader])
    three.consumers[leader].ready()


def test_a_broker_that_hangs_keeps_nobody_waiting_beyond_his_deadline(three: Three) -> None:
    topic = topic_of(three, "hanging")
    for name in NAMES:
        assert three.consumers[1].register(name, topic) == "KNoError"
    hangs = 3
    three.cluster.brokers[hangs].pause()

    def commit(name: str) -> str:
        asked = pb.CommitRequest(consumer_id=name, topic_id=topic, partition_id=1, offset=1)
        try:
            answer = three.consumers[1].stub.Commit(asked, timeout=2.0)
        except grpc.RpcError as error:
            return str(error.code().name)
        return pb.ErrorCodes.Name(answer.error.error_code)

    try:
        with ThreadPoolExecutor(len(NAMES)) as threads:
            results = set(threads.map(commit, NAMES))
    finally:
        three.cluster.brokers[hangs].resume()
    assert results <= {"KNoError", "KErrTimeout", "KErrTransport", "DEADLINE_EXCEEDED"}
    for name in NAMES:
        wait_until(partial(_commits, three, name, topic), SOON, f"a commit of {name}")
        assert {each.committed(name, topic) for each in three.consumers.values()} == {2}


def _commits(three: Three, name: str, topic: int) -> bool:
    return three.consumers[2].commit(name, topic, 2) == "KNoError"
