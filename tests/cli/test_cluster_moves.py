"""Elections, moves and the end of a broker, against a cluster that is made up: each move takes a few looks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.cli import cluster_moves
from odradek.cli.terminal import CommandError
from odradek.client.address import Address
from odradek.client.admin_types import BrokerInfo, Move, QuorumDescription, QuorumReplica
from odradek.client.client import Client
from odradek.client.cluster import PartitionInfo, TopicInfo
from odradek.client.errors import RequestError
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.support import asynchronous

LOOKS = 3  # until a move is done


class MadeUp:
    """A cluster whose partitions move when they are looked at; it is its own admin."""

    def __init__(self, holders: Mapping[str, tuple[int, ...]], *brokers: int, fenced: Collection[int] = ()) -> None:
        self.registered = [BrokerInfo(id_, Address("h", id_), None, id_ in fenced) for id_ in brokers]
        self.holders = {key(name): replicas for name, replicas in holders.items()}
        self.moving: dict[TopicPartition, tuple[Move, list[int]]] = {}
        self.looks = 0
        self.stuck = False
        self.refuses: set[TopicPartition] = set()
        self.asked: list[dict[TopicPartition, list[int] | None]] = []
        self.unregistered: list[int] = []
        self.elections: dict[TopicPartition, ErrorCode] = {}
        self.new_topics: list[tuple[str, tuple[int, ...]]] = []  # made by somebody else, when a move is done
        self.nodes = {id_: None for id_ in brokers if id_ not in fenced}
        self.stops: set[int] = set()  # brokers that are stopped when the moves are done
        self.topics: dict[str, TopicInfo] = {}

    @property
    def client(self) -> Client:
        self._show()
        return cast("Client", SimpleNamespace(admin=self, cluster=self))

    def _show(self) -> None:
        self.topics = {
            tp.topic: TopicInfo(tp.topic, bytes(16), {0: PartitionInfo(0, replicas[0], 0, replicas, replicas)})
            for tp, replicas in self.holders.items()
        }

    async def refresh(self, *_: object) -> None:
        self._show()

    async def topic(self, name: str) -> TopicInfo:
        return self.topics[name]

    async def list_topics(self, *, internal: bool) -> list[TopicInfo]:
        assert internal
        self._show()
        return list(self.topics.values())

    async def brokers(self) -> list[BrokerInfo]:
        is_done = self.looks >= LOOKS and not self.moving
        return [
            each._replace(is_fenced=each.is_fenced or (is_done and each.node_id in self.stops))
            for each in self.registered
        ]

    async def quorum(self, _: int) -> QuorumDescription:
        return QuorumDescription(1, 1, 1, [QuorumReplica(id_, 1, 1, 1) for id_ in (1, 2, 3)], [], {})

    async def moves(self) -> dict[TopicPartition, Move]:
        self.looks += 1
        if self.looks % LOOKS == 0 and not self.stuck and self.moving:
            done = next(iter(self.moving))
            self.holders[done] = tuple(self.moving.pop(done)[1])
            while self.new_topics:
                name, replicas = self.new_topics.pop()
                self.holders[key(name)] = replicas
        return {tp: move for tp, (move, _) in self.moving.items()}

    async def reassign(
        self, wanted: Mapping[TopicPartition, list[int] | None]
    ) -> dict[TopicPartition, RequestError | None]:
        self.asked.append(dict(wanted))
        for tp, target in wanted.items():
            if tp in self.refuses:
                continue
            if target is None:
                del self.moving[tp]
                continue
            before = self.holders[tp]
            move = Move(
                (*target, *(id_ for id_ in before if id_ not in target)),
                tuple(id_ for id_ in target if id_ not in before),
                tuple(id_ for id_ in before if id_ not in target),
            )
            self.holders[tp], self.moving[tp] = move.replicas, (move, target)
        refused = RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "moving", "broker 9 is down")
        return {tp: refused if tp in self.refuses else None for tp in wanted}

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, RequestError | None]:
        return {
            tp: RequestError(code, f"electing a leader of {tp}") if code else None
            for tp, code in self.elections.items()
            if partitions is None or tp in partitions
        }

    async def unregister_broker(self, id_: int) -> None:
        assert not any(id_ in replicas for replicas in self.holders.values()), "it still holds something"
        self.unregistered.append(id_)


def key(name: str) -> TopicPartition:
    return TopicPartition(name, 0)


async def run(action: Callable[[argparse.Namespace, Client], Awaitable[int]], cluster: MadeUp, **given: Any) -> int:
    """Run a subcommand with these arguments."""
    defaults: dict[str, Any] = {
        "topic": None, "partition": None, "replicas": None, "factor": None, "status": False, "cancel": False,
        "wait": False, "timeout": None, "json": False, "unclean": False, "yes": True, "shrink": False,
    }  # fmt: skip
    return await action(argparse.Namespace(**(defaults | given)), cluster.client)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_moves, "POLL_SECONDS", 0.001)


# decommission


@asynchronous
async def test_a_broker_goes_when_nothing_is_left_on_it() -> None:
    cluster = MadeUp({"a": (1, 2, 3), "b": (3, 1), "c": (1, 2)}, 1, 2, 3, 4)
    cluster.stops.add(3)
    assert await run(cluster_moves.decommission, cluster, broker_id=3) == 0
    assert cluster.unregistered == [3]
    assert cluster.holders == {key("a"): (1, 2, 4), key("b"): (4, 1), key("c"): (1, 2)}


@asynchronous
async def test_what_it_gets_meanwhile_is_moved_too() -> None:
    cluster = MadeUp({"a": (1, 3)}, 1, 2, 3)
    cluster.new_topics.append(("late", (3, 2)))
    cluster.stops.add(3)
    assert await run(cluster_moves.decommission, cluster, broker_id=3) == 0
    assert cluster.unregistered == [3] and cluster.holders[key("late")] == (1, 2)


@asynchronous
async def test_moves_that_are_under_way_are_waited_for_and_not_begun_again() -> None:
    cluster = MadeUp({"a": (1, 3)}, 1, 2, 3, 4)
    cluster.stops.add(3)
    await cluster.reassign({key("a"): [1, 2]})
    assert await run(cluster_moves.decommission, cluster, broker_id=3) == 0
    assert len(cluster.asked) == 1, "only the one from before"
    assert cluster.holders[key("a")] == (1, 2) and cluster.unregistered == [3]


def test_programs_are_told_in_json_and_people_what_is_left_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    @asynchronous
    async def decommission() -> None:
        cluster = MadeUp({"a": (1, 3)}, 1, 2, 3)
        cluster.stops.add(3)
        assert await run(cluster_moves.decommission, cluster, broker_id=3, json=True) == 0

    decommission()
    out, err = capsys.readouterr()
    assert json.loads(out) == {"broker": 3, "moved": 1, "unregistered": True, "voter": True}
    assert "broker 3 still counts as a voter" in err and "1 of 1 partition moved" in err


@pytest.mark.parametrize("holders", [{"a": (1, 3)}, {"a": (1, 2)}])
@asynchronous
async def test_one_that_runs_on_is_not_removed_since_it_would_come_back(holders: dict[str, tuple[int, ...]]) -> None:
    cluster = MadeUp(holders, 1, 2, 3)
    with pytest.raises(CommandError, match="holds nothing any more but still runs: stop it"):
        await run(cluster_moves.decommission, cluster, broker_id=3, timeout=0.2)
    assert cluster.unregistered == [] and cluster.holders == {key("a"): (1, 2)}


@asynchronous
async def test_a_dead_broker_goes_too_and_nothing_moves_to_another_dead_one() -> None:
    cluster = MadeUp({"a": (1, 3)}, 1, 2, 3, 4, fenced=(2, 3))
    assert await run(cluster_moves.decommission, cluster, broker_id=3) == 0
    assert cluster.holders[key("a")] == (1, 4)


@asynchronous
async def test_a_move_that_does_not_end_leaves_the_broker_where_it_is() -> None:
    cluster = MadeUp({"a": (1, 3)}, 1, 2, 3)
    cluster.stuck = True
    with pytest.raises(CommandError, match=r"1 partition still moving after 0 s.*--status"):
        await run(cluster_moves.decommission, cluster, broker_id=3, timeout=0.01)
    assert cluster.unregistered == []


@asynchronous
async def test_a_move_that_is_refused_leaves_the_broker_where_it_is() -> None:
    cluster = MadeUp({"a": (1, 3)}, 1, 2, 3)
    cluster.refuses.add(key("a"))
    with pytest.raises(CommandError, match="not all partitions can leave broker 3"):
        await run(cluster_moves.decommission, cluster, broker_id=3)
    assert cluster.unregistered == []


@asynchronous
async def test_a_broker_that_there_is_not_and_the_only_one_are_refused() -> None:
    with pytest.raises(CommandError, match="there is no broker 7: there are 1, 2"):
        await run(cluster_moves.decommission, MadeUp({}, 1, 2), broker_id=7)
    with pytest.raises(CommandError, match="broker 1 is the only one"):
        await run(cluster_moves.decommission, MadeUp({}, 1), broker_id=1)


# reassign


@asynchronous
async def test_a_number_of_replicas_is_reached_for_all_topics() -> None:
    cluster = MadeUp({"a": (1,), "b": (1, 2, 3), "c": (2, 3)}, 1, 2, 3)
    assert await run(cluster_moves.reassign, cluster, factor=2, wait=True) == 0
    assert sorted(map(len, cluster.holders.values())) == [2, 2, 2]
    assert cluster.holders[key("c")] == (2, 3) and not cluster.moving


@asynchronous
async def test_a_list_of_brokers_is_taken_as_it_is_given() -> None:
    cluster = MadeUp({"a": (1, 2)}, 1, 2, 3)
    assert await run(cluster_moves.reassign, cluster, topic="a", partition=0, replicas=[3, 1]) == 0
    assert cluster.asked == [{key("a"): [3, 1]}]


@pytest.mark.parametrize(("replicas", "problem"), [([1, 7], "there is no broker 7"), ([1, 1], "names a broker twice")])
@asynchronous
async def test_brokers_that_make_no_sense_are_refused(replicas: list[int], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        await run(cluster_moves.reassign, MadeUp({"a": (1,)}, 1), topic="a", partition=0, replicas=replicas)


@asynchronous
async def test_without_anything_to_do_it_says_what_can_be_done() -> None:
    with pytest.raises(CommandError, match="--factor N"):
        await run(cluster_moves.reassign, MadeUp({"a": (1,)}, 1), topic="a", partition=0)


@asynchronous
async def test_a_refused_move_is_exit_status_one() -> None:
    cluster = MadeUp({"a": (1,), "b": (1,)}, 1, 2)
    cluster.refuses.add(key("a"))
    assert await run(cluster_moves.reassign, cluster, factor=2, wait=True) == 1
    assert cluster.holders == {key("a"): (1,), key("b"): (1, 2)}


def test_moves_are_shown_and_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    @asynchronous
    async def moving() -> None:
        cluster = MadeUp({"a": (1, 2), "b": (1,)}, 1, 2, 3)
        cluster.stuck = True
        assert await run(cluster_moves.reassign, cluster, status=True) == 0
        await cluster.reassign({key("a"): [3, 1]})
        assert await run(cluster_moves.reassign, cluster, status=True) == 0
        assert await run(cluster_moves.reassign, cluster, status=True, topic="b") == 0
        assert await run(cluster_moves.reassign, cluster, cancel=True) == 0
        assert not cluster.moving

    moving()
    out, err = capsys.readouterr()
    assert out.splitlines() == ["a-0 replicas=3,1,2 moving=+3 -2", "a-0 no longer moves"]
    assert err.splitlines() == ["no partition is being moved"] * 2


# elect


def test_elections_are_counted_and_failures_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    @asynchronous
    async def elect() -> None:
        cluster = MadeUp({"a": (1,), "b": (2,), "c": (3,)}, 1, 2, 3)
        cluster.elections = {key("a"): ErrorCode.NONE, key("b"): ErrorCode.ELECTION_NOT_NEEDED}
        assert await run(cluster_moves.elect, cluster) == 0
        cluster.elections[key("c")] = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert await run(cluster_moves.elect, cluster) == 1
        assert await run(cluster_moves.elect, cluster, json=True, topic="c") == 1

    elect()
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:3] == ["a-0 leader=1 result=elected"] * 2 + ["c-0 leader=3 result=failed"]
    assert json.loads(lines[3]) == {
        "topic": "c", "partition": 0, "leader": 3, "result": "failed", "error": "PREFERRED_LEADER_NOT_AVAILABLE",
    }  # fmt: skip
    assert "1 leader elected, 1 not needed, 1 failed" in err


@asynchronous
async def test_an_unclean_election_must_be_agreed_to() -> None:
    with pytest.raises(CommandError, match=r"may be lost.*--yes"):
        await run(cluster_moves.elect, MadeUp({"a": (1,)}, 1), unclean=True, yes=False)
