"""`odradek channel`: channels in an object store: made, listed, published to, read, priced, deleted.

By a broker's HTTP door (--http), or with no broker at all, straight in the store (--store URL).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from odradek.cli import channel_cost
from odradek.cli.channel_access import (
    KEY_VARIABLE,
    add_place_arguments,
    create,
    delete,
    list_channels,
    publish,
    read,
    register,
    revoke,
)
from odradek.cli.values import assignment, moment, number, seconds

_EXAMPLES = """\
examples:
  odradek channel create clicks                              at the broker on 127.0.0.1:8080
  odradek channel register clicks                            prints a key; export ODRADEK_CLIENT_KEY=...
  echo '{"x": 42}' | odradek channel publish clicks
  odradek channel read clicks --from @-10m
  odradek channel read clicks --store s3://bucket -f         no broker needed
  odradek channel cost --rate 1e6 --size 100

'odradek channel COMMAND --help' says more.
"""


class _Subcommand(NamedTuple):
    """One row of the table of subcommands."""

    action: Callable[[argparse.Namespace], int]
    arguments: Callable[[argparse.ArgumentParser], None]
    summary: str
    examples: str


def _when(text: str) -> int:
    """A moment, with or without the `@` that other commands want before it."""
    return moment(text.removeprefix("@"))


def _name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CHANNEL")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_place_arguments(parser)
    parser.add_argument(
        "--in", metavar="URL", dest="home", help="the store that the broker keeps it in (default: its store.url)"
    )
    parser.add_argument("--fifo", action="store_true", help="strictly in the order of arrival")
    parser.add_argument("--window", metavar="TIME", type=seconds, help="the span of a bucket, at most 1m (default: 1m)")
    parser.add_argument("--slice", metavar="TIME", type=seconds, help="how long messages are collected (default: 1s)")
    parser.add_argument("--retention", metavar="TIME", type=seconds, help="older buckets are deleted (default: never)")
    parser.add_argument(
        "-c", "--config", metavar="NAME=VALUE", type=assignment, action="append", default=[],
        help="another setting of the channel's topic; with a broker only",
    )  # fmt: skip


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_place_arguments(parser, key=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_place_arguments(parser, key=True)
    parser.add_argument(
        "-m", "--message", metavar="JSON", dest="messages", action="append", default=[],
        help="a JSON object; repeatable (default: one a line of standard input). `_ts` is added where it is missing",
    )  # fmt: skip


def _read_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_place_arguments(parser, key=True)
    parser.add_argument(
        "--from", metavar="TIME", dest="start", type=_when,
        help="from this moment on: 2026-11-16T10:00, @-10m or milliseconds (default: all; with -f: what comes)",
    )  # fmt: skip
    parser.add_argument("--to", metavar="TIME", dest="end", type=_when, help="up to this moment, exclusive")
    parser.add_argument("-n", metavar="N", dest="most", type=number(1), help="at most so many messages")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl+C")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_place_arguments(parser, key=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _register_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_place_arguments(parser, store=False)
    parser.add_argument("--key", metavar="KEY", help="a key of your own (default: one is made)")


def _revoke_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument("client", metavar="CLIENT_ID", help="as `register` has printed it")
    add_place_arguments(parser, store=False, key=True)


_SUBCOMMANDS = {
    "create": _Subcommand(
        create, _create_arguments, "make a channel",
        "examples:\n  odradek channel create clicks --retention 30d\n  odradek channel create clicks --store file:///srv/channels",
    ),
    "list": _Subcommand(
        list_channels, _list_arguments, "show the channels that there are", "examples:\n  odradek channel list"
    ),
    "register": _Subcommand(
        register, _register_arguments, "register a client with a channel, and print its key",
        f"examples:\n  export {KEY_VARIABLE}=$(odradek channel register clicks)",
    ),
    "revoke": _Subcommand(
        revoke, _revoke_arguments, "take a client's key back",
        "examples:\n  odradek channel revoke clicks 5f2c9a7be01d4c3a",
    ),
    "publish": _Subcommand(
        publish, _publish_arguments, "send messages; they are in the store when it returns",
        "examples:\n  odradek channel publish clicks -m '{\"x\": 42}'\n  odradek channel publish clicks < lines.jsonl",
    ),
    "read": _Subcommand(
        read, _read_arguments, "show messages, one JSON object a line",
        "examples:\n  odradek channel read clicks --from @-10m\n  odradek channel read clicks --store s3://bucket -f",
    ),
    "cost": _Subcommand(
        channel_cost.run, channel_cost.add_arguments, "reckon what a channel costs a month", channel_cost.EXAMPLES
    ),
    "delete": _Subcommand(
        delete, _delete_arguments, "delete a channel and all its objects", "examples:\n  odradek channel delete clicks"
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek channel` takes."""
    parser.description = "Channels: messages by time, kept in an object store."
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, row in _SUBCOMMANDS.items():
        command = commands.add_parser(name, help=row.summary, description=f"{row.summary[0].upper()}{row.summary[1:]}.")
        command.epilog = row.examples
        row.arguments(command)
        command.set_defaults(run=row.action)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    status: int = args.run(args)
    return status
