"""Eeylops' door on three brokers: topics through any of them, values through the leader, and what if it goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import CALL_SECONDS, Asker, code
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

NODES = (1, 2, 3)
LEADER_SECONDS = 60.0  # for another broker to lead


class Three:
    """Three brokers and a channel to each."""

    def __init__(self, cluster: ClusterProcesses, channels: ExitStack) -> None:
        self.cluster = cluster
        self.askers = {node: channels.enter_context(Asker(cluster.address(node, "grpc"))) for node in NODES}

    def restart(self, node: int) -> None:
        """Start a broker that ended, and have its channel connected again."""
        self.cluster.restart([node])
        grpc.channel_ready_future(self.askers[node].channel).result(CALL_SECONDS)

    def leader(self, topic: int, partition: int = 1, among: int = 1) -> int:
        """Who leads, as one of them knows it; waits until somebody does."""
        found: list[int] = []

        def is_led() -> bool:
            answer = self.askers[among].broker(topic, partition)
            if answer.error.error_code == pb.KNoError:
                found.append(answer.leader_config.id)
            return bool(found)

        wait_until(is_led, LEADER_SECONDS, "a leader")
        return found[0]

    def produce(self, topic: int, partition: int, values: list[bytes], among: int = 1) -> None:
        """Store values with whoever leads."""

        def is_stored() -> bool:
            try:
                error = self.askers[self.leader(topic, partition, among)].produce(topic, partition, values)
            except grpc.RpcError as broken:
                assert broken.code() is grpc.StatusCode.UNAVAILABLE
                return False
            assert code(error) in ("KNoError", "KErrNotLeader")
            return bool(error.error_code == pb.KNoError)

        wait_until(is_stored, LEADER_SECONDS, "values to be stored")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    directory = tmp_path_factory.mktemp("three")
    with ClusterProcesses(directory, LoopbackNetwork(), NODES, grpc=True) as cluster, ExitStack() as channels:
        yield Three(cluster, channels)


def test_a_topic_of_one_broker_is_seen_at_once_by_who_asks_the_others_to_look(three: Three) -> None:
    for node in NODES:
        name = f"seen_{node}"
        assert code(three.askers[node].create(name, [1, 2])) == "KNoError"
        for other in NODES:
            found = three.askers[other].topic(name, sync=True)
            assert (code(found.error), list(found.topic.partition_ids)) == ("KNoError", [1, 2])
            assert three.askers[other].topics(sync=True)[found.topic.topic_id] == name
        for other in NODES:
            assert code(three.askers[other].create(name)) == "KErrTopicExists"
        remover = three.askers[node % 3 + 1]
        assert code(remover.remove(found.topic.topic_id)) == "KNoError"
        for other in NODES:
            assert code(three.askers[other].topic(name, sync=True).error) == "KErrTopicNotFound"
            assert name not in three.askers[other].topics(sync=True).values()


def test_an_id_that_another_broker_has_just_given_is_known_to_all(three: Three) -> None:
    for node in NODES:
        topic = three.askers[node].created(f"given_{node}")
        for other in NODES:
            assert code(three.askers[other].broker(topic, 1).error) == "KNoError"
            assert code(three.askers[other].produce(topic, 1, [b"x"])) in ("KNoError", "KErrNotLeader")


def test_of_those_who_make_one_topic_at_all_brokers_one_has_made_it(three: Three) -> None:
    asked = pb.CreateTopicRequest(topic=pb.Topic(topic_name="raced"))
    calls = [three.askers[number % 3 + 1].stub.CreateTopic.future(asked, timeout=CALL_SECONDS) for number in range(300)]
    codes = [code(call.result().error) for call in calls]
    assert {name: codes.count(name) for name in set(codes)} == {"KNoError": 1, "KErrTopicExists": 299}


def test_all_brokers_tell_the_same_of_the_cluster(three: Three) -> None:
    expected = [(node, *three.cluster.address(node, "grpc").rsplit(":", 1)) for node in NODES]
    for node in NODES:
        config = three.askers[node].config()
        assert [(each.id, each.host, str(each.port)) for each in config.node_config_list] == expected
        leader = three.askers[node].leader()
        assert code(leader.error) == "KNoError"
        assert leader.leader_config == config.node_config_list[config.leader_id - 1]
    topic = three.askers[1].created("told", 6)
    for partition in range(1, 7):
        answers = [three.askers[node].broker(topic, partition) for node in NODES]
        assert {code(answer.error) for answer in answers} == {"KNoError"}
        assert len({answer.leader_config.id for answer in answers}) == 1
        told = answers[0].leader_config
        assert (told.id, told.host, str(told.port)) in expected


def test_others_than_the_leader_say_who_it_is(three: Three) -> None:
    topic = three.askers[1].created("led", 3)
    for partition in (1, 2, 3):
        leader = three.leader(topic, partition)
        three.produce(topic, partition, [b"produced"])
        for node in NODES:
            asker = three.askers[node]
            if node == leader:
                error, stored = asker.publish([(topic, partition, [b"published"])])
                assert (code(error), stored) == ("KNoError", 1)
                continue
            error = asker.produce(topic, partition, [b"refused"])
            assert (code(error), error.leader_id) == ("KErrNotLeader", leader)
            error, stored = asker.publish([(topic, partition, [b"refused"])] * 5)
            assert (code(error), error.leader_id, stored) == ("KErrNotLeader", leader, 0)
            asked = pb.ConsumeRequest(topic_id=topic, partition_id=partition)
            error = asker.stub.Consume(asked, timeout=CALL_SECONDS).error
            assert (code(error), error.leader_id) == ("KErrNotLeader", leader)
        assert three.askers[leader].values(topic, partition) == [b"produced", b"published"]


def test_ids_of_removed_topics_are_refused_by_all(three: Three) -> None:
    topic = three.askers[1].created("gone", 3)
    assert code(three.askers[2].remove(topic)) == "KNoError"
    again = three.askers[3].created("gone", 3)
    assert again > topic
    for node in NODES:
        assert three.askers[node].topics(sync=True)[again] == "gone"  # it has heard of both
        assert code(three.askers[node].produce(topic, 1, [b"x"])) == "KErrTopicNotFound"
        assert code(three.askers[node].remove(topic)) == "KErrTopicNotFound"
        assert code(three.askers[node].broker(topic, 1).error) == "KErrTopicNotFound"


def test_what_a_stream_has_stored_outlives_its_leader(three: Three) -> None:
    topic = three.askers[1].created("moved")
    victim = three.leader(topic)
    others = [node for node in NODES if node != victim]
    three.produce(topic, 1, [b"answered"])
    sent = threading.Semaphore(0)

    def requests() -> Iterator[tuple[int, int, list[bytes]]]:
        number = 0
        while True:
            sent.release()
            yield topic, 1, [b"%d" % number]
            number += 1

    def publish() -> tuple[str, int]:
        try:
            error, stored = three.askers[victim].publish(requests())
        except grpc.RpcError as broken:
            return broken.code().name, 0
        return code(error), stored

    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish)
        for _ in range(2_000):
            assert sent.acquire(timeout=30)
        three.cluster.kill([victim])
        try:
            ended, _ = publishing.result(CALL_SECONDS)
            assert ended == "UNAVAILABLE"
            three.produce(topic, 1, [b"behind it"], among=others[0])
            heir = three.leader(topic, among=others[0])
            assert heir in others
            found = three.askers[heir].values(topic)
        finally:
            three.restart(victim)
    assert (found[0], found[-1]) == (b"answered", b"behind it")
    assert found[1:-1] == [b"%d" % number for number in range(len(found) - 2)], "a run without holes, each once"


def test_a_stream_hears_that_another_broker_leads_now(three: Three) -> None:
    topic = three.askers[1].created("handed")
    old = three.leader(topic)
    three.produce(topic, 1, [b"first"])
    is_over = threading.Event()

    def requests() -> Iterator[tuple[int, int, list[bytes]]]:
        number = 0
        while not is_over.wait(0.001):
            yield topic, 1, [b"%d" % number]
            number += 1

    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(three.askers[old].publish, requests())
        wait_until(lambda: len(three.askers[old].values(topic)) > 10, 30, "the stream")
        three.cluster.brokers[old].stop()  # in good order: it hands over before it closes its doors
        try:
            error, stored = publishing.result(CALL_SECONDS)
            is_over.set()
            assert code(error) == "KErrNotLeader"
            among = next(node for node in NODES if node != old)
            new = three.leader(topic, among=among)
            assert error.leader_id in (new, -1)
            wait_until(lambda: code(three.askers[new].produce(topic, 1, [b"last"])) == "KNoError", 60, "the new one")
            found = three.askers[new].values(topic)
        finally:
            is_over.set()
            three.restart(old)
    assert stored > 10
    assert found[1 : stored + 1] == [b"%d" % number for number in range(stored)], "what was told as stored is there"


def cut_at(data: Path) -> int:
    """Where the newest snapshot ends, and the metadata log begins."""
    return max((int(file.name.split("-")[0]) for file in (data / "metadata").glob("*.checkpoint")), default=-1)


def test_metadata_is_cut_at_a_snapshot_under_load_and_who_was_away_loads_it(tmp_path: Path) -> None:
    settings = {"metadata.snapshot.bytes": "4KiB", "min.insync.replicas": "2"}
    with (
        ClusterProcesses(tmp_path, LoopbackNetwork(), NODES, settings, grpc=True) as cluster,
        ExitStack() as channels,
    ):
        three = Three(cluster, channels)
        topic = three.askers[1].created("loaded", 3)
        away = next(node for node in NODES if node != three.askers[1].config().leader_id)
        stayed = [node for node in NODES if node != away]
        for partition in (1, 2, 3):
            three.produce(topic, partition, [b"before"])
        cluster.kill([away])
        log = (cluster.data(away) / "metadata" / "__cluster_metadata.log").read_text(encoding="utf-8")
        heard = int(log.splitlines()[-1].split()[0])  # the last that it knows
        partition = next(each for each in (1, 2, 3) if three.leader(topic, each, among=stayed[0]) in stayed)
        leader = three.leader(topic, partition, among=stayed[0])
        is_over = threading.Event()

        def requests() -> Iterator[tuple[int, int, list[bytes]]]:
            while not is_over.wait(0.002):
                yield topic, partition, [b"meanwhile"] * 10

        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(three.askers[leader].publish, requests())
            try:
                made = [three.askers[stayed[0]].created(f"made_{number}") for number in range(60)]
                assert code(three.askers[stayed[1]].remove(made[0])) == "KNoError"
                for node in stayed:
                    wait_until(lambda node=node: cut_at(cluster.data(node)) > heard, 30, "a log cut behind that")
            finally:
                is_over.set()
            error, stored = publishing.result(CALL_SECONDS)
        assert code(error) == "KNoError"
        three.restart(away)
        expected = three.askers[stayed[0]].topics()
        assert len(expected) == 60 and made[0] not in expected
        assert three.askers[away].topics(sync=True) == expected
        last = three.askers[away].created("last")
        assert last == max(made) + 1, "ids go on where they were"
        three.produce(topic, partition, [b"after"])
        found = three.askers[three.leader(topic, partition)].values(topic, partition)
        assert found == [b"before"] + [b"meanwhile"] * 10 * stored + [b"after"]
