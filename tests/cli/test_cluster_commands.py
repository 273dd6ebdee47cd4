"""`odradek cluster` as it is typed: its help, what it refuses, and what it says of a broker that stands alone."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from odradek.cli.cluster_up import plan, up_arguments
from odradek.cli.terminal import CommandError
from tests.cli.commands import Cli
from tests.cli.ports import free_base


@pytest.mark.parametrize("command", ["up", "status", "describe", "elect", "reassign", "decommission"])
def test_every_command_has_examples(cli: Cli, command: str) -> None:
    said = cli.ok("cluster", command, "--help").out
    assert "examples:" in said and f"odradek cluster {command}" in said
    assert max(map(len, said.splitlines())) <= 120
    assert ("--json" in said) is (command != "up")


def test_the_exit_codes_of_status_are_documented(cli: Cli) -> None:
    said = cli.ok("cluster", "status", "--help").out
    assert "0  healthy" in said and "3  degraded" in said and "4  unavailable" in said


def test_words_without_cluster_are_understood(cli: Cli) -> None:
    assert "did you mean 'odradek cluster status'" in cli.fails("status", status=2)
    assert "did you mean 'odradek cluster up'" in cli.fails("up", status=2)


# A broker that stands alone.


def test_a_lone_broker_is_healthy(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    head, row, *problems = cli.ok("cluster", "status").lines
    assert " is healthy: controller broker 1, epoch " in head and "1 broker, " in head
    assert row.startswith(f"1 address={cli.address} rack=- state=up quorum=leader lag=0 leads=")
    assert problems == []
    (found,) = cli.ok("cluster", "status", "--json", "--bootstrap", cli.address).objects
    assert (found["state"], found["controller"], found["voters"], found["offline"]) == ("healthy", 1, [1], [])


def test_partitions_are_described(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    rows = cli.ok("cluster", "describe", topic).lines
    assert rows == [f"{topic}-{index} leader=1 epoch=0 replicas=1 in-sync=1 state=ok moving=-" for index in (0, 1)]
    assert rows[0] in cli.ok("cluster", "describe").lines
    assert cli.ok("cluster", "describe", "--unhealthy").out == ""
    first = cli.ok("cluster", "describe", topic, "--json").objects[0]
    assert first == {
        "topic": topic, "partition": 0, "leader": 1, "leader_epoch": 0, "replicas": [1], "in_sync": [1], "state": "ok",
        "adding": [], "removing": [],
    }  # fmt: skip


def test_no_election_is_needed(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    ran = cli.ok("cluster", "elect", topic, "1")
    assert ran.lines == [f"{topic}-1 leader=1 result=not-needed"]
    assert "0 leaders elected, 1 not needed, 0 failed" in ran.err
    assert cli.ok("cluster", "elect").lines == []


def test_nothing_can_move_without_other_brokers(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert "3 replicas need 3 brokers, and 1 broker is up" in cli.fails("cluster", "reassign", topic, "--factor", "3")
    assert "nothing to move" in cli.ok("cluster", "reassign", topic, "--factor", "1").err
    assert "there is no broker 2" in cli.fails("cluster", "reassign", topic, "0", "2,1", status=2)
    assert "no partition is being moved" in cli.ok("cluster", "reassign", "--status").err
    assert "the only one" in cli.fails("cluster", "decommission", "1", "--yes")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("describe", "nothing-here"), "there is no topic 'nothing-here'"),
        (("elect", "nothing-here"), "there is no topic 'nothing-here'"),
    ],
)
def test_a_topic_that_is_not_there_is_named(cli: Cli, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in cli.fails("cluster", *arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("reassign", "orders", "0", "1;2"), "write their numbers as in 1,2,3"),
        (("reassign", "orders", "0", "1,2", "--cancel"), "give either a list of brokers, or one of"),
        (("reassign", "--status", "--cancel"), "not allowed with"),
        (("decommission", "three"), "not a whole number"),
        (("up", "--brokers", "0"), "not a whole number from 1"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in cli.fails("cluster", *arguments, status=2)


def test_a_cluster_that_cannot_be_reached_is_exit_status_one(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "no broker answers at" in cli.fails("cluster", "status", "--broker", f"127.0.0.1:{port}")


# What `up` starts.


BASE = free_base(9)  # of the Kafka ports; those of HTTP follow, and those of gRPC


def arguments(directory: Path, *words: str) -> argparse.Namespace:
    """Three brokers on free ports, unless the words say otherwise."""
    parser = argparse.ArgumentParser()
    up_arguments(parser)
    ports = ("--kafka-base", str(BASE), "--http-base", str(BASE + 3), "--grpc-base", str(BASE + 6))
    return parser.parse_args(["--data", str(directory), *ports, *words])


def test_brokers_get_ports_directories_and_the_same_voters(tmp_path: Path) -> None:
    specs = plan(arguments(tmp_path / "d", "--set", "num.partitions=6"))
    assert [str(spec.kafka) for spec in specs] == [f"127.0.0.1:{BASE + number}" for number in range(3)]
    assert [spec.data.name for spec in specs] == ["broker-1", "broker-2", "broker-3"]
    command = " ".join(specs[1].command)
    assert f"serve --broker-id 2 --data {tmp_path / 'd' / 'broker-2'} --kafka 127.0.0.1:{BASE + 1} --http" in command
    assert [str(spec.grpc) for spec in specs] == [f"127.0.0.1:{BASE + 6 + number}" for number in range(3)]
    assert f" --grpc 127.0.0.1:{BASE + 7} " in command
    voters = ",".join(f"{number}@127.0.0.1:{BASE + 2 + number}" for number in (1, 2, 3))
    assert f" --voters {voters} " in command and command.endswith(" --set num.partitions=6")


@pytest.mark.parametrize("flag", ["--kafka-base", "--http-base", "--grpc-base"])
def test_a_port_in_use_names_the_flag(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port} .*{flag}"):
            plan(arguments(tmp_path, "--brokers", "1", flag, str(port)))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--http-base", "9000", "--kafka-base", "9002"), "overlap"),
        (("--http-base", "9000", "--grpc-base", "8998"), "--http-base 9000 and --grpc-base 8998 overlap"),
        (("--kafka-base", "9000", "--grpc-base", "9001"), "--kafka-base 9000 and --grpc-base 9001 overlap"),
        (("--kafka-base", "65534"), "leaves no ports for 3 brokers"),
        (("--set", "kafka=:9092"), "gives each broker its own kafka"),
        (("--set", "grpc=off"), "gives each broker its own grpc"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        plan(arguments(tmp_path, *words))


def test_the_directory_of_a_single_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with pytest.raises(CommandError, match="the data directory of a single broker"):
        plan(arguments(tmp_path))


def test_brokers_of_before_that_are_not_started_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("broker-1", "broker-4", "broker-5"):
        (tmp_path / name).mkdir()
    plan(arguments(tmp_path))
    said = capsys.readouterr().err
    assert "also has data of broker 4, 5" in said and "--brokers 5" in said
