"""Brokers that must not be let in, and brokers that must not act: real processes, and what they tell people.

Twins, exchanged data directories, other clusters, other voters, no secret, and a minority that is asked to decide.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics, fetch, produce
from tests.edge.raw import RawClient, fetch_request, produce_request
from tests.fault.cluster import Broker, ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until

pytestmark = pytest.mark.xdist_group("bad-members")  # one cluster at a time

NODES = [1, 2, 3]
STRANGER = 9
TOPIC = "orders"
SOON = 30.0
SHORTLY = 10.0
SECRET_VARIABLE, SECRET_HEADER, SECRET = "ODRADEK_CLUSTER_SECRET", "x-odradek-secret", "swordfish"
KRAFT_REQUESTS = ("voteRequest", "beginQuorumEpoch", "endQuorumEpoch", "fetchMetadata", "fetchSnapshot", "command")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), LoopbackNetwork(), NODES) as brokers:
        yield brokers


def command_of(cluster: ClusterProcesses, node: int, **flags: str) -> list[str]:
    """The command of a broker of the cluster, with other flags."""
    command = cluster.serve_command(node)
    for name, value in flags.items():
        command[command.index(f"--{name.replace('_', '-')}") + 1] = value
    return command


def free_addresses(node: int) -> dict[str, str]:
    """Where nobody listens."""
    network = LoopbackNetwork()
    return {door: f"127.0.0.1:{network.port(node, door)}" for door in ("kafka", "http")}


def refusal_of(command: list[str]) -> str:
    """What a broker says that must not start."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, env=environment, check=False)
    assert done.returncode not in (0, -9), done.stderr
    assert "Traceback" not in done.stderr
    assert "odradek ready" not in done.stdout, "scripts were told that it serves"
    return done.stderr.strip().splitlines()[-1]


@contextmanager
def in_the_place_of(cluster: ClusterProcesses, node: int) -> Iterator[None]:
    """A broker is away meanwhile, and back and known at the end."""
    cluster.brokers[node].stop()
    try:
        yield
    finally:
        cluster.restart([node])
        wait_until(lambda: status_of(cluster)["state"] == "healthy", SOON, "a healthy cluster")


def ask(
    cluster: ClusterProcesses, node: int, method: str, path: str, body: object = None, secret: str | None = None
) -> tuple[int, Any]:
    """The status and the JSON of an answer of a broker's HTTP door."""
    connection = http.client.HTTPConnection(cluster.address(node, "http"), timeout=SOON)
    try:
        headers = {} if secret is None else {SECRET_HEADER: secret}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


def status_of(cluster: ClusterProcesses) -> dict[str, Any]:
    """What `odradek cluster status --json` says."""
    odradek = str(Path(sys.executable).with_name("odradek"))
    command = [odradek, "cluster", "status", "--json", "--bootstrap", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def brokers_known(cluster: ClusterProcesses, node: int) -> set[int]:
    """Whom a broker names to clients."""
    admin = AdminClient({"bootstrap.servers": cluster.address(node, "kafka"), "log_level": 0})
    return set(admin.list_topics(timeout=SOON).brokers)


def make_topic(cluster: ClusterProcesses, nodes: list[int]) -> None:
    """One partition that each of these brokers has in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.address(nodes[0], "kafka"), "log_level": 0})
    wait_until(lambda: len(brokers_known(cluster, nodes[0])) == len(nodes), SOON, "all brokers in the metadata")
    admin.create_topics([NewTopic(TOPIC, 1, len(nodes))])[TOPIC].result(SOON)
    wait_until(
        lambda: len(admin.list_topics(TOPIC, timeout=SOON).topics[TOPIC].partitions[0].isrs) == len(nodes),
        SOON,
        "every replica in sync",
    )


def other_cluster(work: Path, node: int) -> tuple[Path, str]:
    """The data directory of a broker that stood alone, and the id of its cluster."""
    data, addresses = work / "other", free_addresses(node)
    odradek = str(Path(sys.executable).with_name("odradek"))
    doors = ["--kafka", addresses["kafka"], "--http", addresses["http"], "--grpc", "off"]
    lone = Broker(node, data, [odradek, "serve", "--broker-id", str(node), "--data", str(data), *doors])
    lone.start()
    try:
        wait_until(lone.is_ready, SOON, "a lone broker")
    finally:
        assert lone.stop() == 0
    cluster_id = json.loads((data / "metadata" / "quorum-state").read_text(encoding="utf-8"))["cluster_id"]
    assert isinstance(cluster_id, str) and cluster_id
    return data, cluster_id


# Twins


def test_a_second_process_with_the_id_of_a_voter_refuses_to_start(cluster: ClusterProcesses, tmp_path: Path) -> None:
    said = refusal_of(command_of(cluster, 1, data=str(tmp_path), **free_addresses(1)))
    assert f"another process answers as broker 1 at {cluster.address(1, 'http')}" in said
    assert "--broker-id" in said, "it says what to do"
    assert status_of(cluster)["state"] == "healthy"


def test_a_second_process_with_the_id_of_an_observer_refuses_to_start(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    def observer(name: str) -> list[str]:
        return command_of(cluster, 1, broker_id=str(STRANGER), data=str(tmp_path / name), **free_addresses(STRANGER))

    first = Broker(STRANGER, tmp_path / "first", observer("first"))
    first.start()
    try:
        wait_until(first.is_ready, SOON, "the first of the two")
        wait_until(lambda: STRANGER in brokers_known(cluster, 1), SOON, "the first of the two in the metadata")
        said = refusal_of(observer("second"))
        assert f"another broker with id {STRANGER} is alive" in said
        assert first.is_running
        assert STRANGER in brokers_known(cluster, 1)
    finally:
        first.stop()
        odradek = str(Path(sys.executable).with_name("odradek"))
        forget = [odradek, "cluster", "decommission", str(STRANGER), "--bootstrap", cluster.bootstrap, "--yes"]
        done = subprocess.run(forget, capture_output=True, text=True, timeout=SOON, check=False)
        assert done.returncode == 0, done.stderr


# Directories


def test_the_data_directory_of_another_broker_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    shutil.copytree(cluster.data(1) / "metadata", tmp_path / "metadata")
    with in_the_place_of(cluster, 2):
        said = refusal_of(command_of(cluster, 2, data=str(tmp_path)))
    assert f"{tmp_path}" in said
    assert "belongs to broker 1 and not to broker 2" in said
    assert "--data" in said, "it says what to do"


def test_a_voter_of_another_cluster_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    data, theirs = other_cluster(tmp_path, 2)
    ours = status_of(cluster)["cluster_id"]
    with in_the_place_of(cluster, 2):
        said = refusal_of(command_of(cluster, 2, data=str(data)))
        assert len({status_of(cluster)["cluster_id"], ours}) == 1, "the cluster did not take up the other's id"
    assert ours in said and theirs in said
    assert "cluster" in said


def test_an_observer_of_another_cluster_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    data, theirs = other_cluster(tmp_path, STRANGER)
    ours = status_of(cluster)["cluster_id"]
    said = refusal_of(command_of(cluster, 1, broker_id=str(STRANGER), data=str(data), **free_addresses(STRANGER)))
    assert ours in said and theirs in said
    assert brokers_known(cluster, 1) == set(NODES)


# Voters


@contextmanager
def with_voters(cluster: ClusterProcesses, node: int, voters: str) -> Iterator[None]:
    """In the place of a broker that is away: it runs with another list."""
    other = Broker(node, cluster.data(node), command_of(cluster, node, voters=voters))
    other.start()
    try:
        wait_until(other.is_ready, SOON, "the broker with other voters")
        yield
    finally:
        other.stop()


def differences(cluster: ClusterProcesses) -> list[str]:
    return [problem for problem in status_of(cluster)["problems"] if "voter lists differ" in problem]


def test_a_voter_list_that_differs_is_named_in_the_log_and_in_the_status(cluster: ClusterProcesses) -> None:
    before = {node: cluster.brokers[node].log.stat().st_size for node in NODES}

    def logged() -> str:
        return "".join(cluster.brokers[node].log.read_text(encoding="utf-8")[before[node] :] for node in NODES)

    addresses = {node: f"{node}@{cluster.address(node, 'http')}" for node in NODES}
    voters = ",".join([*addresses.values(), f"4@{free_addresses(4)['http']}"])
    with in_the_place_of(cluster, 3), with_voters(cluster, 3, voters):
        wait_until(lambda: voters.split(",")[3] in logged(), SOON, "a line that names the other voters")
        wait_until(lambda: bool(differences(cluster)), SOON, "a difference in the status")
        told = differences(cluster)[0]
        lists = {broker["broker"]: broker["voters"] for broker in status_of(cluster)["brokers"]}
    assert voters in told and "broker 3 has" in told and "brokers 1, 2 have" in told
    assert lists == {1: lists[1], 2: lists[1], 3: voters}
    assert lists[1] == ",".join(addresses.values())
    wait_until(lambda: not differences(cluster), SOON, "no difference any more")


@pytest.fixture(params=["the controller", "the other one"])
def misled(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], str]]]:
    """Broker 3 looks for one of the others in the wrong place: `ID@ADDRESS`, and what it has told since."""
    before = cluster.brokers[3].log.stat().st_size
    addresses = {node: cluster.address(node, "http") for node in NODES}
    with in_the_place_of(cluster, 3):
        wait_until(lambda: status_of(cluster)["controller"] in (1, 2), SOON, "a controller")
        controller = int(status_of(cluster)["controller"])
        missed = controller if request.param == "the controller" else 3 - controller
        addresses[missed] = free_addresses(STRANGER)["http"]
        with with_voters(cluster, 3, ",".join(f"{node}@{address}" for node, address in addresses.items())):
            yield (
                f"{missed}@{addresses[missed]}",
                lambda: cluster.brokers[3].log.read_text(encoding="utf-8")[before:],
            )


def test_a_voter_that_is_looked_for_in_the_wrong_place_is_named_in_the_status(
    cluster: ClusterProcesses, misled: tuple[str, Callable[[], str]]
) -> None:
    wait_until(lambda: bool(differences(cluster)), SHORTLY, "a difference in the status")
    told = differences(cluster)[0]
    assert misled[0] in told and "broker 3 has" in told


def test_a_voter_that_is_looked_for_in_the_wrong_place_is_named_in_the_log(
    misled: tuple[str, Callable[[], str]],
) -> None:
    voter, logged = misled
    wait_until(lambda: voter.partition("@")[2] in logged(), SHORTLY, "a line that names the address")


# The secret


@pytest.fixture(scope="module")
def secretive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Brokers 1 and 2 have a secret; broker 3, which has none, is not started yet."""
    brokers = ClusterProcesses(tmp_path_factory.mktemp("secretive"), LoopbackNetwork(), NODES)
    for node in (1, 2):
        brokers.brokers[node].environment[SECRET_VARIABLE] = SECRET
    try:
        brokers.restart((1, 2))
        make_topic(brokers, [1, 2])
        yield brokers
    finally:
        brokers.close()


def test_whoever_lacks_the_secret_is_let_in_nowhere(secretive: ClusterProcesses) -> None:
    for node in (1, 2):
        for name in KRAFT_REQUESTS:
            for wrong in (None, "", "swordfis", SECRET + "h"):
                status, content = ask(secretive, node, "POST", f"/kraft/v1/{name}", {}, wrong)
                assert status == 401, (name, wrong, content)
        assert ask(secretive, node, "GET", "/kraft/v1/status")[0] == 401
        assert ask(secretive, node, "GET", "/kraft/v1/status", secret=SECRET)[0] == 200


@pytest.mark.parametrize("version", [11, 12, 17])
@pytest.mark.parametrize("replica", [2, 3, STRANGER])
def test_a_stranger_does_not_fetch_as_a_replica(secretive: ClusterProcesses, version: int, replica: int) -> None:
    request = fetch_request(TOPIC)
    if version < 15:
        request.replica_id = replica
    else:
        request.replica_state.replica_id = replica
    with RawClient(secretive.network.port(1, "kafka")) as client:
        answer = client.ask(request, fetch.Response, version)
    assert isinstance(answer, fetch.Response)
    codes = {one.error_code for topic in answer.responses for one in topic.partitions} | {answer.error_code}
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes
    assert all(not one.records for topic in answer.responses for one in topic.partitions)


def test_a_broker_without_the_secret_does_not_join_and_says_why(secretive: ClusterProcesses) -> None:
    third = secretive.brokers[3]
    third.start()
    wait_until(lambda: not third.is_running, SOON, "the end of the one without a secret")
    third.is_wanted = False
    assert third.process.returncode == 1 and "secret" in third.log.read_text(encoding="utf-8")
    assert brokers_known(secretive, 1) == brokers_known(secretive, 2) == {1, 2}
    third.environment[SECRET_VARIABLE] = SECRET
    secretive.restart([3])
    wait_until(lambda: brokers_known(secretive, 1) == set(NODES), SOON, "the third, now that it has the secret")


# A minority


@pytest.fixture(scope="module")
def minority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterProcesses, int]]:
    """The one that is left of three, and led the topic."""
    with ClusterProcesses(tmp_path_factory.mktemp("minority"), LoopbackNetwork(), NODES) as brokers:
        make_topic(brokers, NODES)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        left = admin.list_topics(TOPIC, timeout=SOON).topics[TOPIC].partitions[0].leader
        brokers.kill([node for node in NODES if node != left])
        yield brokers, left


def test_a_minority_takes_no_write_over_rest(minority: tuple[ClusterProcesses, int]) -> None:
    brokers, left = minority
    writes = {
        "/admin/v1/topics": {"topic_name": "more", "partition_count": 1},
        "/data/v1/produce": {"topic_partition": f"{TOPIC}-1", "payload": "x", "acks": "all"},
    }
    for path, body in writes.items():
        status, content = ask(brokers, left, "POST", path, body)
        assert status in (421, 503), (path, status, content)
        assert "leader" in content["detail"]


def test_a_minority_acknowledges_nothing(minority: tuple[ClusterProcesses, int]) -> None:
    brokers, left = minority
    request = produce_request(TOPIC, bytes(build_batch([NewRecord(b"never", timestamp=7)])))
    request.timeout_ms = 3_000
    with RawClient(brokers.network.port(left, "kafka"), SOON) as client:
        for _ in range(2):
            answer = client.ask(request, produce.Response, 9)
            assert isinstance(answer, produce.Response)
            code = answer.responses[0].partition_responses[0].error_code
            assert code != 0, "it was acknowledged"
            assert ErrorCode(code).retriable, ErrorCode(code)


def test_a_minority_says_that_there_is_no_leader_when_a_topic_is_to_be_made(
    minority: tuple[ClusterProcesses, int],
) -> None:
    brokers, left = minority
    wanted = create_topics.RequestTopic(name="more", num_partitions=1, replication_factor=1)
    begin = time.monotonic()
    with RawClient(brokers.network.port(left, "kafka"), 2 * SOON) as client:
        answer = client.ask(create_topics.Request(topics=[wanted], timeout_ms=2_000), create_topics.Response, 5)
    assert isinstance(answer, create_topics.Response)
    assert answer.topics[0].error_code != 0
    assert "no leader" in (answer.topics[0].error_message or "")
    assert time.monotonic() - begin < 10.0, "the time that the request allows is heeded"
