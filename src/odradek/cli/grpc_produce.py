"""`odradek produce --grpc`: sends messages, one a line, through MyKafka's gRPC door, and says where each was stored.

One after the other, each when the one before it is stored: their order is the order of the lines.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from odradek.cli.grpc_connect import (
    EXIT_STATUS,
    EXIT_STATUS_MORE,
    EXIT_TOPIC,
    add_address_argument,
    partition_of,
    run_mykafka,
    topic_of,
)
from odradek.cli.inputs import Input
from odradek.cli.lines import LineError, Splitter
from odradek.cli.listing import tell
from odradek.cli.terminal import CommandError, is_terminal

if TYPE_CHECKING:
    from odradek.client.grpc import AsyncMyKafka

_DESCRIPTION = """\
Send messages to a partition through a broker's gRPC door (MyKafka), one a line, from standard input, from files, or as
--payload. Lines may be any bytes; an empty line is an empty message. The partition must be there: 'odradek ctl --action
create' makes it. Each message is stored before the next is sent, and a line of output says where:

  Payload written at offset 0"""

_EXAMPLES = f"""\
examples:
  echo hello | odradek produce --grpc bookstore --partition 0
  odradek produce --grpc --topic bookstore --partition 0 --payload hello
  odradek produce --grpc bookstore -p 34 -f orders.txt --broker-address 127.0.0.1:50052

{EXIT_STATUS}
{EXIT_STATUS_MORE}
It stops at the first message that fails; what was sent before stays. Without --grpc, 'odradek produce' speaks Kafka's
protocol: see 'odradek produce --help'.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek produce --grpc` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("--grpc", action="store_true", help="through MyKafka's gRPC door")
    parser.add_argument("name", metavar="TOPIC", nargs="?", help="the topic")
    parser.add_argument("--topic", metavar="TOPIC", help="the same")
    parser.add_argument("-p", "--partition", metavar="N", help="the partition's number, from 0")
    parser.add_argument("--payload", metavar="TEXT", help="send this, and nothing else")
    parser.add_argument(
        "-f", "--file", metavar="FILE", nargs="+", action="extend", help="read these instead; - is standard input"
    )
    add_address_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Send the messages."""
    if args.name is not None and args.topic is not None:
        raise CommandError("the topic is named twice: leave --topic or TOPIC away", EXIT_TOPIC)
    topic, partition = topic_of(args.topic or args.name), partition_of(args.partition)
    if args.payload is not None and args.file:
        raise CommandError("--payload is all that is sent: leave -f away", EXIT_TOPIC)
    return run_mykafka(args, lambda mykafka: _produce(args, mykafka, topic, partition))


async def _produce(args: argparse.Namespace, mykafka: AsyncMyKafka, topic: str, partition: int) -> int:
    async def send(payload: bytes) -> None:
        offset = await mykafka.send_message(topic, partition, payload)
        print(f"Payload written at offset {offset}", flush=True)

    if args.payload is not None:
        await send(args.payload.encode(errors="surrogateescape"))
        return 0
    sources = args.file or ["-"]
    if "-" in sources and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        tell("one message a line; Ctrl+D ends")
    for source in sources:
        with Input(source) as given:
            splitter = Splitter()
            try:
                while piece := await given.read():
                    for line in splitter.feed(piece):
                        await send(line)
                for line in splitter.end():
                    await send(line)
            except LineError as error:
                raise CommandError(f"a line of {given.name} was not sent: {error}") from None
    return 0
