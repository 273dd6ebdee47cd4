"""SSKafka's document, line by line, against five broker processes: what its sanity checks send and expect."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

CLIENT = Path(__file__).parents[2] / "client"
NODES = (1, 2, 3, 4, 5)
ALL = [str(node) for node in NODES]
SOON = 30.0

pytestmark = pytest.mark.xdist_group("sskafka")


class Five:
    """Five brokers, asked as curl would."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster

    def ask(
        self, node: int, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        connection = http.client.HTTPConnection(self.cluster.address(node, "http"), timeout=SOON)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {} if data is None else {"Content-Type": content_type})
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        finally:
            connection.close()

    def health(self, node: int) -> dict[str, Any]:
        status, content = self.ask(node, "GET", "/healthcheck")
        assert status == 200 and isinstance(content, dict)
        return content

    def leader(self) -> int:
        """Whom all that run take for the leader, when they agree."""
        found: list[int] = []
        among = self.cluster.running()

        def agree() -> bool:
            found[:] = [self.health(node)["leader_broker_id"] for node in among]
            return len(set(found)) == 1 and found[0] in among

        wait_until(agree, SOON, "one leader")
        return found[0]

    def create(self, topic: str, partitions: int = 3) -> None:
        status, content = self.ask(
            self.leader(), "POST", "/admin/v1/topics", {"topic_name": topic, "partition_count": partitions}
        )
        assert status == 201, content

    def produce(self, partition: str, payload: str, *, acks: object = "all", **more: object) -> tuple[int, Any]:
        body = {"topic_partition": partition, "payload": payload, "acks": acks, **more}
        return self.ask(self.leader(), "POST", "/data/v1/produce", body)

    def consume(self, partition: str, after: object = -1, most: object = 100, **more: object) -> tuple[int, Any]:
        body = {"topic_partition": partition, "last_offset": after, "max_batch_size": most, **more}
        return self.ask(self.leader(), "POST", "/data/v1/consume", body)

    def epoch(self) -> int:
        state = json.loads((self.cluster.data(self.leader()) / "metadata" / "quorum-state").read_text())
        return int(state["leader_epoch"])

    @property
    def list(self) -> str:
        return ",".join(f"{node}@{self.cluster.address(node, 'http')}" for node in NODES)

    def script(self, name: str, *args: str, typed: str = "", brokers: str | None = None) -> tuple[int, str]:
        command = [sys.executable, str(CLIENT / f"{name}.py"), *args, "-b", brokers or self.list]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60, cwd="/", check=False)
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Five]:
    with ClusterProcesses(tmp_path_factory.mktemp("five"), LoopbackNetwork(), NODES) as cluster:
        yield Five(cluster)


def topic_shown(name: str, partitions: int) -> dict[str, Any]:
    shown = [{"id": f"{name}-{number}", "replica_brokers": ALL} for number in range(1, partitions + 1)]
    return {"topic_name": name, "partitions": shown}


def test_five_brokers_are_up_and_agree_on_a_leader(five: Five) -> None:
    leader = five.leader()
    for node in NODES:
        assert five.health(node) == {"status": "up", "broker_id": node, "leader_broker_id": leader}


def test_topics_are_made_listed_and_deleted_at_the_leader_only(five: Five) -> None:
    leader = five.leader()
    other = next(node for node in NODES if node != leader)
    wanted = {"topic_name": "testtopic", "partition_count": 3}
    refusal = {"detail": f"leader is {leader}, can't accept"}
    assert five.ask(leader, "POST", "/admin/v1/topics", wanted) == (201, topic_shown("testtopic", 3))
    assert five.ask(leader, "POST", "/admin/v1/topics", wanted) == (409, {"detail": "topic testtopic already exists"})
    assert five.ask(other, "POST", "/admin/v1/topics", wanted) == (421, refusal)
    five.create("othertopic")
    status, content = five.ask(leader, "GET", "/admin/v1/topics")
    assert status == 200
    assert [topic for topic in content["topics"] if topic["topic_name"] in ("testtopic", "othertopic")] == [
        topic_shown("testtopic", 3),
        topic_shown("othertopic", 3),
    ]
    assert five.ask(other, "GET", "/admin/v1/topics") == (421, refusal)
    assert five.ask(other, "DELETE", "/admin/v1/topics/testtopic") == (421, refusal)
    assert five.ask(leader, "DELETE", "/admin/v1/topics/testtopic") == (204, None)
    assert five.ask(leader, "DELETE", "/admin/v1/topics/testtopic")[0] == 404
    names = [topic["topic_name"] for topic in five.ask(leader, "GET", "/admin/v1/topics")[1]["topics"]]
    assert "testtopic" not in names and "othertopic" in names


@pytest.mark.parametrize(
    "wanted",
    [
        {"topic_name": "with-dash", "partition_count": 1},
        {"topic_name": "", "partition_count": 1},
        {"topic_name": "nopartitions", "partition_count": 0},
        {"topic_name": "nopartitions"},
        {"topic_name": "many", "partition_count": 1_000_000_000},
        {"topic_name": "../up", "partition_count": 1},
        {"topic_name": "a" * 250, "partition_count": 1},
        {"partition_count": 1},
        [],
    ],
    ids=["dash", "empty", "zero", "no count", "too many", "path", "long", "no name", "no object"],
)
def test_topics_that_cannot_be_are_refused(five: Five, wanted: object) -> None:
    status, content = five.ask(five.leader(), "POST", "/admin/v1/topics", wanted)
    assert status == 400 and content["detail"]


def test_records_are_produced_and_consumed_in_order(five: Five) -> None:
    five.create("orders")
    for number, text in enumerate(("new", "second", "third"), start=1):
        assert five.produce("orders-1", f"this is my {text} message!", key=f"msg{number}") == (204, None)
    first, second, third = (
        {"offset": offset, "key": f"msg{offset + 1}", "payload": f"this is my {text} message!"}
        for offset, text in enumerate(("new", "second", "third"))
    )
    assert five.consume("orders-1", most=2) == (200, {"last_offset": 1, "records": [first, second]})
    assert five.consume("orders-1", after=1) == (200, {"last_offset": 2, "records": [third]})
    assert five.consume("orders-1", after="2", most="5") == (200, {"last_offset": 2, "records": []})
    assert five.consume("orders-2") == (200, {"last_offset": -1, "records": []})


def test_what_does_not_exist_is_404_and_what_is_led_elsewhere_421(five: Five) -> None:
    five.create("letters", 1)
    leader = five.leader()
    other = next(node for node in NODES if node != leader)
    for partition in ("letters-2", "letters-0", "nothing-1", "letters"):
        assert five.produce(partition, "x")[0] == 404
        assert five.consume(partition)[0] == 404
    body = {"topic_partition": "letters-1", "payload": "x", "acks": "1"}
    refusal = {"detail": f"leader is {leader}, can't accept"}
    assert five.ask(other, "POST", "/data/v1/produce", body) == (421, refusal)
    assert five.ask(other, "POST", "/data/v1/consume", {**body, "last_offset": -1, "max_batch_size": 1}) == (
        421,
        refusal,
    )


@pytest.mark.parametrize("acks", ["1", 1, "0", 0, "all"])
def test_acks_are_taken_as_text_and_as_numbers_and_the_key_may_be_missing(five: Five, acks: object) -> None:
    name = f"acks{type(acks).__name__}{acks}"
    five.create(name, 1)
    assert five.produce(f"{name}-1", "x", acks=acks)[0] == 204
    wait_until(lambda: len(five.consume(f"{name}-1")[1]["records"]) == 1, SOON, "the record")
    assert five.consume(f"{name}-1")[1]["records"][0] == {"offset": 0, "key": None, "payload": "x"}


def test_every_broker_has_the_records_in_its_files(five: Five) -> None:
    five.create("copies", 1)
    assert five.produce("copies-1", "look for me on every disk")[0] == 204
    for node in NODES:
        log = five.cluster.data(node) / "copies-0" / "00000000000000000000.log"
        assert b"look for me on every disk" in log.read_bytes()


def test_the_metadata_log_is_readable_and_fetched_as_the_document_says(five: Five) -> None:
    five.create("meta", 1)
    leader = five.leader()
    assert five.ask(leader, "DELETE", "/admin/v1/topics/meta")[0] == 204
    lines = (five.cluster.data(leader) / "metadata" / "__cluster_metadata.log").read_text().splitlines()
    split = [line.split(" ", 3) for line in lines]
    assert [int(offset) for offset, *_ in split] == list(range(len(split)))
    kinds = [(type_, json.loads(body).get("topic_name")) for _, _, type_, body in split]
    assert kinds.index(("create-topic", "meta")) < kinds.index(("delete-topic", "meta"))
    wanted = {"last_offset": -1, "last_offset_epoch": -1, "max_batch_size": 1000}
    status, content = five.ask(leader, "POST", "/kraft/v1/fetchMetadata", wanted, "application-json")
    assert status == 200
    made = [each for each in content["records"] if each["action"] == "create-topic"]
    found = next(each for each in made if each["payload"]["topic_name"] == "meta")
    assert found.keys() == {"offset", "epoch", "action", "payload"}
    assert sorted(found["payload"]["partitions"][0]["replica_brokers"]) == ALL
    other = next(node for node in NODES if node != leader)
    assert five.ask(other, "POST", "/kraft/v1/fetchMetadata", wanted)[0] == 421
    diverging = {"last_offset": len(lines) + 5, "last_offset_epoch": 0, "max_batch_size": 10}
    status, content = five.ask(leader, "POST", "/kraft/v1/fetchMetadata", diverging)
    assert status == 200 and content.keys() == {"diverging_epoch", "diverging_offset"}


def test_a_follower_acknowledges_by_consuming(five: Five) -> None:
    five.create("heard", 1)
    assert five.produce("heard-1", "one")[0] == 204
    assert five.consume("heard-1", after=0, follower_broker_id="2") == (200, {"last_offset": 0, "records": []})


def test_the_scripts_do_what_the_document_says(five: Five) -> None:
    code, out = five.script("create_topic", "mynewtopic", "-p", "4", "-r", "2")
    assert (code, json.loads(out)) == (0, topic_shown("mynewtopic", 4))
    code, out = five.script("create_topic", "mynewtopic")
    assert (code, json.loads(out)) == (1, {"detail": "topic mynewtopic already exists"})
    code, out = five.script("list_topics")
    assert code == 0 and topic_shown("mynewtopic", 4) in json.loads(out)["topics"]
    assert out.startswith('{\n    "topics": [\n        {\n            "topic_name"')
    typed = "msg1\nmy first message\nmsg2\nmy second message\n\n"
    code, out = five.script("produce", "mynewtopic", typed=typed)
    assert code == 0 and out.count("> OK") == 2
    stored = [five.consume(f"mynewtopic-{number}")[1]["records"] for number in range(1, 5)]
    assert sorted(record["payload"] for records in stored for record in records) == [
        "my first message",
        "my second message",
    ]
    code, out = five.script("delete_topic", "mynewtopic")
    assert (code, out) == (0, "")
    code, out = five.script("delete_topic", "mynewtopic")
    assert code == 1 and "does not exist" in json.loads(out)["detail"]
    leader = five.leader()
    others = ",".join(f"{node}@{five.cluster.address(node, 'http')}" for node in NODES if node != leader)
    code, out = five.script("list_topics", brokers=others)
    assert code == 1 and json.loads(out) == {"detail": f"leader is {leader}, can't accept"}


def test_consume_prints_what_comes_until_it_is_interrupted(five: Five) -> None:
    five.create("read", 1)
    assert five.produce("read-1", "my first message", key="msg1")[0] == 204
    command = [sys.executable, str(CLIENT / "consume.py"), "read-1", "-s", "1", "-b", five.list]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as consumer:
        try:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "[0] [msg1] my first message\n"
            assert five.produce("read-1", "my second message", key="msg2")[0] == 204
            assert consumer.stdout.readline() == "[1] [msg2] my second message\n"
            consumer.send_signal(signal.SIGINT)
            assert consumer.wait(SOON) == 0
        finally:
            consumer.kill()


def test_consuming_a_partition_that_does_not_exist_fails(five: Five) -> None:
    code, out = five.script("consume", "nothing-1")
    assert code == 1 and json.loads(out)["detail"]


def test_acks_all_waits_for_a_replica_that_is_down(five: Five) -> None:
    five.create("patience", 1)
    leader = five.leader()
    victim = next(node for node in NODES if node != leader and not _leads(five, node, "patience"))
    five.cluster.kill([victim])
    answers: list[tuple[int, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(five.produce("patience-1", "for all of you")))
    waiting.start()
    try:
        assert five.produce("patience-1", "for the leader", acks="1")[0] == 204
        wait_until(lambda: len(five.consume("patience-1")[1]["records"]) == 2, SOON, "both records")
        assert answers == [], "a replica is down, and yet all have the record"
    finally:
        five.cluster.restart([victim])
        waiting.join(SOON)
    assert answers == [(204, None)]


def _leads(five: Five, node: int, topic: str) -> bool:
    status, content = five.ask(node, "GET", "/openapi.json")
    assert status == 200 and content["openapi"]
    body = {"topic_partition": f"{topic}-1", "last_offset": -1, "max_batch_size": 1}
    connection = http.client.HTTPConnection(five.cluster.address(node, "http"), timeout=SOON)
    try:
        connection.request("POST", "/data/v1/consume", json.dumps(body), {"x-odradek-forwarded": "1"})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def test_another_leads_when_the_leader_dies_and_its_return_causes_no_election(five: Five) -> None:
    five.create("lasting", 3)
    for number in (1, 2, 3):
        assert five.produce(f"lasting-{number}", f"kept {number}")[0] == 204
    old, epoch = five.leader(), five.epoch()
    five.cluster.kill([old])
    new = five.leader()
    assert new != old
    state = json.loads((five.cluster.data(new) / "metadata" / "quorum-state").read_text())
    assert (state["leader_id"], state["leader_epoch"] > epoch) == (new, True)
    body = {"last_offset": -1, "max_batch_size": 10}
    for number in (1, 2, 3):
        wanted = {**body, "topic_partition": f"lasting-{number}"}
        wait_until(
            lambda wanted=wanted: five.ask(new, "POST", "/data/v1/consume", wanted)[0] == 200,
            SOON,
            "a leader of the partition",
        )
        records = five.ask(new, "POST", "/data/v1/consume", wanted)[1]["records"]
        assert [record["payload"] for record in records] == [f"kept {number}"]
    after_election = five_epoch(five, new)
    five.cluster.restart([old])
    assert five.leader() == new
    assert five_epoch(five, new) == after_election


def five_epoch(five: Five, node: int) -> int:
    state = json.loads((five.cluster.data(node) / "metadata" / "quorum-state").read_text())
    return int(state["leader_epoch"])


def test_without_a_majority_nothing_is_acknowledged(five: Five) -> None:
    five.create("minority", 1)
    leader = five.leader()
    victims = [node for node in NODES if node != leader][:3]
    five.cluster.kill(victims)
    try:
        left = [node for node in NODES if node not in victims]
        for node in left:
            wanted = {"topic_name": "never", "partition_count": 1}
            assert five.ask(node, "POST", "/admin/v1/topics", wanted)[0] in (421, 503)
            body = {"topic_partition": "minority-1", "payload": "x", "acks": "all"}
            wait_until(
                lambda node=node: five.health(node)["leader_broker_id"] == -1,
                SOON,
                "the leader to resign",
            )
            assert five.ask(node, "POST", "/data/v1/produce", body) == (421, {"detail": "leader is -1, can't accept"})
    finally:
        five.cluster.restart(victims)
    names = [topic["topic_name"] for topic in five.ask(five.leader(), "GET", "/admin/v1/topics")[1]["topics"]]
    assert "minority" in names


def test_a_vote_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """The document's own check, at one broker of five while the others are not there."""
    network = LoopbackNetwork()
    cluster = ClusterProcesses(tmp_path, network, NODES)
    alone = Five(cluster)

    def vote(epoch: int, candidate: str) -> Any:
        wanted = {"candidate_epoch": epoch, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": candidate}
        status, content = alone.ask(1, "POST", "/kraft/v1/voteRequest", wanted, "application-json")
        assert status == 200
        return content

    try:
        cluster.restart([1])
        state = json.loads((cluster.data(1) / "metadata" / "quorum-state").read_text())
        assert (state["leader_id"], state["leader_epoch"], state["voted_id"]) == (-1, 0, -1)
        assert vote(1, "3") == {"granted": True}
        cluster.kill([1])
        cluster.restart([1])
        assert vote(1, "4") == {"granted": False, "leader_epoch": 0, "leader_id": -1}
        assert vote(1, "3") == {"granted": True}, "the same candidate again"
        assert vote(2, "4") == {"granted": True}
        assert vote(1, "3")["granted"] is False, "an epoch that is over"
        assert vote(3, "77")["granted"] is False, "a stranger"
        begin = {"leader_epoch": 2, "leader_id": "4"}
        assert alone.ask(1, "POST", "/kraft/v1/beginQuorumEpoch", begin, "application-json")[1] == {"accepted": True}
        state = json.loads((cluster.data(1) / "metadata" / "quorum-state").read_text())
        assert (state["leader_id"], state["leader_epoch"]) == (4, 2)
        assert alone.health(1)["leader_broker_id"] == 4
        late = {"leader_epoch": 1, "leader_id": "3"}
        refused = {"accepted": False, "leader_epoch": 2, "leader_id": 4}
        assert alone.ask(1, "POST", "/kraft/v1/beginQuorumEpoch", late)[1] == refused
    finally:
        cluster.close()
