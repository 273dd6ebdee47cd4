"""`odradek consume --grpc`: shows the messages of a partition through MyKafka's gRPC door, each with its offset.

MyKafka's door gives one message a call: some calls are under way at once, and the lines come in the order of offsets.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from odradek.cli.connect import EXIT_USAGE
from odradek.cli.grpc_connect import (
    EXIT_STATUS,
    EXIT_STATUS_MORE,
    EXIT_TOPIC,
    add_address_argument,
    partition_of,
    run_mykafka,
    topic_of,
)
from odradek.cli.listing import counted, tell
from odradek.cli.terminal import CommandError, escape, is_terminal
from odradek.cli.values import number, place, seconds
from odradek.client.start import EARLIEST, Start

if TYPE_CHECKING:
    from odradek.client.grpc import AsyncMyKafka, Offsets

CALLS_MAX = 32  # under way at once
POLL_SECONDS = 0.2
EXIT_TOO_FEW = 1

_DESCRIPTION = """\
Show the messages of a partition through a broker's gRPC door (MyKafka): by default those that are there, from the first
one on, and with -f also all that come later. A line is a message with its offset:

  Payload at offset 0: hello

Into a pipe or a file a message is written as the bytes it is; on a terminal control characters are shown as \\xHH.

A PLACE is start, end, an offset, +n (behind the first n), or -n (the last n)."""

_EXAMPLES = f"""\
examples:
  odradek consume --grpc bookstore --partition 0
  odradek consume --grpc --topic bookstore --partition 0 --from 12 -n 1
  odradek consume --grpc bookstore -p 0 --from end -f --broker-address 127.0.0.1:50052

{EXIT_STATUS}
{EXIT_STATUS_MORE}
  1  (with -n and --timeout: fewer came)
Without --grpc, 'odradek consume' speaks Kafka's protocol: see 'odradek consume --help'.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek consume --grpc` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("--grpc", action="store_true", help="through MyKafka's gRPC door")
    parser.add_argument("name", metavar="TOPIC", nargs="?", help="the topic")
    parser.add_argument("--topic", metavar="TOPIC", help="the same")
    parser.add_argument("-p", "--partition", metavar="N", help="the partition's number, from 0")
    parser.add_argument("--from", metavar="PLACE", type=place, dest="start", help="where to begin (default start)")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more at the end")
    parser.add_argument("-n", "--count", metavar="N", type=number(0), help="stop after so many messages")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds,
        help="with -f: stop when nothing came for so long; with -n the exit status is then 1",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="only the payloads, as they are, with an end of line each")
    add_address_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Show the messages."""
    if args.name is not None and args.topic is not None:
        raise CommandError("the topic is named twice: leave --topic or TOPIC away", EXIT_TOPIC)
    topic, partition = topic_of(args.topic or args.name), partition_of(args.partition)
    start: Start = args.start or Start(timestamp=EARLIEST)
    if start.timestamp >= 0:
        raise CommandError("--from: this door finds no message by its time: leave --grpc away for that", EXIT_USAGE)
    return run_mykafka(args, lambda mykafka: _Reading(args, mykafka, topic, partition).run(start))


def first_of(start: Start, offsets: Offsets) -> int:
    """The offset that a place means in a partition that reaches so far."""
    if start.offset is not None:
        return max(start.offset, offsets.first)
    end = max(offsets.first, offsets.commit + 1)
    begin = offsets.first if start.timestamp == EARLIEST else end
    return min(max(begin + start.shift, offsets.first), end)


class _Reading:
    """Reads until it is enough."""

    def __init__(self, args: argparse.Namespace, mykafka: AsyncMyKafka, topic: str, partition: int) -> None:
        self._args = args
        self._mykafka = mykafka
        self._topic = topic
        self._partition = partition
        self._shown = 0

    async def run(self, start: Start) -> int:
        """Show messages; return the exit status."""
        offsets = await self._offsets()
        at = first_of(start, offsets)
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        while not self._is_enough():
            if at <= offsets.commit:
                before = self._shown
                at = await self._show(at, offsets)
                quiet_since = loop.time() if self._shown > before else quiet_since
                continue
            if not self._args.follow:
                return 0
            if self._args.timeout is not None and loop.time() - quiet_since >= self._args.timeout:
                return self._timed_out()
            await asyncio.sleep(POLL_SECONDS)
            offsets = await self._offsets()
            at = max(at, offsets.first)
        return 0

    async def _offsets(self) -> Offsets:
        return await self._mykafka.get_offsets(self._topic, self._partition)

    def _is_enough(self) -> bool:
        return self._args.count is not None and self._shown >= self._args.count

    async def _show(self, at: int, offsets: Offsets) -> int:
        """Show some messages that are there; return where to go on."""
        left = CALLS_MAX if self._args.count is None else min(CALLS_MAX, self._args.count - self._shown)
        wanted = range(at, min(at + left, offsets.commit + 1))
        found = await asyncio.gather(*map(self._message, wanted), return_exceptions=True)
        for offset, payload in zip(wanted, found, strict=True):
            if isinstance(payload, BaseException):
                sys.stdout.buffer.flush()
                raise payload
            if payload is not None:
                self._write(offset, payload)
        sys.stdout.buffer.flush()
        return wanted.stop

    async def _message(self, offset: int) -> bytes | None:
        """A message; None if there is none at this offset any more, or never was (compaction, markers)."""
        from odradek.client.grpc import Code, MyKafkaError  # noqa: PLC0415 (see the docstring of grpc_connect)

        try:
            return await self._mykafka.get_message(self._topic, self._partition, offset)
        except MyKafkaError as error:
            if error.code == Code.NO_MESSAGE:
                return None
            if error.code == Code.PARTITION_ERROR and (await self._offsets()).first > offset:
                return None  # old segments have just gone
            raise

    def _write(self, offset: int, payload: bytes) -> None:
        if not self._args.raw and is_terminal():
            payload = escape(payload.decode(errors="surrogateescape")).encode()
        head = b"" if self._args.raw else f"Payload at offset {offset}: ".encode()
        sys.stdout.buffer.write(head + payload + b"\n")
        self._shown += 1

    def _timed_out(self) -> int:
        if self._args.count is None:
            return 0
        came = counted(self._shown, "message")
        tell(f"odradek: {came} of {self._args.count} came, and then nothing for {self._args.timeout:g} s")
        return EXIT_TOO_FEW
