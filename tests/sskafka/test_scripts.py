"""SSKafka's five scripts: what they print and how they end, against real doors of a cluster that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.sskafka.fakes import open_brokers

CLIENT = Path(__file__).parents[2] / "client"
SCRIPTS = ("create_topic", "list_topics", "delete_topic", "produce", "consume")
DEFAULT_BROKERS = "1@localhost:8001,2@localhost:8002,3@localhost:8003,4@localhost:8004,5@localhost:8005"


class Scripts:
    """The scripts, run in a thread of this process; processes of their own take long to start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def load(self, name: str) -> ModuleType:
        return importlib.import_module(name)

    async def run(self, name: str, *args: str, typed: str = "") -> tuple[int, str]:
        """Run a script to its end: its exit code, and what it printed."""
        self._monkeypatch.setattr(sys, "argv", [f"{name}.py", *args])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        main = self.load(name).main
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = await asyncio.to_thread(_exit_code, main)
        return code, out.getvalue()


def _exit_code(main: Any) -> int:
    try:
        return int(main())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripts]:
    monkeypatch.syspath_prepend(str(CLIENT))
    yield Scripts(monkeypatch)
    for name in (*SCRIPTS, "brokers"):
        sys.modules.pop(name, None)


@pytest.fixture
def hasty(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Scripts that do not wait for an election."""
    monkeypatch.setattr(scripts.load("brokers"), "_ELECTION_SECONDS_MAX", 0.0)
    return scripts


def printed(content: object) -> str:
    return json.dumps(content, indent=4) + "\n"


def topic(name: str, partitions: int) -> dict[str, Any]:
    return {
        "topic_name": name,
        "partitions": [
            {"id": f"{name}-{number}", "replica_brokers": ["1", "2", "3"]} for number in range(1, partitions + 1)
        ],
    }


@on_uvloop
async def test_topics_are_created_listed_and_deleted(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        listed = brokers.listed()
        created = await scripts.run("create_topic", "mynewtopic", "-p", "4", "-r", "2", "-b", listed)
        assert created == (0, printed(topic("mynewtopic", 4)))
        assert await scripts.run("create_topic", "other", "-b", listed) == (0, printed(topic("other", 3)))
        again = await scripts.run("create_topic", "other", "-b", listed)
        assert again == (1, printed({"detail": "topic other already exists"}))
        topics = {"topics": [topic("mynewtopic", 4), topic("other", 3)]}
        assert await scripts.run("list_topics", "-b", listed) == (0, printed(topics))
        assert await scripts.run("delete_topic", "mynewtopic", "-b", listed) == (0, "")
        gone = await scripts.run("delete_topic", "mynewtopic", "-b", listed)
        assert gone == (1, printed({"detail": "topic mynewtopic does not exist"}))
        assert (await scripts.run("delete_topic", "no/such?topic", "-b", listed))[0] == 1
        assert (await scripts.run("create_topic", "a-b", "-b", listed))[0] == 1
        assert (await scripts.run("create_topic", "c", "-p", "0", "-b", listed))[0] == 1


@on_uvloop
async def test_records_are_produced_until_an_empty_line(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        listed = brokers.listed()
        brokers.cluster.topics["t"] = 3
        typed = "msg1\nmy first message\nmsg2\nmy second message é\n\nnot\nread\n"
        code, out = await scripts.run("produce", "t", "-b", listed, typed=typed)
        assert code == 0
        assert out == (
            "Key: msg1\nPayload: my first message\n> OK\n\nKey: msg2\nPayload: my second message é\n> OK\n\nKey: \n"
        )
        stored = [record for log in brokers.cluster.records.values() for record in log]
        assert sorted((key, payload) for _, key, payload in stored) == [
            (b"msg1", b"my first message"),
            (b"msg2", "my second message é".encode()),
        ]
        assert brokers.cluster.acks == ["all", "all"]
        for acks in ("0", "1", "all"):
            assert (await scripts.run("produce", "t", "-a", acks, "-b", listed, typed="k\np\n"))[0] == 0
            assert brokers.cluster.acks[-1] == acks
        code, out = await scripts.run("produce", "t", "-b", listed, typed="k\n\n")
        assert (code, "OK" in out) == (0, False), "an empty payload ends it, too"


@on_uvloop
async def test_a_record_that_cannot_be_published_ends_it_with_the_error(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        listed = brokers.listed()
        code, out = await scripts.run("produce", "nosuch", "-b", listed, typed="k\np\n\n")
        assert (code, out) == (1, printed({"detail": "topic nosuch does not exist"}))
        brokers.cluster.topics["t"] = 1
        brokers.cluster.fails = PeerError(ErrorCode.POLICY_VIOLATION, "not today")
        code, out = await scripts.run("produce", "t", "-b", listed, typed="k\np\nk\np\n\n")
        assert (code, out) == (1, "Key: k\nPayload: p\n" + printed({"detail": "not today"}))


def test_the_key_picks_the_partition_today_and_tomorrow(scripts: Scripts) -> None:
    partition_of = scripts.load("produce").partition_of
    partitions = [f"t-{number}" for number in range(1, 5)]
    assert [partition_of(key, partitions) for key in ("msg1", "msg2", "msg3", "é", "")] == [
        "t-2", "t-4", "t-2", "t-3", "t-1",
    ]  # fmt: skip
    assert {partition_of(f"key{number}", partitions) for number in range(100)} == set(partitions)


@pytest.mark.parametrize("leader_id", [1, 2, 3])
@on_uvloop
async def test_the_leader_is_found_wherever_it_stands_in_the_list(scripts: Scripts, leader_id: int) -> None:
    async with open_brokers() as brokers:
        brokers.cluster.leader_id = leader_id
        for listed in (brokers.listed(1, 2, 3), brokers.listed(3, 2, 1), brokers.listed(leader_id)):
            assert await scripts.run("create_topic", "t", "-b", listed) == (0, printed(topic("t", 3)))
            assert (await scripts.run("produce", "t", "-b", listed, typed="k\np\n\n"))[0] == 0
            assert (await scripts.run("delete_topic", "t", "-b", listed))[0] == 0


@on_uvloop
async def test_a_list_without_the_leader_fails_at_once(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        brokers.cluster.topics["t"] = 1
        listed, told = brokers.listed(2, 3), printed({"detail": "leader is 1, can't accept"})
        async with asyncio.timeout(5):
            for command in (["create_topic", "u"], ["list_topics"], ["delete_topic", "t"], ["consume", "t-1"]):
                assert await scripts.run(*command, "-b", listed) == (1, told)
            assert await scripts.run("produce", "t", "-b", listed, typed="k\np\n\n") == (1, told)
        assert brokers.cluster.topics == {"t": 1}


@on_uvloop
async def test_brokers_that_are_down_are_passed_over(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        brokers.cluster.leader_id = 3
        listed = brokers.listed()
        await brokers.visits[1].server.close()
        assert await scripts.run("list_topics", "-b", listed) == (0, printed({"topics": []}))


@on_uvloop
async def test_an_election_is_waited_for(scripts: Scripts) -> None:
    async with open_brokers() as brokers:
        brokers.cluster.leader_id = -1
        served = brokers.visits[3].server
        running = asyncio.create_task(scripts.run("list_topics", "-b", brokers.listed()))
        await until(lambda: bool(served._connections))
        brokers.cluster.leader_id = 3
        assert await running == (0, printed({"topics": []}))


@on_uvloop
async def test_without_a_leader_or_a_broker_it_fails(hasty: Scripts) -> None:
    async with open_brokers(2) as brokers:
        brokers.cluster.leader_id = -1
        listed = brokers.listed()
        assert await hasty.run("list_topics", "-b", listed) == (
            1,
            printed({"detail": "leader is -1, can't accept"}),
        )
        for visit in brokers.visits.values():
            await visit.server.close()
        code, out = await hasty.run("list_topics", "-b", listed)
        assert code == 1 and "cannot be reached" in json.loads(out)["detail"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("create_topic",), ("create_topic", "t", "-p", "three"), ("list_topics", "-b", "nonsense"),
        ("list_topics", "-b", "1@host"), ("produce", "t", "-a", "some"), ("consume", "t-1", "-s", "x"),
        ("delete_topic",),
    ],
)  # fmt: skip
@on_uvloop
async def test_a_wrong_command_line_ends_with_one(scripts: Scripts, arguments: tuple[str, ...]) -> None:
    assert (await scripts.run(*arguments))[0] == 1


def test_the_default_is_five_brokers_on_this_machine(scripts: Scripts) -> None:
    assert scripts.load("brokers").BROKERS == DEFAULT_BROKERS


@on_uvloop
async def test_polling_that_fails_ends_with_the_error(scripts: Scripts) -> None:
    async with open_brokers(1) as brokers:
        brokers.cluster.topics["t"] = 1
        for name, size in (("t-2", "100"), ("t-1", "0")):
            code, out = await scripts.run("consume", name, "-s", size, "-b", brokers.listed())
            assert code == 1 and "detail" in json.loads(out)


@on_uvloop
async def test_records_are_consumed_as_they_come_until_ctrl_c(tmp_path: Path) -> None:
    async with open_brokers() as brokers:
        brokers.cluster.topics["t"] = 4
        log = brokers.cluster.records[TopicPartition("t", 3)] = [
            (0, b"msg1", b"my first message"), (1, b"msg2", b"my second message"), (2, None, b"without a key"),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CLIENT / "consume.py"), "t-4", "-s", "2", "-b", brokers.listed(3, 2, 1),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=tmp_path, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        for line in (b"[0] [msg1] my first message\n", b"[1] [msg2] my second message\n", b"[2] [] without a key\n"):
            assert await process.stdout.readline() == line
        log.append((3, b"msg4", "später".encode()))
        assert (await process.stdout.readline()).decode() == "[3] [msg4] später\n"
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (0, b"", b"")
