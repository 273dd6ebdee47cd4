"""MyKafka's tools as they are typed: `odradek ctl`, `produce --grpc` and `consume --grpc`, at a real gRPC door."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli.grpc_consume import first_of
from odradek.cli.main import main
from odradek.client.grpc import MyKafka, Offsets
from odradek.client.start import parse_start
from tests.cli.commands import Cli, Process, Ran, command, on_a_terminal
from tests.process import BrokerProcess

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gRPC door of a broker that all tests of this file share."""
    with BrokerProcess(tmp_path_factory.mktemp("ctl") / "data", grpc=True) as broker:
        yield broker.grpc


class Tools(Cli):
    """The commands with the address of the door behind them."""

    door = ""

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        where = () if "--broker-address" in arguments or "--help" in arguments else ("--broker-address", self.door)
        return super().__call__(*arguments, *where, stdin=stdin)


@pytest.fixture
def tools(door: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tools:
    made = Tools(capfdbinary, monkeypatch, door)
    made.door = door
    return made


def act(action: str, topic: str, partition: int | None = 0) -> tuple[str, ...]:
    """The words of `odradek ctl`."""
    more = () if partition is None else ("--partition", str(partition))
    return ("ctl", "--action", action, "--topic", topic, *more)


# What they do.


def test_a_partition_is_made_written_read_and_removed(tools: Tools, topic: str) -> None:
    ran = tools.ok(
        *act("create", topic, 34), "--segment-size", "1KiB", "--partition-size", "4096", "--segment-ttl", "60"
    )
    assert (ran.out, ran.err) == ("", f"partition 34 of topic {topic} is there\n")
    assert tools.ok(*act("offsets", topic, 34)).out == "First offset: 0, commit_offset: -1, last_offset: -1\n"
    ran = tools.ok("produce", "--grpc", topic, "--partition", "34", stdin=b"hello\n\nthree spools")
    assert ran.lines == [f"Payload written at offset {offset}" for offset in range(3)]
    ran = tools.ok("produce", "--grpc", "--topic", topic, "--partition", "34", "--payload", "käfer")
    assert ran.out == "Payload written at offset 3\n"
    ran = tools.ok("consume", "--grpc", topic, "-p", "34")
    shown = ["hello", "", "three spools", "käfer"]
    assert ran.out == "".join(f"Payload at offset {offset}: {text}\n" for offset, text in enumerate(shown))
    assert tools.ok(*act("offsets", topic, 34)).out == "First offset: 0, commit_offset: 3, last_offset: 3\n"
    told = tools.ok("ctl", "--action", "info").out
    assert f"Topic:{topic}\n" in told
    assert "max_segment_size: 1024" in told and "max_partition_size: 4096" in told and "segment_ttl: 60" in told
    assert tools.ok(*act("delete", topic, 34)).err == f"partition 34 of topic {topic} is gone\n"
    assert f"Topic:{topic}\n" not in tools.ok("ctl", "--action", "info").out


def test_delete_without_a_partition_removes_the_topic(tools: Tools, topic: str) -> None:
    for partition in (0, 5):
        tools.ok(*act("create", topic, partition))
    assert tools.ok(*act("delete", topic, None)).err == f"topic {topic} is gone\n"
    assert f"Topic:{topic}\n" not in tools.ok("ctl", "--action", "info").out
    tools.ok(*act("delete", topic, None))  # as the door has it: no error


@pytest.mark.parametrize(
    ("place", "shown"), [("start", [0, 1, 2]), ("end", []), ("1", [1, 2]), ("-1", [2]), ("+2", [2]), ("9", [])]
)
def test_reading_begins_where_it_is_told_to(tools: Tools, topic: str, place: str, shown: list[int]) -> None:
    tools.ok(*act("create", topic))
    tools.ok("produce", "--grpc", topic, "-p", "0", stdin=b"0\n1\n2\n")
    ran = tools.ok("consume", "--grpc", topic, "-p", "0", f"--from={place}")
    assert ran.lines == [f"Payload at offset {offset}: {offset}" for offset in shown]
    limited = tools.ok("consume", "--grpc", topic, "-p", "0", f"--from={place}", "-n", "1")
    assert limited.lines == ran.lines[:1]


def test_a_place_is_kept_within_what_is_there() -> None:
    there, empty = Offsets(10, 19, 19), Offsets(7, 6, 6)
    wanted = {"start": 10, "end": 20, "3": 10, "25": 25, "+3": 13, "+99": 20, "-4": 16, "-99": 10}
    assert {text: first_of(parse_start(text), there) for text in wanted} == wanted
    assert [first_of(parse_start(text), empty) for text in ("start", "end", "-1", "+1")] == [7, 7, 7, 7]


def test_any_bytes_go_in_and_come_out(door: str, topic: str, tmp_path: Path) -> None:
    payload = bytes(set(range(256)) - {10})
    file = tmp_path / "bytes"
    file.write_bytes(payload + b"\n")
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
    where = ("--broker-address", door)
    sent = subprocess.run(command("produce", "--grpc", topic, "-p", "0", "-f", str(file), *where), check=True)
    assert sent.returncode == 0
    for words, expected in (((), b"Payload at offset 0: " + payload + b"\n"), (("--raw",), payload + b"\n")):
        ran = subprocess.run(
            command("consume", "--grpc", topic, "-p", "0", *where, *words), check=True, capture_output=True
        )
        assert (ran.stdout, ran.stderr) == (expected, b"")


def test_a_terminal_cannot_be_driven_by_a_message(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
        mykafka.send_message(topic, 0, b"\x1b[2Jred\xff")
    ran = on_a_terminal(("consume", "--grpc", topic, "-p", "0", "--broker-address", door), "")
    assert ran.out == "Payload at offset 0: \\x1b[2Jred\\udcff\r\n"


def test_more_messages_than_calls_under_way_come_in_order(tools: Tools, door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
        for number in range(100):
            mykafka.send_message(topic, 0, b"%d" % number)
    ran = tools.ok("consume", "--grpc", topic, "-p", "0", "--raw")
    assert ran.lines == [str(number) for number in range(100)]


def test_following_shows_what_comes_and_ctrl_c_ends_it(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
        with Process(("consume", "--grpc", topic, "-p", "0", "-f", "--broker-address", door), "") as following:
            mykafka.send_message(topic, 0, b"one")
            following.read_until(b"Payload at offset 0: one\n")
            mykafka.send_message(topic, 0, b"two")
            following.read_until(b"Payload at offset 1: two\n")
            following.interrupt()
            ran = following.end()
        assert (ran.status, ran.err) == (128 + signal.SIGINT, "")


def test_following_ends_when_nothing_comes_for_long_enough(tools: Tools, topic: str) -> None:
    tools.ok(*act("create", topic))
    tools.ok("produce", "--grpc", topic, "-p", "0", "--payload", "one")
    words = ("consume", "--grpc", topic, "-p", "0", "-f", "--timeout", "0.1")
    assert tools.ok(*words).lines == ["Payload at offset 0: one"]
    assert "1 message of 2 came" in tools.fails(*words, "-n", "2", status=1)


def test_ctrl_c_ends_a_producer_that_waits_for_input(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
    with Process(("produce", "--grpc", topic, "-p", "0", "--broker-address", door), "") as producing:
        producing.write(b"one\n")
        producing.read_until(b"Payload written at offset 0\n")
        producing.interrupt()
        ran = producing.end()
    assert (ran.status, ran.err) == (128 + signal.SIGINT, "")


# How they fail.


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("ctl",), 4, "name what to do with --action: create, delete, info, offsets"),
        (("ctl", "--action", "creat"), 4, "there is no action 'creat': did you mean 'create'?"),
        (("ctl", "--action", "zzz", "--topic", "a/b"), 4, "there is no action 'zzz': write create"),
        (("ctl", "--action", "create"), 2, "name a topic"),
        (act("create", "a/b"), 2, "a topic's name"),
        (act("create", ".."), 2, "a topic cannot be called '..'"),
        (act("offsets", "t", None), 3, "name a partition with --partition N"),
        (("ctl", "--action", "create", "--topic", "t", "--partition", "-1"), 3, "'-1' is no partition"),
        (("ctl", "--action", "create", "--topic", "t", "--partition", "one"), 3, "'one' is no partition"),
        (("ctl", "--action", "delete", "--topic", "t", "--partition", "99999999999"), 3, "is no partition"),
        (("ctl", "--action", "create", "--topic", "t", "--segment-size", "big"), 2, "is not a size"),
        (("produce", "--grpc"), 2, "name a topic"),
        (("produce", "--grpc", "t", "--topic", "u", "-p", "0"), 2, "named twice"),
        (("produce", "--grpc", "t"), 3, "name a partition"),
        (("produce", "--grpc", "t", "-p", "x"), 3, "'x' is no partition"),
        (("produce", "--grpc", "t", "-p", "0", "--payload", "a", "-f", "b"), 2, "leave -f away"),
        (("consume", "--grpc", "-p", "0"), 2, "name a topic"),
        (("consume", "--grpc", "t", "-p", "1.5"), 3, "'1.5' is no partition"),
        (("consume", "--grpc", "t", "-p", "0", "--from", "@-1h"), 2, "finds no message by its time"),
        (("ctl", "--action", "info", "--broker-address", "nowhere:x"), 5, "is no broker address"),
        (("ctl", "--action", "info", "--broker-address", NOBODY), 5, f"the broker at {NOBODY} cannot be reached"),
        (("produce", "--grpc", "t", "-p", "0", "--broker-address", NOBODY), 5, "cannot be reached"),
        (("consume", "--grpc", "t", "-p", "0", "--broker-address", NOBODY), 5, "cannot be reached"),
        (act("offsets", "not-there"), 6, "NOT_FOUND"),
        (act("delete", "not-there"), 6, "TOPIC_ERROR"),
        (("produce", "--grpc", "not-there", "-p", "0", "--payload", "x"), 6, "not-there"),
        (("consume", "--grpc", "not-there", "-p", "0"), 6, "NOT_FOUND"),
    ],
)
def test_what_goes_wrong_has_an_exit_code_and_one_line(
    tools: Tools, arguments: tuple[str, ...], status: int, text: str
) -> None:
    assert text in tools.fails(*arguments, status=status)


def test_a_partition_that_exists_is_the_brokers_error(tools: Tools, topic: str) -> None:
    tools.ok(*act("create", topic))
    assert "TOPIC_ERROR" in tools.fails(*act("create", topic), status=6)


def test_what_is_not_a_grpc_door_is_a_failure_of_the_transport(tools: Tools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        problem = tools.fails("ctl", "--action", "info", "--broker-address", address, status=5)
    assert f"the broker at {address} cannot be reached" in problem


# What they say of themselves.


@pytest.mark.parametrize("words", [("ctl",), ("produce", "--grpc"), ("consume", "--grpc")])
def test_the_help_teaches(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert "examples:" in said and "exit status:" in said and "--broker-address" in said
    assert max(map(len, said.splitlines())) <= 120


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_the_kafka_commands_point_to_their_grpc_form(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0
    assert f"odradek {name} --grpc --help" in " ".join(capsys.readouterr().out.split())


def test_a_topic_may_be_called_like_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "--", "--grpc", "more"]) == 2  # Kafka's command, which takes one topic
    assert "'odradek produce --help' shows how it is used" in capsys.readouterr().err
