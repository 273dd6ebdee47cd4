"""`odradek cluster`: runs a cluster on this machine, and shows and changes any cluster of brokers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from odradek.cli.cluster_moves import decommission, elect, reassign
from odradek.cli.cluster_status import EXIT_DEGRADED, EXIT_UNAVAILABLE, describe, status
from odradek.cli.cluster_up import up, up_arguments
from odradek.cli.connect import BROKER_DEFAULT, BROKER_VARIABLE, EXIT_USAGE, run_client
from odradek.cli.terminal import CommandError
from odradek.cli.values import number, seconds
from odradek.client.client import Client
from odradek.model import PARTITION_MAX

_ID_MAX = 2**31 - 1

_EXAMPLES = """\
examples:
  odradek cluster up --brokers 3                  three brokers on this machine
  export ODRADEK_BROKER=127.0.0.1:19092           where the other commands find it
  odradek cluster status
  odradek cluster describe orders
  odradek cluster elect                           preferred leaders lead again
  odradek cluster reassign orders --factor 3      three copies of each partition
  odradek cluster decommission 3                  a broker goes for good

'odradek cluster COMMAND --help' says more. All but 'up' work with any Kafka cluster: --broker HOST:PORT.
"""


class _Subcommand(NamedTuple):
    """One row of the table of subcommands."""

    action: Callable[[argparse.Namespace, Client], Awaitable[int]]
    arguments: Callable[[argparse.ArgumentParser], None]
    summary: str
    description: str
    examples: str


def _brokers(text: str) -> list[int]:
    """`1,2,3`."""
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of brokers: write their numbers as in 1,2,3")
    return [int(part) for part in text.split(",")]


def _status_arguments(_: argparse.ArgumentParser) -> None:
    """It takes nothing of its own."""


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="only these (default: all, also internal ones)")
    parser.add_argument(
        "--unhealthy", action="store_true", help="only partitions without a leader or without all their copies"
    )


def _elect_arguments(parser: argparse.ArgumentParser) -> None:
    _add_partition_arguments(parser)
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="let a replica lead that is not in sync; acknowledged records may be lost",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before an unclean election")


def _add_partition_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only this one")
    parser.add_argument(
        "partition", metavar="PARTITION", nargs="?", type=number(0, PARTITION_MAX), help="only this one of it"
    )


def _reassign_arguments(parser: argparse.ArgumentParser) -> None:
    _add_partition_arguments(parser)
    parser.add_argument(
        "replicas", metavar="BROKERS", nargs="?", type=_brokers, help="who shall hold it, the preferred leader first"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--factor", metavar="N", type=number(1, 2**15 - 1), help="let each have so many replicas")
    what.add_argument("--status", action="store_true", help="show what is being moved")
    what.add_argument("--cancel", action="store_true", help="stop moving, and go back to where it was")
    parser.add_argument("--wait", action="store_true", help="end when the moves are done, and show how far they are")
    _add_timeout_argument(parser)


def _add_timeout_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", metavar="TIME", type=seconds, help="wait no longer, as in 10m (default: no limit)")


def _decommission_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker_id", metavar="ID", type=number(0, _ID_MAX), help="the broker that goes")
    parser.add_argument(
        "--shrink", action="store_true", help="let partitions have a copy less if no broker can take it"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _add_timeout_argument(parser)


_SUBCOMMANDS = {
    "status": _Subcommand(
        status,
        _status_arguments,
        "show brokers, quorum, and what is wrong",
        "Show the brokers, the quorum of their metadata and what is wrong. Every broker is asked, so that one which\n"
        "was given other --voters than the rest, or is cut off, is found.\n\n"
        "exit status:\n"
        "  0  healthy\n"
        "  1  no broker can be asked\n"
        f"  {EXIT_DEGRADED}  degraded: a broker is missing, partitions are under-replicated, or voter lists differ\n"
        f"  {EXIT_UNAVAILABLE}  unavailable: partitions are without a leader, or there is no active controller\n"
        f"  ({EXIT_USAGE} is a wrong command line, as everywhere)",
        """\
  odradek cluster status
  odradek cluster status --json | jq -r '.problems[]'
  odradek cluster status --broker 127.0.0.1:19092,127.0.0.1:19093
""",
    ),
    "describe": _Subcommand(
        describe,
        _describe_arguments,
        "show who holds and who leads each partition",
        "Show each partition's leader, its replicas, those that are in sync, and whether it is being moved.",
        """\
  odradek cluster describe
  odradek cluster describe orders users
  odradek cluster describe --unhealthy
  odradek cluster describe --json | jq 'select(.state != "ok")'
""",
    ),
    "elect": _Subcommand(
        elect,
        _elect_arguments,
        "elect the leaders of partitions anew",
        "Let the preferred replica (the first of the list) lead again, in all partitions or in some. With --unclean,\n"
        "let any replica that is up lead a partition which has no leader: records that only the others have are lost.\n"
        "Exit status 1 if an election fails.",
        """\
  odradek cluster elect
  odradek cluster elect orders
  odradek cluster elect orders 0 --unclean
""",
    ),
    "reassign": _Subcommand(
        reassign,
        _reassign_arguments,
        "move partitions to other brokers",
        "Move a partition to certain brokers, or change how many replicas partitions have; without TOPIC, those of\n"
        "all topics. Moves go on by themselves when the command has ended; records can be read and written meanwhile.",
        """\
  odradek cluster reassign orders 0 1,2,3
  odradek cluster reassign orders --factor 3 --wait
  odradek cluster reassign --factor 3           all topics, also internal ones
  odradek cluster reassign --status
  odradek cluster reassign orders 0 --cancel
""",
    ),
    "decommission": _Subcommand(
        decommission,
        _decommission_arguments,
        "take a broker out of the cluster for good",
        "Move every replica off a broker, wait until that is done, then unregister it. One that is up must be stopped\n"
        "in the end, or it would register again: the command says when, and waits for it. If it is interrupted, the\n"
        "moves go on, and the same command again waits for the rest.",
        """\
  odradek cluster decommission 3
  odradek cluster decommission 3 --yes --timeout 30m
  odradek cluster decommission 3 --shrink       of 3 brokers 2 shall remain
""",
    ),
}

_UP_EXAMPLES = """\
examples:
  odradek cluster up                              3 brokers: Kafka from 19092, HTTP from 8001, gRPC from 50051
  odradek cluster up --brokers 5 --data ./data
  odradek cluster up --set num.partitions=6 --set log.level=warning
  odradek cluster up > ready.txt &                scripts wait for the line 'odradek cluster ready'

Each broker's own log is DIR/broker-N/odradek.log. Ctrl+C stops all in good order, a second one at once.
Exit status 0 after Ctrl+C or SIGTERM, 1 if a broker cannot start or all have ended.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek cluster` takes."""
    parser.description = "Run a cluster on this machine; show and change any cluster of brokers."
    parser.epilog = _EXAMPLES
    _add_broker_argument(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    first = commands.add_parser(
        "up",
        help="run several brokers on this machine",
        description="Run several brokers on this machine as one cluster, each a process of its own that is started\n"
        "again if it dies, until Ctrl+C.",
    )
    first.epilog = _UP_EXAMPLES
    up_arguments(first)
    first.set_defaults(run=up)
    for name, row in _SUBCOMMANDS.items():
        command = commands.add_parser(name, help=row.summary, description=row.description)
        command.epilog = f"examples:\n{row.examples}"
        row.arguments(command)
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
        _add_broker_argument(command)
        command.set_defaults(run=partial(_with_client, row.action))


def _add_broker_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker",
        "--bootstrap",
        dest="broker",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS,  # so that it may stand before a subcommand, too
        help=f"brokers, separated by commas (default: those in {BROKER_VARIABLE}, or {BROKER_DEFAULT})",
    )


def _with_client(action: Callable[[argparse.Namespace, Client], Awaitable[int]], args: argparse.Namespace) -> int:
    return run_client(args, partial(action, args))


def run(args: argparse.Namespace) -> int:
    """Do it."""
    if getattr(args, "replicas", None) is not None and (args.factor is not None or args.status or args.cancel):
        raise CommandError("give either a list of brokers, or one of --factor, --status and --cancel", EXIT_USAGE)
    status_: int = args.run(args)
    return status_
