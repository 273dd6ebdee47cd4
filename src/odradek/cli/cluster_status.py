"""`odradek cluster status` and `describe`: how a cluster is, told by its brokers over Kafka's own APIs.

Every broker is asked for the quorum as it sees it: one that was given other voters than the rest, or that knows no
leader, is found only so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.cli.connect import find_topic
from odradek.cli.listing import counted, show, tell
from odradek.cli.terminal import escape, is_terminal
from odradek.client.admin_types import BrokerInfo, Move, QuorumDescription
from odradek.client.client import Client
from odradek.client.cluster import Node, PartitionInfo, TopicInfo
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError
from odradek.model import TopicPartition

EXIT_DEGRADED = 3  # all can be read and written, but not all copies are there
EXIT_UNAVAILABLE = 4  # something cannot be read, written or changed
HEALTHY, DEGRADED, UNAVAILABLE = "healthy", "degraded", "unavailable"
EXIT_CODES = {HEALTHY: 0, DEGRADED: EXIT_DEGRADED, UNAVAILABLE: EXIT_UNAVAILABLE}

NOBODY = -1
_ASK_SECONDS_MAX = 3.0
_SILENT_MS_MAX = 10_000  # a voter that has not fetched for so long does not follow
_NAMES_SHOWN_MAX = 5


@dataclass(slots=True)
class Situation:
    """What the brokers have told."""

    cluster_id: str | None
    brokers: list[BrokerInfo]
    topics: list[TopicInfo]
    views: dict[int, QuorumDescription]  # the quorum as each broker sees it
    silent: dict[int, str] = field(default_factory=dict)  # brokers that should answer and do not, with the reason

    @property
    def quorum(self) -> QuorumDescription | None:
        """The view that knows most: the leader's own, of the highest epoch."""
        return max(
            self.views.values(),
            key=lambda view: (view.epoch, view.leader_id in self.views and view is self.views[view.leader_id]),
            default=None,
        )

    @property
    def controller_id(self) -> int:
        """Who decides; -1 if nobody."""
        return NOBODY if self.quorum is None else self.quorum.leader_id

    def partitions(self) -> Iterable[tuple[TopicPartition, PartitionInfo]]:
        """Every partition of every topic."""
        for topic in self.topics:
            for index, info in topic.partitions.items():
                yield TopicPartition(topic.name, index), info

    @property
    def offline(self) -> dict[TopicPartition, PartitionInfo]:
        """Partitions that nobody leads."""
        return {key: info for key, info in self.partitions() if info.leader == NOBODY}

    @property
    def under_replicated(self) -> dict[TopicPartition, PartitionInfo]:
        """Partitions with a leader that have fewer copies in sync than they should."""
        return {key: info for key, info in self.partitions() if info.leader != NOBODY and _missing(info)}

    def state_of(self, broker: BrokerInfo) -> str:
        """One word for a broker."""
        if broker.is_fenced:
            return "fenced"
        return "silent" if broker.node_id in self.silent else "up"

    def lag_of(self, broker_id: int) -> int | None:
        """How many metadata records a broker is behind the leader; None if that is not known."""
        quorum = self.quorum
        if quorum is None:
            return None
        ends = {each.node_id: each.end_offset for each in (*quorum.voters, *quorum.observers)}
        leader_end, end = ends.get(quorum.leader_id, NOBODY), ends.get(broker_id, NOBODY)
        return None if NOBODY in (leader_end, end) else max(0, leader_end - end)

    def role_of(self, broker_id: int) -> str:
        """What a broker is in the quorum."""
        quorum = self.quorum
        if quorum is None:
            return "-"
        if broker_id == quorum.leader_id:
            return "leader"
        return "voter" if broker_id in {voter.node_id for voter in quorum.voters} else "observer"


def _missing(info: PartitionInfo) -> set[int]:
    return set(info.replicas) - set(info.in_sync)


async def look(client: Client) -> Situation:
    """Ask all brokers."""
    admin = client.admin
    brokers = await admin.brokers()
    topics = await admin.list_topics(internal=True)
    situation = Situation(client.cluster.cluster_id, brokers, topics, {})
    for broker in brokers:  # one that is fenced may run, and know other voters: that may be why
        client.cluster.nodes.setdefault(broker.node_id, Node(broker.node_id, broker.address, broker.rack))
    answers = await asyncio.gather(*(_view(client, broker.node_id) for broker in brokers))
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, QuorumDescription):
            situation.views[broker.node_id] = answer
        elif answer is not None and not broker.is_fenced:
            situation.silent[broker.node_id] = answer
    return situation


async def _view(client: Client, node_id: int) -> QuorumDescription | str | None:
    """The quorum as a broker sees it; a reason if it does not answer, None if it knows no such question."""
    try:
        async with asyncio.timeout(_ASK_SECONDS_MAX):
            return await client.admin.quorum(node_id)
    except TimeoutError:
        return f"no answer within {_ASK_SECONDS_MAX:.0f} s"
    except (BrokerUnavailableError, TimedOutError) as error:
        return str(error)
    except ClientError:
        return None


# What is wrong.


def judge(situation: Situation) -> tuple[str, list[str]]:
    """One word for the cluster, and a sentence for each thing that is wrong, the worst first."""
    worst = list(_outages(situation))
    bad = list(_weaknesses(situation))
    return UNAVAILABLE if worst else DEGRADED if bad else HEALTHY, worst + bad


def _outages(situation: Situation) -> Iterable[str]:
    if situation.views and situation.controller_id == NOBODY:
        yield "there is no active controller: nothing can be changed until a majority of the voters is up again"
    if situation.offline:
        yield (
            f"{counted(len(situation.offline), 'partition')} without a leader: {_names(situation.offline)}; start the"
            " brokers of their replicas again ('odradek cluster describe --unhealthy' names them)"
        )


def _weaknesses(situation: Situation) -> Iterable[str]:
    for broker in situation.brokers:
        if broker.is_fenced:
            yield (
                f"broker {broker.node_id} at {broker.address} is fenced: it is stopped, cut off or still starting;"
                f" start it again, or remove it with 'odradek cluster decommission {broker.node_id}'"
            )
    for node_id, reason in situation.silent.items():
        yield f"broker {node_id} counts as alive but does not answer: {reason}"
    if situation.under_replicated:
        yield (
            f"{counted(len(situation.under_replicated), 'partition')} under-replicated:"
            f" {_names(situation.under_replicated)}; they catch up when the missing brokers are back"
        )
    yield from _quorum_troubles(situation)


def _quorum_troubles(situation: Situation) -> Iterable[str]:
    lists: dict[str, list[int]] = {}
    for node_id, view in situation.views.items():
        lists.setdefault(voters_text(view), []).append(node_id)
    if len(lists) > 1:
        told = "; ".join(f"{_brokers(nodes)} {voters}" for voters, nodes in lists.items())
        yield f"voter lists differ: {told}; give every broker the same --voters"
    lost = [node_id for node_id, view in situation.views.items() if view.leader_id == NOBODY]
    if lost and situation.controller_id != NOBODY:
        yield f"{_brokers(lost)} no leader of the quorum, while others follow broker {situation.controller_id}"
    quorum = situation.quorum
    if quorum is not None and quorum.leader_id in situation.views:
        newest = max((voter.last_fetch_ms for voter in quorum.voters), default=NOBODY)
        for voter in quorum.voters:
            if voter.node_id != quorum.leader_id and newest - voter.last_fetch_ms > _SILENT_MS_MAX:
                yield f"voter {voter.node_id} does not follow the quorum's leader: is it running?"


def voters_text(view: QuorumDescription) -> str:
    """`1@host:port,2@host:port`, as --voters is written; ids alone where addresses are not told."""
    ids = sorted(voter.node_id for voter in view.voters)
    if not view.addresses:
        return ",".join(map(str, ids))
    return ",".join(f"{node_id}@{view.addresses.get(node_id, '?')}" for node_id in ids)


def _brokers(nodes: list[int]) -> str:
    ids = ", ".join(map(str, sorted(nodes)))
    return f"broker {ids} has" if len(nodes) == 1 else f"brokers {ids} have"


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(key) for key in partitions]
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


# odradek cluster status


async def status(args: argparse.Namespace, client: Client) -> int:
    """Show the brokers, the quorum and what is wrong."""
    situation = await look(client)
    state, problems = judge(situation)
    if args.json:
        print(json.dumps(_as_json(situation, state, problems)))
    else:
        _print(situation, state, problems)
    return EXIT_CODES[state]


def _as_json(situation: Situation, state: str, problems: list[str]) -> dict[str, object]:
    quorum = situation.quorum
    return {
        "cluster_id": situation.cluster_id,
        "state": state,
        "controller": situation.controller_id,
        "epoch": None if quorum is None else quorum.epoch,
        "high_watermark": None if quorum is None else quorum.high_watermark,
        "voters": [] if quorum is None else [voter.node_id for voter in quorum.voters],
        "brokers": [
            {
                "broker": broker.node_id,
                "address": str(broker.address),
                "rack": broker.rack,
                "state": situation.state_of(broker),
                "role": situation.role_of(broker.node_id),
                "metadata_lag": situation.lag_of(broker.node_id),
                "voters": voters_text(view) if (view := situation.views.get(broker.node_id)) else None,
                **_held(situation, broker.node_id),
            }
            for broker in situation.brokers
        ],
        "topics": len(situation.topics),
        "partitions": sum(topic.partition_count for topic in situation.topics),
        "under_replicated": _partitions_json(situation.under_replicated),
        "offline": _partitions_json(situation.offline),
        "problems": problems,
    }


def _held(situation: Situation, broker_id: int) -> dict[str, int]:
    infos = [info for _, info in situation.partitions()]
    return {
        "leads": sum(info.leader == broker_id for info in infos),
        "replicas": sum(broker_id in info.replicas for info in infos),
    }


def _partitions_json(found: Mapping[TopicPartition, PartitionInfo]) -> list[dict[str, object]]:
    return [partition_json(key, info) for key, info in found.items()]


def _print(situation: Situation, state: str, problems: list[str]) -> None:
    quorum = situation.quorum
    controller = "none" if situation.controller_id == NOBODY else f"broker {situation.controller_id}"
    facts = [f"controller {controller}"]
    if quorum is not None:
        facts += [f"epoch {quorum.epoch}", f"high watermark {quorum.high_watermark}"]
    facts.append(counted(len(situation.brokers), "broker"))
    facts.append(counted(len(situation.topics), "topic"))
    facts.append(counted(sum(topic.partition_count for topic in situation.topics), "partition"))
    print(escape(f"cluster {situation.cluster_id or '-'} is {state}: {', '.join(facts)}"))
    rows = []
    for broker in situation.brokers:
        lag, held = situation.lag_of(broker.node_id), _held(situation, broker.node_id)
        rows.append(
            (
                str(broker.node_id),
                str(broker.address),
                broker.rack or "-",
                situation.state_of(broker),
                situation.role_of(broker.node_id),
                "-" if lag is None else str(lag),
                str(held["leads"]),
                str(held["replicas"]),
            )
        )
    show(("broker", "address", "rack", "state", "quorum", "lag", "leads", "replicas"), rows)
    for problem in problems:
        print(escape(f"problem: {problem}"))


# odradek cluster describe


async def describe(args: argparse.Namespace, client: Client) -> int:
    """Show who holds which partition."""
    names = list(dict.fromkeys(args.topics))
    topics = (
        [await find_topic(client, name) for name in names] if names else await client.admin.list_topics(internal=True)
    )
    moves = await client.admin.moves()
    found = [
        (TopicPartition(topic.name, index), info)
        for topic in topics
        for index, info in sorted(topic.partitions.items())
    ]
    if args.unhealthy:
        found = [(key, info) for key, info in found if condition_of(info) in ("offline", "under-replicated")]
    if args.json:
        for key, info in found:
            print(json.dumps(partition_json(key, info, moves.get(key))))
        return 0
    if not found and is_terminal():
        tell("every partition has its leader and all its copies" if args.unhealthy else "there are no topics yet")
    show(
        ("partition", "leader", "epoch", "replicas", "in-sync", "state", "moving"),
        [
            (
                str(key),
                "none" if info.leader == NOBODY else str(info.leader),
                str(info.leader_epoch),
                numbers(info.replicas),
                numbers(info.in_sync),
                condition_of(info),
                moving_text(moves.get(key)),
            )
            for key, info in found
        ],
    )
    return 0


def condition_of(info: PartitionInfo) -> str:
    """One word for a partition."""
    if info.leader == NOBODY:
        return "offline"
    if _missing(info):
        return "under-replicated"
    return "ok" if info.replicas[:1] == (info.leader,) else "not-preferred"


def moving_text(move: Move | None) -> str:
    """`+4 -1`: who comes and who goes."""
    if move is None:
        return "-"
    return " ".join([f"+{broker}" for broker in move.adding] + [f"-{broker}" for broker in move.removing])


def numbers(brokers: Iterable[int]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, brokers)) or "-"


def partition_json(key: TopicPartition, info: PartitionInfo, move: Move | None = None) -> dict[str, object]:
    """A partition for programs."""
    return {
        "topic": key.topic,
        "partition": key.partition,
        "leader": info.leader,
        "leader_epoch": info.leader_epoch,
        "replicas": list(info.replicas),
        "in_sync": list(info.in_sync),
        "state": condition_of(info),
        "adding": [] if move is None else list(move.adding),
        "removing": [] if move is None else list(move.removing),
    }
