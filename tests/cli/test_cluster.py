"""`odradek cluster` against three real brokers, which `odradek cluster up` runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Cli, Process, Ran
from tests.cli.ports import free_base
from tests.process import wait_until

BROKERS = 3
DEGRADED = 3
SETTLE_SECONDS = 30.0


class Running:
    """A cluster that is up, and its process."""

    def __init__(self, process: Process, kafka: str) -> None:
        self.process = process
        self.kafka = kafka

    def pid_of(self, broker_id: int) -> int:
        """The process of one broker, found by its command line."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                line = (path / "cmdline").read_bytes()
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == self.process.pid and f"--broker-id\0{broker_id}\0".encode() in line:
                return int(path.name)
        return -1


def up_command(directory: Path, *more: str) -> list[str]:
    base = free_base(3 * BROKERS)
    flags = ("--kafka-base", "--http-base", "--grpc-base")
    ports = [word for at, flag in enumerate(flags) for word in (flag, str(base + at * BROKERS))]
    return ["cluster", "up", "--brokers", str(BROKERS), "--data", str(directory / "cluster"), *ports, *more]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three brokers for all tests of this file; each leaves them healthy."""
    with Process(up_command(tmp_path_factory.mktemp("cluster")), "") as process:
        said = process.read_until(b"odradek cluster ready").decode()
        line = said[said.index("odradek cluster ready") :].splitlines()[0]
        assert line.startswith(f"odradek cluster ready brokers={BROKERS} kafka=127.0.0.1:")
        yield Running(process, line.rpartition("kafka=")[2])
        process.interrupt()
        ended = process.end()
        assert ended.status == 0, ended.err
        assert "all brokers have stopped" in ended.err


@pytest.fixture
def cluster(running: Running, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands against the three brokers."""
    monkeypatch.setenv("ODRADEK_BROKER", running.kafka)
    wait_until(lambda: cli("cluster", "status").status == 0, SETTLE_SECONDS, "a healthy cluster")
    return cli


def status_of(cli: Cli) -> tuple[int, dict[str, Any]]:
    ran: Ran = cli("cluster", "status", "--json")
    return ran.status, dict(ran.objects[0]) if ran.out else {}


def partitions_of(cli: Cli, topic: str) -> dict[int, dict[str, Any]]:
    return {int(str(row["partition"])): dict(row) for row in cli.ok("cluster", "describe", topic, "--json").objects}


def test_a_healthy_cluster_tells_its_brokers_and_its_quorum(cluster: Cli) -> None:
    status, found = status_of(cluster)
    assert (status, found["state"], found["problems"]) == (0, "healthy", [])
    assert [broker["broker"] for broker in found["brokers"]] == [1, 2, 3] == found["voters"]
    roles = {broker["broker"]: broker["role"] for broker in found["brokers"]}
    assert roles[found["controller"]] == "leader" and sorted(roles.values()) == ["leader", "voter", "voter"]
    assert found["epoch"] >= 1 and found["high_watermark"] > 0
    assert len({broker["voters"] for broker in found["brokers"]}) == 1
    head = cluster.ok("cluster", "status").lines[0]
    assert f"is healthy: controller broker {found['controller']}" in head and "3 brokers" in head


def test_replicas_are_spread_and_preferred_leaders_lead(cluster: Cli, topic: str) -> None:
    cluster.ok("topic", "create", topic, "-p", "3", "-r", "3")
    wait_until(
        lambda: all(row["state"] == "ok" for row in partitions_of(cluster, topic).values()),
        SETTLE_SECONDS,
        "all copies",
    )
    rows = partitions_of(cluster, topic)
    assert sorted(row["leader"] for row in rows.values()) == [1, 2, 3]
    assert all(sorted(row["replicas"]) == [1, 2, 3] for row in rows.values())


def test_a_broker_that_is_killed_is_seen_started_again_and_leads_again(
    cluster: Cli, running: Running, topic: str
) -> None:
    cluster.ok("topic", "create", topic, "-p", "3", "-r", "3")
    (index,) = [index for index, row in partitions_of(cluster, topic).items() if row["replicas"][0] == 2]
    before = running.pid_of(2)
    os.kill(before, signal.SIGSTOP)
    try:
        wait_until(lambda: status_of(cluster)[0] == DEGRADED, SETTLE_SECONDS, "that it is missed")
        wait_until(lambda: partitions_of(cluster, topic)[index]["leader"] in (1, 3), SETTLE_SECONDS, "another leader")
    finally:
        os.kill(before, signal.SIGKILL)
    running.process.read_until(b"broker 2 was killed by signal 9; it is started again", stream=2)
    wait_until(lambda: running.pid_of(2) not in (-1, before), SETTLE_SECONDS, "its next life")
    wait_until(lambda: status_of(cluster)[0] == 0, SETTLE_SECONDS, "a healthy cluster")
    ran = cluster.ok("cluster", "elect", topic)
    assert "0 failed" in ran.err
    assert partitions_of(cluster, topic)[index]["leader"] == 2


def test_partitions_move_and_records_are_there_after_it(cluster: Cli, topic: str) -> None:
    cluster.ok("topic", "create", topic, "-r", "1")
    cluster.ok("produce", topic, stdin=b"one\ntwo\n")
    ((home,),) = [row["replicas"] for row in partitions_of(cluster, topic).values()]
    others = [broker for broker in (1, 2, 3) if broker != home]
    wanted = ",".join(map(str, others))
    ran = cluster.ok("cluster", "reassign", topic, "0", wanted, "--wait", "--timeout", "60s")
    assert ran.lines == [f"{topic}-0 before={home} wanted={wanted} move=begun"]
    wait_until(lambda: partitions_of(cluster, topic)[0]["replicas"] == others, SETTLE_SECONDS, "the new replicas")
    assert cluster.ok("consume", topic).out == "one\ntwo\n"
    cluster.ok("cluster", "reassign", topic, "--factor", "3", "--wait", "--timeout", "60s")
    wait_until(lambda: len(partitions_of(cluster, topic)[0]["in_sync"]) == 3, SETTLE_SECONDS, "three copies")
    assert "no partition is being moved" in cluster.ok("cluster", "reassign", "--status").err
    assert cluster.ok("consume", topic).out == "one\ntwo\n"


def test_what_the_controller_refuses_is_told(cluster: Cli, topic: str) -> None:
    cluster.ok("topic", "create", topic, "-r", "3")
    assert "there is no broker 9" in cluster.fails("cluster", "reassign", topic, "0", "9", status=2)
    assert "4 replicas need 4 brokers" in cluster.fails("cluster", "reassign", topic, "--factor", "4")
    problem = cluster.fails("cluster", "decommission", "3", "--yes")
    assert "only 2 other brokers are up" in problem and "--shrink" in problem


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "alive"])
def test_a_broker_is_decommissioned(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool
) -> None:
    with Process(up_command(tmp_path, "--no-restart"), "") as process:
        said = process.read_until(b"odradek cluster ready").decode()
        own = Running(process, said[said.index("odradek cluster ready") :].splitlines()[0].rpartition("kafka=")[2])
        monkeypatch.setenv("ODRADEK_BROKER", own.kafka)
        cli.ok("topic", "create", "orders", "-p", "3", "-r", "3")
        cli.ok("produce", "orders", stdin=b"one\n")
        if is_dead:
            os.kill(own.pid_of(3), signal.SIGKILL)
            process.read_until(b"it stays down, as --no-restart says", stream=2)
            wait_until(lambda: status_of(cli)[0] == DEGRADED, SETTLE_SECONDS, "that it is missed")
        command = ("cluster", "decommission", "3", "--yes", "--shrink", "--json", "--timeout", "60s")
        with Process(command, own.kafka) as leaving:
            if not is_dead:
                leaving.read_until(b"broker 3 holds nothing any more: stop it now", stream=2)
                os.kill(own.pid_of(3), signal.SIGTERM)
            ran = leaving.end()
        assert ran.status == 0, ran.err
        (done,) = ran.objects
        assert done["unregistered"] is True and done["voter"] is True
        assert all(sorted(row["replicas"]) == [1, 2] for row in partitions_of(cli, "orders").values())
        assert [broker["broker"] for broker in status_of(cli)[1]["brokers"]] == [1, 2]
        assert cli.ok("consume", "orders").out == "one\n"
        process.interrupt()
        assert process.end().status == 0
