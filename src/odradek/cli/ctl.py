"""`odradek ctl`: makes, removes and shows partitions through MyKafka's gRPC door.

It is MyKafka's tool, with its flags, lines and exit codes; `odradek topic` is for any Kafka broker.
"""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import TYPE_CHECKING

from odradek.cli.grpc_connect import (
    EXIT_ACTION,
    EXIT_STATUS,
    EXIT_STATUS_MORE,
    add_address_argument,
    partition_of,
    run_mykafka,
    topic_of,
)
from odradek.cli.listing import tell
from odradek.cli.terminal import CommandError, escape, is_terminal
from odradek.cli.values import number, size

if TYPE_CHECKING:
    from odradek.client.grpc import AsyncMyKafka

ACTIONS = ("create", "delete", "info", "offsets")
TTL_SECONDS_MAX = 2**53

_DESCRIPTION = """\
Make, remove and show partitions through a broker's gRPC door.

  create   a partition, with settings of its own; its topic comes with it. Partitions are any numbers from 0 on.
  delete   a partition with its messages, and the topic with its last one; without --partition the whole topic
  info     all topics of the cluster, their partitions, settings and offsets
  offsets  the first, the committed and the last offset of a partition; -1: there is no message"""

_EXAMPLES = f"""\
examples:
  odradek ctl --action create --topic bookstore --partition 0
  odradek ctl --action create --topic events --partition 34 --segment-size 1KiB --partition-size 4KiB --segment-ttl 60
  echo hello | odradek produce --grpc bookstore --partition 0
  odradek ctl --action offsets --topic bookstore --partition 0
  odradek ctl --action info --broker-address 127.0.0.1:50052
  odradek ctl --action delete --topic bookstore

{EXIT_STATUS}
  {EXIT_ACTION}  no action, or one that is not known
{EXIT_STATUS_MORE}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek ctl` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("--action", metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("--topic", metavar="NAME", help="the topic")
    parser.add_argument("--partition", metavar="N", help="the partition's number, from 0")
    parser.add_argument(
        "--segment-size", metavar="SIZE", type=size, default=0,
        help="create: bytes of a segment, as in 4096 or 1KiB (default 4096)",
    )  # fmt: skip
    parser.add_argument(
        "--partition-size", metavar="SIZE", type=size, default=0,
        help="create: old segments go when the partition has more (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--segment-ttl", metavar="SECONDS", type=number(0, TTL_SECONDS_MAX), default=0,
        help="create: segments go when they are older (default: they stay)",
    )  # fmt: skip
    add_address_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    if args.action not in ACTIONS:
        raise _no_action(args.action)
    if args.action != "info":
        topic_of(args.topic)
    if args.action in ("create", "offsets") or (args.action == "delete" and args.partition is not None):
        partition_of(args.partition)

    async def act(mykafka: AsyncMyKafka) -> int:
        if args.action == "info":
            _show_info(await mykafka.broker_info())
            return 0
        await _act_on_topic(args, mykafka)
        return 0

    return run_mykafka(args, act)


async def _act_on_topic(args: argparse.Namespace, mykafka: AsyncMyKafka) -> None:
    topic = topic_of(args.topic)
    if args.action == "delete" and args.partition is None:
        await mykafka.delete_topic(topic)
        tell(f"topic {topic} is gone")
        return
    partition = partition_of(args.partition)
    if args.action == "create":
        await mykafka.create_partition(
            topic,
            partition,
            max_segment_size=args.segment_size,
            max_partition_size=args.partition_size,
            segment_ttl=args.segment_ttl,
        )
        tell(f"partition {partition} of topic {topic} is there")
    elif args.action == "delete":
        await mykafka.delete_partition(topic, partition)
        tell(f"partition {partition} of topic {topic} is gone")
    else:
        first, commit, last = await mykafka.get_offsets(topic, partition)
        print(f"First offset: {first}, commit_offset: {commit}, last_offset: {last}")


def _show_info(dump: str) -> None:
    """The broker's text; on a terminal nothing in it can do more than be shown."""
    for line in dump.splitlines():
        print("\t".join(map(escape, line.split("\t"))) if is_terminal() else line)


def _no_action(given: str | None) -> CommandError:
    if given is None:
        return CommandError(f"name what to do with --action: {', '.join(ACTIONS)}", EXIT_ACTION)
    near = get_close_matches(given.lower(), ACTIONS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"write {', '.join(ACTIONS)}"
    return CommandError(f"there is no action '{given}': {hint}", EXIT_ACTION)
