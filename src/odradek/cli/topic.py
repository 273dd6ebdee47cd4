"""`odradek topic`: makes, shows, changes, trims and deletes topics, at any Kafka broker."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from odradek.cli.connect import EXIT_USAGE, add_broker_argument, check_topic_name, find_topic, run_client
from odradek.cli.inputs import confirm
from odradek.cli.listing import counted, show, tell
from odradek.cli.partitions import chosen_partitions, partitions_of, resolve_within
from odradek.cli.terminal import CommandError, escape, is_terminal
from odradek.cli.values import assignment, number, place
from odradek.client.admin_types import ConfigEntry, ConfigSource, ResourceKind
from odradek.client.client import Client
from odradek.client.cluster import TopicInfo
from odradek.client.errors import ClientError, RequestError
from odradek.client.offsets import bounds
from odradek.model import PARTITION_MAX
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_log_dirs

_BROKERS_CHOICE = -1
_REPLICATION_MAX = 2**15 - 1
_OWN_SOURCES = {ConfigSource.TOPIC: "topic", ConfigSource.GROUP: "group"}

_EXAMPLES = """\
examples:
  odradek topic create orders -p 3
  odradek topic list
  odradek topic describe orders
  odradek topic alter orders -c retention.ms=86400000
  odradek topic trim orders --to @-1h
  odradek topic delete orders

'odradek topic COMMAND --help' says more. All work with any Kafka broker: --broker HOST:PORT.
"""


class _Subcommand(NamedTuple):
    """One row of the table of subcommands."""

    action: Callable[[argparse.Namespace, Client], Awaitable[int]]
    arguments: Callable[[argparse.ArgumentParser], None]
    summary: str
    description: str
    examples: str


# create


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "-p", "--partitions", metavar="N", type=number(1, PARTITION_MAX), default=_BROKERS_CHOICE,
        help="how many (default: what the broker has in num.partitions)",
    )  # fmt: skip
    parser.add_argument(
        "-r", "--replication", metavar="N", type=number(1, _REPLICATION_MAX), default=_BROKERS_CHOICE,
        help="on how many brokers each partition is kept (default: the broker's choice)",
    )  # fmt: skip
    _add_config_argument(parser)
    parser.add_argument("--if-missing", action="store_true", help="a topic that is there already is no error")


def _add_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", metavar="NAME=VALUE", type=assignment, action="append", default=[],
        help="a setting of the topic; repeatable. 'odradek settings --scope topic' lists them",
    )  # fmt: skip


async def _create(args: argparse.Namespace, client: Client) -> int:
    check_topic_name(args.name)
    try:
        info = await client.admin.create_topic(
            args.name, args.partitions, dict(args.config), replication=args.replication
        )
    except RequestError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        if args.if_missing:
            print(f"topic {args.name} is there already")
            return 0
        raise CommandError(
            f"there is a topic '{args.name}' already: 'odradek topic describe {args.name}' shows it"
        ) from None
    assert info is not None
    print(f"created topic {info.name} with {counted(info.partition_count, 'partition')}")
    return 0


# list


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="also those that Kafka keeps for itself")
    _add_json_argument(parser)


def _add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


async def _list(args: argparse.Namespace, client: Client) -> int:
    topics = await client.admin.list_topics(internal=args.internal)
    if args.json:
        for topic in topics:
            fields = {"topic": topic.name, "partitions": topic.partition_count, "replication": _replication(topic)}
            print(json.dumps(fields | {"internal": topic.is_internal, "id": _topic_id(topic)}))
        return 0
    if not topics and is_terminal():
        tell("there are no topics yet: 'odradek topic create NAME' makes one")
        return 0
    rows = [(topic.name, str(topic.partition_count), str(_replication(topic))) for topic in topics]
    show(("topic", "partitions", "replication"), rows)
    return 0


def _replication(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _topic_id(topic: TopicInfo) -> str | None:
    """As Kafka's own tools write it; None where the broker has no ids."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=") if any(topic.topic_id) else None


# describe


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    _add_json_argument(parser)


async def _describe(args: argparse.Namespace, client: Client) -> int:
    for name in dict.fromkeys(args.names):
        topic = await find_topic(client, name)
        partitions = partitions_of(topic)
        first, last = await bounds(client.cluster, partitions)
        sizes = await _sizes(client, topic)
        settings = await client.admin.describe_configs(ResourceKind.TOPIC, name)
        own = {key: entry for key, entry in settings.items() if not entry.is_default}
        rows: list[dict[str, object]] = [
            {
                "partition": key.partition,
                "leader": info.leader,
                "replicas": list(info.replicas),
                "in_sync": list(info.in_sync),
                "start": first[key],
                "end": last[key],
                "bytes": sizes.get(key.partition),
            }
            for key, info in ((key, topic.partitions[key.partition]) for key in partitions)
        ]
        if args.json:
            _print_json(topic, rows, own)
        else:
            _print_description(topic, rows, own)
    return 0


async def _sizes(client: Client, topic: TopicInfo) -> dict[int, int]:
    """The bytes of each partition on its leader's disk; nothing where a broker does not tell."""
    sizes: dict[int, int] = {}
    for node_id in {info.leader for info in topic.partitions.values() if info.leader >= 0}:
        led = [index for index, info in topic.partitions.items() if info.leader == node_id]
        request = describe_log_dirs.Request(topics=[describe_log_dirs.RequestTopic(topic=topic.name, partitions=led)])
        try:
            response = await client.cluster.ask(node_id, request, describe_log_dirs.Response)
        except ClientError:
            continue
        found = [item for result in response.results for item in result.topics if item.name == topic.name]
        sizes |= {
            item.partition_index: item.partition_size
            for item in (item for each in found for item in each.partitions)
            if not item.is_future_key
        }
    return sizes


def _print_json(topic: TopicInfo, rows: list[dict[str, object]], own: Mapping[str, ConfigEntry]) -> None:
    fields = {
        "topic": topic.name,
        "id": _topic_id(topic),
        "internal": topic.is_internal,
        "partitions": rows,
        "settings": {key: {"value": entry.value, "source": _source(entry)} for key, entry in own.items()},
    }
    print(json.dumps(fields))


def _print_description(topic: TopicInfo, rows: list[dict[str, object]], own: Mapping[str, ConfigEntry]) -> None:
    print(
        f"topic {topic.name}: {counted(topic.partition_count, 'partition')}, replication {_replication(topic)}"
        + (f", id {_topic_id(topic)}" if _topic_id(topic) else "")
        + (", internal" if topic.is_internal else "")
    )
    headings = ("partition", "leader", "replicas", "in-sync", "start", "end", "bytes")
    cells = [tuple(_cell(value) for value in row.values()) for row in rows]
    show(headings, [(f"{topic.name}-{first}", *others) for first, *others in cells])
    for key, entry in own.items():
        print(escape(f"setting {key}={'(secret)' if entry.value is None else entry.value} from={_source(entry)}"))


def _cell(value: object) -> str:
    return "-" if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _source(entry: ConfigEntry) -> str:
    return _OWN_SOURCES.get(entry.source, "broker")


# alter


def _alter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _add_config_argument(parser)
    parser.add_argument(
        "--unset", metavar="NAME", action="append", default=[], help="put a setting back to the broker's; repeatable"
    )


async def _alter(args: argparse.Namespace, client: Client) -> int:
    changes: dict[str, str | None] = dict(args.config)
    for key in args.unset:
        if key in changes:
            raise CommandError(f"{key} cannot be set and unset at once", EXIT_USAGE)
        changes[key] = None
    if not changes:
        raise CommandError("nothing to change: give -c NAME=VALUE or --unset NAME", EXIT_USAGE)
    await find_topic(client, args.name)
    before = await client.admin.describe_configs(ResourceKind.TOPIC, args.name, changes)
    await client.admin.alter_configs(ResourceKind.TOPIC, args.name, changes)
    after = await client.admin.describe_configs(ResourceKind.TOPIC, args.name, changes)
    show(("setting", "before", "after"), [(key, _value(before, key), _value(after, key)) for key in changes])
    return 0


def _value(entries: Mapping[str, ConfigEntry], key: str) -> str:
    entry = entries.get(key)
    return "-" if entry is None or entry.value is None else entry.value


# delete


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


async def _delete(args: argparse.Namespace, client: Client) -> int:
    topics = [await find_topic(client, name) for name in dict.fromkeys(args.names)]
    described = ", ".join(f"{topic.name} ({counted(topic.partition_count, 'partition')})" for topic in topics)
    await confirm(f"delete {'topic' if len(topics) == 1 else 'the topics'} {described} with all records?", yes=args.yes)
    for topic in topics:
        await client.admin.delete_topic(topic.name)
        print(f"deleted topic {topic.name}")
    return 0


# add-partitions


def _add_partitions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "total", metavar="TOTAL", type=number(1, PARTITION_MAX), help="how many it shall have then, counted from 0"
    )


async def _add_partitions(args: argparse.Namespace, client: Client) -> int:
    topic = await find_topic(client, args.name)
    before, highest = topic.partition_count, max(topic.partitions, default=-1)
    if args.total <= highest + 1:
        has = counted(before, "partition") + ("" if before == highest + 1 else f", the last with number {highest},")
        raise CommandError(
            f"topic {args.name} has {has} already: TOTAL must be greater, since partitions cannot be taken away",
            EXIT_USAGE,
        )
    after = await client.admin.add_partitions(args.name, args.total)
    print(f"topic {args.name} has {after.partition_count} partitions now, {before} before")
    return 0


# trim


def _trim_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--to", metavar="PLACE", type=place, required=True, help="an offset, end, -n (keep the last n), +n or @TIME"
    )
    parser.add_argument(
        "-p", "--partition", metavar="N", type=number(0, PARTITION_MAX), action="append", help="only this; repeatable"
    )


async def _trim(args: argparse.Namespace, client: Client) -> int:
    topic = await find_topic(client, args.name)
    partitions = chosen_partitions(topic, args.partition)
    first, last = await bounds(client.cluster, partitions)
    targets = await resolve_within(client, dict.fromkeys(partitions, args.to), last)
    targets = {key: max(first[key], offset) for key, offset in targets.items()}
    after = await client.admin.delete_records(targets)
    rows = [(str(key), str(first[key]), str(after[key])) for key in partitions]
    show(("partition", "start-before", "start-after"), rows)
    return 0


# What is typed.

_SUBCOMMANDS = {
    "create": _Subcommand(
        _create,
        _create_arguments,
        "make a topic",
        "Make a topic and wait until it can be used.",
        """\
  odradek topic create orders
  odradek topic create orders -p 12 -r 3 -c retention.ms=604800000
  odradek topic create users -c cleanup.policy=compact --if-missing
""",
    ),
    "list": _Subcommand(
        _list,
        _list_arguments,
        "show all topics",
        "Show all topics with the numbers of their partitions and replicas.",
        """\
  odradek topic list
  odradek topic list --internal
  odradek topic list --json | jq -r .topic
  odradek topic list --broker kafka.example:9092
""",
    ),
    "describe": _Subcommand(
        _describe,
        _describe_arguments,
        "show partitions, offsets, sizes and settings",
        "Show a topic's partitions with their leaders, first and next offsets and bytes on disk, and those settings\n"
        "that are not Kafka's defaults.",
        """\
  odradek topic describe orders
  odradek topic describe orders users --json | jq '.partitions[].end'
""",
    ),
    "alter": _Subcommand(
        _alter,
        _alter_arguments,
        "change settings",
        "Change a topic's settings; the others stay as they are.",
        """\
  odradek topic alter orders -c retention.ms=86400000
  odradek topic alter orders -c cleanup.policy=compact --unset retention.ms
""",
    ),
    "delete": _Subcommand(
        _delete,
        _delete_arguments,
        "delete topics with all their records",
        "Delete topics with all their records, and wait until they are gone. Asks before; without a terminal, --yes\n"
        "is needed.",
        """\
  odradek topic delete orders
  odradek topic delete orders users --yes
""",
    ),
    "add-partitions": _Subcommand(
        _add_partitions,
        _add_partitions_arguments,
        "let a topic grow",
        "Give a topic more partitions. Records stay where they are, and keys may go to other partitions from then on.",
        """\
  odradek topic add-partitions orders 12
""",
    ),
    "trim": _Subcommand(
        _trim,
        _trim_arguments,
        "delete the oldest records",
        "Delete the records before a place, in all partitions or in some. A PLACE is an offset (the first to stay),\n"
        "end (delete everything), -n (keep the last n of each partition), +n (delete the first n), or @TIME (delete\n"
        "what is older): @2026-01-31T12:00, @-1h (an hour ago), @1767225600000 (milliseconds since 1970).",
        """\
  odradek topic trim orders --to @-7d
  odradek topic trim orders --to 1000 -p 0
  odradek topic trim orders --to end
""",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek topic` takes."""
    parser.description = "Make, show, change, trim and delete topics."
    parser.epilog = _EXAMPLES
    add_broker_argument(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, row in _SUBCOMMANDS.items():
        command = commands.add_parser(name, help=row.summary, description=row.description)
        command.epilog = f"examples:\n{row.examples}"
        row.arguments(command)
        add_broker_argument(command)
        command.set_defaults(action=row.action)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    return run_client(args, partial(args.action, args))
