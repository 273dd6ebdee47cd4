"""`odradek cluster elect`, `reassign` and `decommission`: who leads a partition, who holds it, and how a broker goes.

Moves go on in the brokers when the command has ended, or was interrupted; run again, it waits for the same moves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from odradek.cli.cluster_plan import with_factor, without
from odradek.cli.cluster_status import moving_text, numbers
from odradek.cli.connect import EXIT_USAGE, find_topic
from odradek.cli.inputs import confirm
from odradek.cli.listing import counted, show, tell
from odradek.cli.partitions import chosen_partitions, partitions_of
from odradek.cli.terminal import CommandError, escape, is_terminal
from odradek.client.admin_types import Move
from odradek.client.client import Client
from odradek.client.errors import ClientError, RequestError
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode

POLL_SECONDS = 0.3
_BATCH = 200  # partitions a request
_ROUNDS_MAX = 10  # of a decommission: topics made meanwhile may give the broker new partitions
_QUIET_SECONDS_MAX = 15.0  # without progress, until it is said what is missing

_LOOKS_MAX, _LOOK_SECONDS = 30, 0.1  # at who leads, after an election


async def _named(client: Client, topic: str | None, partition: int | None) -> list[TopicPartition]:
    """The partitions that were named on the command line; all if none were."""
    if topic is None:
        return [key for info in await client.admin.list_topics(internal=True) for key in partitions_of(info)]
    return chosen_partitions(await find_topic(client, topic), None if partition is None else [partition])


def _holders(
    client: Client, moves: Mapping[TopicPartition, Move] | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Who holds which partition, as last told; given the moves under way, who will hold it when they are done."""
    moves = moves or {}
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for name, topic in client.cluster.topics.items():
        for index, info in topic.partitions.items():
            key = TopicPartition(name, index)
            leaving = moves[key].removing if key in moves else ()
            found[key] = tuple(broker for broker in info.replicas if broker not in leaving)
    return found


# elect


async def elect(args: argparse.Namespace, client: Client) -> int:
    """Hold elections and show who leads now."""
    wanted = None if args.topic is None else await _named(client, args.topic, args.partition)
    if args.unclean:
        what = "all partitions without a leader" if wanted is None else ", ".join(map(str, wanted[:5]))
        await confirm(
            f"let a replica that is behind lead {what}? Records that were acknowledged may be lost.", yes=args.yes
        )
    await client.admin.list_topics(internal=True)
    terms = {key: _term(client, key) for key in _all_known(client)}
    outcomes = await client.admin.elect_leaders(wanted, unclean=args.unclean)
    await _heard_of(client, {key: terms.get(key, -1) for key, error in outcomes.items() if error is None})
    rows = [(key, _leader(client, key), _word(error), error) for key, error in sorted(outcomes.items())]
    failed = [error for _, _, word, error in rows if word == "failed"]
    if args.json:
        for key, leader, word, error in rows:
            fields = {"topic": key.topic, "partition": key.partition, "leader": leader, "result": word}
            print(json.dumps(fields | {"error": None if word != "failed" or error is None else error.code.name}))
        return 1 if failed else 0
    shown = [row for row in rows if wanted is not None or row[2] != "not-needed"]
    show(("partition", "leader", "result"), [(str(key), _leader_text(leader), word) for key, leader, word, _ in shown])
    for error in failed:
        tell(str(error))
    needless = sum(word == "not-needed" for _, _, word, _ in rows)
    elected = len(rows) - needless - len(failed)
    tell(f"{counted(elected, 'leader')} elected, {needless} not needed, {len(failed)} failed")
    return 1 if failed else 0


def _all_known(client: Client) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name, topic in client.cluster.topics.items() for index in topic.partitions]


def _term(client: Client, key: TopicPartition) -> int:
    topic = client.cluster.topics.get(key.topic)
    info = None if topic is None else topic.partitions.get(key.partition)
    return -1 if info is None else info.leader_epoch


async def _heard_of(client: Client, terms: dict[TopicPartition, int]) -> None:
    """Wait until the brokers that are asked know the new leaders: they hear of them one after the other."""
    for _ in range(_LOOKS_MAX):
        await client.admin.list_topics(internal=True)
        if all(_term(client, key) > term for key, term in terms.items()):
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _leader(client: Client, key: TopicPartition) -> int:
    topic = client.cluster.topics.get(key.topic)
    info = None if topic is None else topic.partitions.get(key.partition)
    return -1 if info is None else info.leader


def _leader_text(leader: int) -> str:
    return "none" if leader < 0 else str(leader)


def _word(error: RequestError | None) -> str:
    if error is None:
        return "elected"
    return "not-needed" if error.code is ErrorCode.ELECTION_NOT_NEEDED else "failed"


# reassign


async def reassign(args: argparse.Namespace, client: Client) -> int:
    """Begin, show or stop moves."""
    if args.status:
        return await _show_moves(args, client)
    if args.cancel:
        return await _cancel(args, client)
    if args.factor is not None:
        keys = await _named(client, args.topic, args.partition)
        holders, racks = await _holders_to_be(client)
        plan = with_factor(holders, keys, args.factor, racks)
    elif args.replicas is not None:
        (key,) = await _named(client, args.topic, args.partition)
        await _check_brokers(client, args.replicas)
        plan = {key: args.replicas}
    else:
        raise CommandError(
            "say what to move: TOPIC PARTITION 1,2,3 or [TOPIC [PARTITION]] --factor N; --status shows what moves now,"
            " --cancel stops it",
            EXIT_USAGE,
        )
    before = _holders(client)
    if not plan:
        tell(f"nothing to move: every partition has {counted(args.factor, 'replica')} already")
        return 0
    failed = await _begin(client, plan)
    if not args.json:
        rows = [
            (str(key), numbers(before.get(key, ())), numbers(replicas), "refused" if key in failed else "begun")
            for key, replicas in plan.items()
        ]
        show(("partition", "before", "wanted", "move"), rows)
    if args.wait:
        await wait_for_moves(client, plan.keys() - failed.keys(), args.timeout)
    if args.json:
        for key, replicas in plan.items():
            fields = {"topic": key.topic, "partition": key.partition, "before": list(before.get(key, ()))}
            error = failed[key].code.name if key in failed else None
            print(json.dumps(fields | {"wanted": list(replicas), "done": args.wait and error is None, "error": error}))
    elif not args.wait and len(failed) < len(plan):
        tell("the moves go on by themselves: 'odradek cluster reassign --status' shows how far they are")
    return 1 if failed else 0


async def _check_brokers(client: Client, replicas: list[int]) -> None:
    """Refuse brokers that there are not, before anything is begun."""
    if len(set(replicas)) < len(replicas):
        raise CommandError(f"{numbers(replicas)} names a broker twice", EXIT_USAGE)
    known = [broker.node_id for broker in await client.admin.brokers()]
    for broker in replicas:
        if broker not in known:
            raise CommandError(f"there is no broker {broker}: there are {', '.join(map(str, known))}", EXIT_USAGE)


async def _begin(client: Client, plan: Mapping[TopicPartition, Collection[int]]) -> dict[TopicPartition, RequestError]:
    """Ask for moves, some at a time; tell and return those that were refused."""
    failed: dict[TopicPartition, RequestError] = {}
    keys = list(plan)
    for first in range(0, len(keys), _BATCH):
        outcomes = await client.admin.reassign({key: plan[key] for key in keys[first : first + _BATCH]})
        failed |= {key: error for key, error in outcomes.items() if error is not None}
    for error in failed.values():
        tell(str(error))
    return failed


async def _show_moves(args: argparse.Namespace, client: Client) -> int:
    moves = await client.admin.moves()
    if args.topic is not None:
        await find_topic(client, args.topic)
    chosen = {
        key: move
        for key, move in sorted(moves.items())
        if args.topic in (None, key.topic) and args.partition in (None, key.partition)
    }
    if args.json:
        for key, move in chosen.items():
            fields = {"topic": key.topic, "partition": key.partition, "replicas": list(move.replicas)}
            print(json.dumps(fields | {"adding": list(move.adding), "removing": list(move.removing)}))
        return 0
    if not chosen:
        tell("no partition is being moved")
        return 0
    rows = [(str(key), numbers(move.replicas), moving_text(move)) for key, move in chosen.items()]
    show(("partition", "replicas", "moving"), rows)
    return 0


async def _cancel(args: argparse.Namespace, client: Client) -> int:
    moves = await client.admin.moves()
    named = set(await _named(client, args.topic, args.partition))
    keys = [key for key in sorted(moves) if key in named]
    if not keys:
        tell("no partition is being moved")
        return 0
    outcomes = await client.admin.reassign(dict.fromkeys(keys))
    for key, error in outcomes.items():
        if args.json:
            fields = {"topic": key.topic, "partition": key.partition, "cancelled": error is None}
            print(json.dumps(fields | {"error": None if error is None else error.code.name}))
        elif error is None:
            print(escape(f"{key} no longer moves"))
        else:
            tell(str(error))
    return 1 if any(outcomes.values()) else 0


# decommission


async def decommission(args: argparse.Namespace, client: Client) -> int:
    """Move every replica off a broker, wait until it is stopped, then let the cluster forget it."""
    gone: int = args.broker_id
    brokers = {broker.node_id: broker for broker in await client.admin.brokers()}
    if gone not in brokers:
        raise CommandError(f"there is no broker {gone}: there are {', '.join(map(str, brokers))}", EXIT_USAGE)
    if len(brokers) == 1:
        raise CommandError(f"broker {gone} is the only one: start others before it goes")
    is_voter = await _is_voter(client, gone)
    plan, leaving = await _plan(client, gone, shrink=args.shrink)
    count = counted(len(plan.keys() | leaving), "partition")
    await confirm(f"move {count} off broker {gone} and remove it from the cluster?", yes=args.yes)
    moved: set[TopicPartition] = set()
    if not plan and not leaving:
        await _wait_until_stopped(client, gone, args.timeout)
        plan, leaving = await _plan(client, gone, shrink=args.shrink)
    for _ in range(_ROUNDS_MAX):
        if not plan and not leaving:
            break
        if await _begin(client, plan):
            raise CommandError(f"not all partitions can leave broker {gone}: see above; it stays in the cluster")
        await wait_for_moves(client, plan.keys() | leaving, args.timeout)
        moved |= plan.keys() | leaving
        await _wait_until_stopped(client, gone, args.timeout)
        plan, leaving = await _plan(client, gone, shrink=args.shrink)
    if plan or leaving:
        count = counted(len(plan.keys() | leaving), "partition")
        raise CommandError(
            f"broker {gone} still has {count} after {_ROUNDS_MAX} rounds of moving: it stays in the cluster; run this"
            " again when no topics are being made"
        )
    await client.admin.unregister_broker(gone)
    if args.json:
        print(json.dumps({"broker": gone, "moved": len(moved), "unregistered": True, "voter": is_voter}))
    else:
        print(f"broker {gone} is out of the cluster: {counted(len(moved), 'partition')} moved")
    if is_voter:
        tell(
            f"broker {gone} still counts as a voter: take it out of --voters of the other brokers and restart them one"
            " after the other"
        )
    return 0


async def _wait_until_stopped(client: Client, broker_id: int, timeout: float | None) -> None:
    """Wait until a broker is down: one that runs would register again at once."""
    begun = asyncio.get_running_loop().time()
    is_told = False
    while broker_id in {broker.node_id for broker in await client.admin.brokers() if not broker.is_fenced}:
        if not is_told:
            is_told = True
            tell(f"broker {broker_id} holds nothing any more: stop it now, it is removed as soon as it is down")
        if timeout is not None and asyncio.get_running_loop().time() - begun >= timeout:
            raise CommandError(
                f"broker {broker_id} holds nothing any more but still runs: stop it, then run the same command again"
            )
        await asyncio.sleep(POLL_SECONDS)


async def _is_voter(client: Client, broker_id: int) -> bool:
    """Whether a broker counts for the quorum; no, if the cluster does not tell."""
    for node_id in client.cluster.nodes:
        try:
            quorum = await client.admin.quorum(node_id)
        except ClientError:
            continue
        return broker_id in {voter.node_id for voter in quorum.voters}
    return False


async def _plan(
    client: Client, gone: int, *, shrink: bool
) -> tuple[dict[TopicPartition, list[int]], set[TopicPartition]]:
    """Where the partitions of a broker shall go, and which of them are on their way already."""
    holders, racks = await _holders_to_be(client)
    leaving = {key for key, replicas in _holders(client).items() if gone in replicas and gone not in holders[key]}
    return without(holders, gone, racks, shrink=shrink), leaving


async def _holders_to_be(client: Client) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]:
    """Who will hold each partition when the moves under way are done, and the racks of the brokers that are up."""
    racks = {broker.node_id: broker.rack for broker in await client.admin.brokers() if not broker.is_fenced}
    moves = await client.admin.moves()
    await client.admin.list_topics(internal=True)
    return _holders(client, moves), racks


# Waiting.


async def wait_for_moves(client: Client, keys: Collection[TopicPartition], timeout: float | None) -> None:
    """Wait until none of the partitions moves any more, and show how it goes."""
    keys = set(keys)
    loop = asyncio.get_running_loop()
    begun = changed = loop.time()
    left = len(keys)
    with _counter(len(keys)) as shown:
        while keys and (moving := keys & (await client.admin.moves()).keys()):
            now = loop.time()
            if len(moving) < left:
                left, changed = len(moving), now
                shown(len(keys) - left)
            if timeout is not None and now - begun >= timeout:
                raise CommandError(
                    f"{counted(left, 'partition')} still moving after {timeout:.0f} s. The moves go on: 'odradek"
                    " cluster reassign --status' shows them, and the same command again waits on"
                )
            if now - changed >= _QUIET_SECONDS_MAX:
                changed = now
                some = ", ".join(str(key) for key in sorted(moving)[:3])
                tell(f"still waiting for {some}: are all brokers up? 'odradek cluster status' tells")
            await asyncio.sleep(POLL_SECONDS)
        shown(len(keys))


@contextmanager
def _counter(total: int) -> Iterator[Callable[[int], None]]:
    """Show how many of so many partitions are done: a bar on a terminal, else a line at each change."""
    if not is_terminal(sys.stderr):
        yield lambda done: tell(f"{done} of {counted(total, 'partition')} moved")
        return
    from rich.console import Console  # noqa: PLC0415 (it takes longer to import than most commands take to run)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("moving partitions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=is_terminal()) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
