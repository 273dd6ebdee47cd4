"""`odradek group`: shows consumer groups and how far they are behind, moves their offsets, deletes them."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from odradek.cli.connect import EXIT_USAGE, add_broker_argument, find_topic, nearest, run_client
from odradek.cli.inputs import confirm
from odradek.cli.listing import counted, show, tell
from odradek.cli.partitions import chosen_partitions, resolve_within
from odradek.cli.terminal import CommandError, is_terminal
from odradek.cli.values import place
from odradek.client.admin_types import GroupDescription
from odradek.client.client import Client
from odradek.client.commits import CommittedOffset
from odradek.client.errors import RequestError
from odradek.client.offsets import bounds, look_up
from odradek.client.start import LATEST
from odradek.model import PARTITION_MAX, SINK_GROUPS, TopicPartition
from odradek.wire.errors import ErrorCode

_MEMBERS_NAMED_MAX = 3
_LEAVING_SECONDS_MAX = 10.0
_LEAVING_PAUSE_SECONDS = 0.1
_NOT_EMPTY = frozenset({ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})

_EXAMPLES = """\
examples:
  odradek group list
  odradek group describe billing
  odradek group reset billing orders --to start --dry-run
  odradek group delete billing

'odradek group COMMAND --help' says more. All work with any Kafka broker: --broker HOST:PORT.
"""

_DESCRIBE_DESCRIPTION = """\
Show a group's members, what each of them reads, and for every partition the committed offset, the end and the lag
between the two, which is the number of records still to be read (less what compaction has removed). '-' is an offset
that was never committed, or the end of a topic that is gone."""

_RESET_DESCRIPTION = """\
Move a group's offsets, so that its members go on elsewhere when they come back. Refused while the group has members.
The group need not exist yet.

A PLACE is start, end, an offset, +n (behind the first n records of the partition), -n (before its last n records), or
@TIME (the first record from then on): @2026-01-31T12:00, @-1h (an hour ago), @1767225600000 (milliseconds)."""


# list and describe


async def _list(args: argparse.Namespace, client: Client) -> int:
    every = await client.admin.list_groups()
    groups = [group for group in every if args.all or not group.group.startswith(SINK_GROUPS)]
    if args.json:
        for group in groups:
            fields = {"group": group.group, "state": group.state, "protocol": group.kind}
            print(json.dumps(fields | {"protocol_type": group.protocol_type}))
        return 0
    if not groups and is_terminal():
        tell("there are no groups yet: 'odradek consume TOPIC --group NAME' makes one")
        return 0
    show(("group", "state", "protocol"), [(group.group, group.state or "-", group.kind or "-") for group in groups])
    return 0


async def _describe(args: argparse.Namespace, client: Client) -> int:
    for name in dict.fromkeys(args.groups):
        group = await _find_group(client, name)
        committed = await client.admin.group_offsets(name)
        readers = {partition: member.member_id for member in group.members for partition in member.assignment}
        partitions = sorted(committed.keys() | readers.keys())
        ends = await _ends(client, partitions)
        if args.json:
            print(json.dumps(_json(group, partitions, committed, ends, readers)))
        else:
            _print_description(group, partitions, committed, ends, readers)
    return 0


async def _find_group(client: Client, name: str) -> GroupDescription:
    try:
        return await client.admin.describe_group(name)
    except RequestError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    names = [group.group for group in await client.admin.list_groups()]
    hint = nearest(name, names) or "'odradek group list' shows those that there are"
    raise CommandError(f"there is no group '{name}': {hint}")


async def _ends(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of those partitions that (still) exist."""
    topics = {topic.name: topic for topic in await client.admin.list_topics(internal=True) if not topic.error}
    present = [key for key in partitions if key.topic in topics and key.partition in topics[key.topic].partitions]
    infos = await look_up(client.cluster, dict.fromkeys(present, LATEST))
    return {key: info.offset for key, info in infos.items()}


def _lag(committed: CommittedOffset | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed.offset)


def _json(
    group: GroupDescription,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    readers: Mapping[TopicPartition, str],
) -> dict[str, object]:
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "committed": committed[key].offset if key in committed else None,
            "end": ends.get(key),
            "lag": _lag(committed.get(key), ends.get(key)),
            "member": readers.get(key),
        }
        for key in partitions
    ]
    return {
        "group": group.group,
        "state": group.state,
        "protocol": group.kind,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "assignment": [{"topic": topic, "partition": index} for topic, index in member.assignment],
            }
            for member in group.members
        ],
        "partitions": rows,
        "total_lag": sum(_lag(committed.get(key), ends.get(key)) or 0 for key in partitions),
    }


def _print_description(
    group: GroupDescription,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    readers: Mapping[TopicPartition, str],
) -> None:
    members = group.members
    lags = {key: _lag(committed.get(key), ends.get(key)) for key in partitions}
    print(
        f"group {group.group}: {group.state}, {counted(len(members), 'member')},"
        f" total lag {sum(lag or 0 for lag in lags.values())}"
    )
    if members:
        rows = [
            (member.member_id, member.client_id, member.client_host, str(len(member.assignment))) for member in members
        ]
        show(("member", "client", "host", "partitions"), rows)
    if partitions:
        rows_of_partitions = [
            (
                str(key),
                str(committed[key].offset) if key in committed else "-",
                _or_dash(ends.get(key)),
                _or_dash(lags[key]),
                readers.get(key, "-"),
            )
            for key in partitions
        ]
        show(("partition", "committed", "end", "lag", "member"), rows_of_partitions)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


# reset and delete


async def _reset(args: argparse.Namespace, client: Client) -> int:
    partitions: list[TopicPartition] = []
    for text in args.topics:
        name, index = _topic_and_partition(text)
        topic = await find_topic(client, name)
        partitions += chosen_partitions(topic, None if index is None else [index])
    partitions = list(dict.fromkeys(partitions))
    if not await _exists_without_members(client, args.group):
        tell(f"group {args.group} has no offsets yet: it is new")
    before = await client.admin.group_offsets(args.group)
    first, last = await bounds(client.cluster, partitions)
    after = await resolve_within(client, dict.fromkeys(partitions, args.to), last)
    after = {key: max(first[key], offset) for key, offset in after.items()}
    if not args.dry_run:
        await _when_empty(client, args.group, partial(client.admin.set_group_offsets, args.group, after))
    rows = [(str(key), str(before[key].offset) if key in before else "-", str(after[key])) for key in partitions]
    show(("partition", "before", "after"), rows)
    if args.dry_run:
        tell("nothing was changed: leave --dry-run away to do it")
    return 0


def _topic_and_partition(text: str) -> tuple[str, int | None]:
    name, colon, index = text.partition(":")
    if not colon:
        return name, None
    if not (index.isascii() and index.isdigit()) or int(index) > PARTITION_MAX:
        raise CommandError(f"{text!r} is no TOPIC:PARTITION, as in orders:0", EXIT_USAGE)
    return name, int(index)


async def _exists_without_members(client: Client, name: str) -> bool:
    """Whether there is such a group; an error if it has members."""
    try:
        group = await client.admin.describe_group(name)
    except RequestError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if group.members:
        named = [f"{member.client_id} at {member.client_host}" for member in group.members[:_MEMBERS_NAMED_MAX]]
        more = ", ..." if len(group.members) > _MEMBERS_NAMED_MAX else ""
        raise CommandError(
            f"group {name} has {counted(len(group.members), 'active member')} ({', '.join(named)}{more}): stop them"
            " first, since they would go on where they are"
        )
    return True


async def _when_empty(client: Client, name: str, change: Callable[[], Awaitable[None]]) -> None:
    """Change a group; one whose last member has just left is not empty to its broker for a moment."""
    deadline = time.monotonic() + _LEAVING_SECONDS_MAX
    while True:
        try:
            await change()
            return
        except RequestError as error:
            if error.code not in _NOT_EMPTY:
                raise
            await _exists_without_members(client, name)
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_LEAVING_PAUSE_SECONDS)


async def _delete(args: argparse.Namespace, client: Client) -> int:
    groups = [(await _find_group(client, name)).group for name in dict.fromkeys(args.groups)]
    what = f"{'group' if len(groups) == 1 else 'the groups'} {', '.join(groups)}"
    await confirm(f"delete {what} with all offsets?", yes=args.yes)
    for name in groups:
        await _when_empty(client, name, partial(client.admin.delete_group, name))
        print(f"deleted group {name}")
    return 0


# What is typed.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek group` takes."""
    parser.description = "Show consumer groups and how far they are behind, move their offsets, delete them."
    parser.epilog = _EXAMPLES
    add_broker_argument(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    shown = commands.add_parser("list", help="show all groups", description="Show all groups and their states.")
    shown.epilog = "examples:\n  odradek group list\n  odradek group list --json | jq -r .group\n"
    shown.set_defaults(action=_list)
    shown.add_argument("--all", action="store_true", help="also those in which Spark's sink keeps its state")

    described = commands.add_parser("describe", help="show members, offsets and lag", description=_DESCRIBE_DESCRIPTION)
    described.epilog = (
        "examples:\n  odradek group describe billing\n  odradek group describe billing --json | jq .total_lag\n"
    )
    described.set_defaults(action=_describe)
    described.add_argument("groups", metavar="GROUP", nargs="+")
    for command in (shown, described):
        command.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")

    reset = commands.add_parser("reset", help="move a group's offsets", description=_RESET_DESCRIPTION)
    reset.epilog = (
        "examples:\n"
        "  odradek group reset billing orders --to start\n"
        "  odradek group reset billing orders:0 --to 1000\n"
        "  odradek group reset billing orders users --to @-1h --dry-run\n"
    )
    reset.set_defaults(action=_reset)
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("topics", metavar="TOPIC[:PARTITION]", nargs="+", help="all partitions, unless one is named")
    reset.add_argument("--to", metavar="PLACE", type=place, required=True, help="where to go on")
    reset.add_argument("--dry-run", action="store_true", help="only show what would change")

    deleted = commands.add_parser(
        "delete",
        help="delete groups with their offsets",
        description="Delete groups that have no members, with their offsets. Asks before; without a terminal, --yes\n"
        "is needed.",
    )
    deleted.epilog = "examples:\n  odradek group delete billing\n  odradek group delete billing audit --yes\n"
    deleted.set_defaults(action=_delete)
    deleted.add_argument("groups", metavar="GROUP", nargs="+")
    deleted.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for command in (shown, described, reset, deleted):
        add_broker_argument(command)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    return run_client(args, partial(args.action, args))
