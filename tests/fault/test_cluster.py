"""The harness for clusters of processes, tried out with echo servers in the place of brokers."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.cluster import ClusterProcesses
from tests.fault.echo import STOP_STATUS, echo_command
from tests.fault.network import CLIENTS, LoopbackNetwork, RoutedNetwork, make_network, why_no_namespaces
from tests.process import wait_until

SHORT_SECONDS = 0.3
NAMESPACE = Path("/proc/thread-self/ns/net")


def answer_of(cluster: ClusterProcesses, node: int, text: str = "hello", seconds: float = 5.0) -> str:
    """What a node answers; it must answer."""
    with cluster.network.clients():
        address = (cluster.network.host(node), cluster.network.port(node, "kafka"))
        with socket.create_connection(address, seconds) as client:
            client.sendall(text.encode())
            return client.recv(100).decode()


def answers(cluster: ClusterProcesses, node: int) -> bool:
    try:
        return answer_of(cluster, node, seconds=SHORT_SECONDS) == "hello"
    except OSError:
        return False


def reaches(cluster: ClusterProcesses, source: int, target: int) -> bool:
    """Whether the one gets an answer of the other: that takes both ways."""
    return answer_of(cluster, source, f"ask {cluster.address(target, 'kafka')}") == "hello"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, LoopbackNetwork(), [1, 2, 3], command=echo_command) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skips where the machine has none."""
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(f"no network namespaces: {reason}")


@pytest.fixture
def routed(namespaces: None, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, RoutedNetwork([1, 2, 3]), [1, 2, 3], command=echo_command) as cluster:
        yield cluster


def test_the_command_line_names_all_voters(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, LoopbackNetwork(), [1, 2, 3], {"flush": "replicated"})
    command = cluster.serve_command(2)
    voters = command[command.index("--voters") + 1].split(",")
    assert [voter.split("@")[0] for voter in voters] == ["1", "2", "3"]
    assert voters[1].split("@")[1] == command[command.index("--http") + 1] == cluster.address(2, "http")
    assert command[command.index("--data") + 1] == str(tmp_path / "broker-2")
    assert command[-2:] == ["--set", "flush=replicated"]
    assert len({cluster.address(node, door) for node in (1, 2, 3) for door in ("kafka", "http")}) == 6
    assert cluster.minority_max == 1


def test_a_killed_one_is_gone_and_comes_back_at_its_address(plain: ClusterProcesses) -> None:
    assert all(answers(plain, node) for node in plain.nodes)
    plain.kill([2])
    assert not answers(plain, 2)
    assert plain.running() == [1, 3]
    plain.heal()
    assert answers(plain, 2)
    assert plain.brokers[2].starts == 2


def test_a_paused_one_says_nothing_until_it_goes_on(plain: ClusterProcesses) -> None:
    plain.brokers[1].pause()
    assert not answers(plain, 1)
    assert plain.running() == [2, 3]
    plain.heal()
    assert answers(plain, 1)
    assert plain.brokers[1].starts == 1


def test_a_stop_is_in_good_order_and_tells_the_status(plain: ClusterProcesses) -> None:
    plain.brokers[1].pause()
    assert plain.stop() == dict.fromkeys(plain.nodes, STOP_STATUS)


def test_one_that_ends_by_itself_is_named(plain: ClusterProcesses) -> None:
    plain.kill([1])
    assert plain.died() == [], "that one we ended"
    os.kill(plain.brokers[2].process.pid, signal.SIGKILL)
    wait_until(lambda: not plain.brokers[2].is_running, 5.0, "its end")
    assert plain.died() == ["broker 2 ended with status -9: nothing"]


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    def broken(_cluster: ClusterProcesses, _node: int) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no such thing')"]

    cluster = ClusterProcesses(tmp_path, LoopbackNetwork(), [1], command=broken)
    with pytest.raises(AssertionError, match="broker 1 ended with status 1; it said: no such thing"):
        cluster.start()
    assert cluster.logs() == [tmp_path / "broker-1.stdout", tmp_path / "broker-1.stderr"]


def test_a_paused_one_is_ended_too(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, LoopbackNetwork(), [1], command=echo_command) as cluster:
        process = cluster.brokers[1].process
        cluster.brokers[1].pause()
    assert process.returncode == -signal.SIGKILL


def test_loopback_cannot_be_cut() -> None:
    network = make_network("loopback", [1])
    assert not network.can_cut
    with pytest.raises(NotImplementedError, match="no cut from 1 to 0"):
        network.cut(1, CLIENTS)


def test_isolation_is_both_ways_and_heals(routed: ClusterProcesses) -> None:
    assert reaches(routed, 1, 2) and reaches(routed, 2, 1) and reaches(routed, 3, 1)
    routed.isolate(1, clients=False)
    assert answers(routed, 1), "its clients still reach it"
    assert not reaches(routed, 1, 2) and not reaches(routed, 2, 1)
    assert reaches(routed, 2, 3)
    routed.isolate(1, clients=True)
    assert not answers(routed, 1)
    routed.heal()
    assert reaches(routed, 1, 2) and reaches(routed, 2, 1)


def test_a_one_way_cut_holds_one_way_and_for_open_connections(routed: ClusterProcesses) -> None:
    address = (routed.network.host(1), routed.network.port(1, "kafka"))
    with routed.network.clients(), socket.create_connection(address, 5.0) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        routed.mute(1, clients=True)
        client.settimeout(SHORT_SECONDS)
        client.sendall(b"two")
        with pytest.raises(TimeoutError):
            client.recv(100)
        routed.network.heal()
        client.settimeout(10.0)
        assert client.recv(100) == b"two", "it had arrived; only the answer was held up"


def test_a_deaf_one_hears_nothing_of_the_others(routed: ClusterProcesses) -> None:
    routed.deafen(2)
    assert answers(routed, 2), "its clients are not cut"
    assert not reaches(routed, 1, 2)
    assert reaches(routed, 1, 3)


def test_nothing_is_left_behind(namespaces: None, tmp_path: Path) -> None:
    before = NAMESPACE.readlink()
    with ClusterProcesses(tmp_path, RoutedNetwork([1]), [1], command=echo_command) as cluster:
        name = cluster.network.prefix(1)[-1]
        assert Path("/var/run/netns", name).exists()
        with cluster.network.clients():
            assert NAMESPACE.readlink() != before
        pid = cluster.brokers[1].process.pid
    wait_until(lambda: not Path("/proc", str(pid)).exists(), 5.0, "the end of the process")
    assert not Path("/var/run/netns", name).exists()
    assert NAMESPACE.readlink() == before
