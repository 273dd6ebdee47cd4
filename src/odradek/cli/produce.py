"""`odradek produce`: sends records, one a line, from standard input or files, to any Kafka broker.

Memory is bounded however long the input is. It stops at the first record that fails, which it names.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, NamedTuple

from odradek.cli.connect import EXIT_USAGE, add_broker_argument, check_topic_name, run_client
from odradek.cli.inputs import Input
from odradek.cli.lines import LineError, Parse, Splitter, from_json, plain
from odradek.cli.listing import counted, in_bytes, tell
from odradek.cli.partitions import chosen_partitions
from odradek.cli.terminal import CommandError, is_terminal
from odradek.cli.values import assignment, moment, number
from odradek.client.accumulator import DeliveryFuture
from odradek.client.client import Client
from odradek.client.cluster import TopicInfo
from odradek.client.errors import BufferFullError, ClientError, UnknownTopicError
from odradek.client.producer import Acks, Producer
from odradek.model import PARTITION_MAX
from odradek.records.compression import Codec
from odradek.records.record import Header

UNSETTLED_MAX = 50_000  # records on their way; their bytes are bounded by the producer
LINGER_MS = 5
CREATE_TIMEOUT_MS = 3_000
PROGRESS_SECONDS = 0.5
PARTITIONS_NAMED_MAX = 16
FAILURES_NAMED_MAX = 3
ACKS: dict[str, Acks] = {"all": "all", "1": 1, "0": 0}

_DESCRIPTION = """\
Send records to a topic, one a line, from standard input or from files. A topic that does not exist is made, if the
broker allows that. The last line on standard error says how many records went to which partition.

Without -k a line is a value. With -k it is a key, the separator and a value; a line without the separator is refused.
With --json it is an object: "value", and if wanted "key", "headers" ({"name": "value"} or [{"key", "value"}]),
"partition" and "timestamp" (ms); "value_base64" and "key_base64" are for bytes that are no text. A value that is no
string is sent as its JSON text. That is also what 'odradek consume --json' prints.

It stops at the first record that fails, names it, and exits with 1; what was sent before stays. Ctrl+C sends what was
read so far and exits with 130."""

_EXAMPLES = """\
examples:
  echo hello | odradek produce greetings
  odradek produce orders -k : -f orders.txt           key:value lines from a file
  odradek produce users -k , --null ''                'alice,' deletes alice from a compacted topic
  odradek produce orders -H source=shop -p 0 --codec zstd < orders.txt
  tail -F app.log | odradek produce logs              goes on for as long as lines come
  odradek consume orders --json | odradek produce copy --json
"""


class _Place(NamedTuple):
    """Where a record stood."""

    source: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line} of {self.source}"


class _Outcome:
    """What became of the records so far."""

    def __init__(self) -> None:
        self.read = 0
        self.read_bytes = 0
        self.unsettled: deque[tuple[_Place, DeliveryFuture]] = deque()  # in the order of the input
        self.by_partition: Counter[int] = Counter()
        self.failures: list[tuple[_Place, str]] = []  # the first few
        self.failed = 0

    def sweep(self) -> None:
        """Take note of what is settled, up to the first that is not."""
        unsettled, by_partition = self.unsettled, self.by_partition
        while unsettled and unsettled[0][1].done():
            place, future = unsettled.popleft()
            error = future.exception()
            if error is None:
                by_partition[future.result().partition] += 1
            else:
                self.fail(place, str(error))

    def fail(self, place: _Place, reason: str) -> None:
        """A record did not make it."""
        self.failed += 1
        if len(self.failures) < FAILURES_NAMED_MAX:
            self.failures.append((place, reason))

    def summary(self, topic: str) -> str:
        """How many went where."""
        total = self.by_partition.total()
        parts = sorted(self.by_partition.items())
        if len(parts) > PARTITIONS_NAMED_MAX:
            least, most = min(self.by_partition.values()), max(self.by_partition.values())
            where = f" in {len(parts)} partitions, {least} to {most} in each"
        else:
            where = "".join(
                f"{',' if at else ':'} partition {index}: {count}" for at, (index, count) in enumerate(parts)
            )
        return f"{counted(total, 'record')} to {topic}{where}"


class _Progress:
    """A line on standard error that says how far it is, if that is a terminal and it takes some time."""

    def __init__(self, sources: list[str]) -> None:
        self._total = sum(Path(path).stat().st_size for path in sources if path != "-")
        self._is_shown = is_terminal(sys.stderr) and not ("-" in sources and is_terminal(sys.stdin))
        self._next_at = time.monotonic() + 2 * PROGRESS_SECONDS
        self._is_drawn = False

    def update(self, outcome: _Outcome) -> None:
        """Draw it anew, if it is time."""
        if not self._is_shown or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + PROGRESS_SECONDS
        share = f" ({min(100, 100 * outcome.read_bytes // self._total)} %)" if self._total else ""
        text = f"{outcome.read} records, {in_bytes(outcome.read_bytes)}{share}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        self._is_drawn = True

    def clear(self) -> None:
        """Take it away."""
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


async def _produce(args: argparse.Namespace, client: Client) -> int:
    topic = await _topic(client, args.topic)
    if args.partition is not None:
        chosen_partitions(topic, [args.partition])
    sources = args.file or ["-"]
    if "-" in sources and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        tell("one record a line; Ctrl+D ends")
    outcome = _Outcome()
    progress = _Progress(sources)
    try:
        async with client.producer(acks=ACKS[args.acks], codec=args.codec, linger_ms=LINGER_MS) as producer:
            await _Sending(args, producer, outcome, progress).all(sources)
    finally:  # also when it was interrupted: the producer has sent what it had
        outcome.sweep()
        progress.clear()
        for place, reason in outcome.failures:
            tell(f"odradek: {place} was not sent: {reason}")
        if outcome.failed > len(outcome.failures):
            tell(f"odradek: {outcome.failed - len(outcome.failures)} more were not sent")
        tell(outcome.summary(args.topic))
    return 1 if outcome.failed else 0


async def _topic(client: Client, name: str) -> TopicInfo:
    """The topic, which the broker may make now."""
    check_topic_name(name)
    await client.cluster.refresh([name])
    known = client.cluster.topics.get(name)
    try:
        topic = await client.cluster.topic(name, create=True, timeout_ms=CREATE_TIMEOUT_MS)
    except UnknownTopicError:
        raise UnknownTopicError(name) from None
    if known is None or known.error:
        tell(f"topic {name} is new: it has {counted(topic.partition_count, 'partition')}")
    return topic


class _Sending:
    """Sends all that is read."""

    def __init__(self, args: argparse.Namespace, producer: Producer, outcome: _Outcome, progress: _Progress) -> None:
        self._args = args
        self._producer = producer
        self._outcome = outcome
        self._progress = progress
        self._headers = [Header(name, value.encode(errors="surrogateescape")) for name, value in args.header]
        self._parse: Parse = from_json if args.json else plain(_bytes(args.key_separator), _bytes(args.null))

    async def all(self, sources: list[str]) -> None:
        """Read everything, up to the number that is wanted or the first failure."""
        for source in sources:
            with Input(source) as given:
                line_number, splitter, piece = 0, Splitter(), b"-"
                while piece:
                    piece = await self._read(given)
                    try:
                        lines = splitter.feed(piece) if piece else splitter.end()
                    except LineError as error:
                        self._outcome.fail(_Place(given.name, line_number + 1), str(error))
                        return
                    for line in lines:
                        line_number += 1
                        await self._send(_Place(given.name, line_number), line)
                        if self._outcome.failed or self._outcome.read == self._args.count:
                            return

    async def _read(self, given: Input) -> bytes:
        """The next piece; nothing as soon as a record has failed, even if no more input comes."""
        outcome = self._outcome
        reading = asyncio.get_running_loop().create_task(given.read())
        try:
            while not reading.done() and not outcome.failed:
                waiting: list[asyncio.Future[Any]] = [reading, *self._oldest()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                outcome.sweep()
            if outcome.failed:
                return b""
            piece = reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        outcome.read_bytes += len(piece)
        self._progress.update(outcome)
        return piece

    def _oldest(self) -> list[DeliveryFuture]:
        """The delivery that has to be settled next, if any is under way."""
        return [self._outcome.unsettled[0][1]] if self._outcome.unsettled else []

    async def _send(self, place: _Place, line: bytes) -> None:
        outcome, args = self._outcome, self._args
        while len(outcome.unsettled) >= UNSETTLED_MAX:
            await asyncio.wait(self._oldest())
            outcome.sweep()
        outcome.read += 1
        try:
            record = self._parse(line)
            while True:
                try:
                    future = self._producer.send_soon(
                        args.topic,
                        record.value,
                        key=record.key,
                        headers=(*self._headers, *record.headers),
                        partition=record.partition if args.partition is None else args.partition,
                        timestamp=record.timestamp if args.timestamp is None else args.timestamp,
                    )
                except BufferFullError:
                    await self._producer.room()
                else:
                    outcome.unsettled.append((place, future))
                    return
        except (LineError, ClientError, ValueError) as error:
            outcome.fail(place, str(error))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def _separator(text: str) -> str:
    found = text.replace("\\t", "\t")
    if not found:
        raise argparse.ArgumentTypeError("the separator is at least one character; write '\\t' for a tab")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek produce` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-f", "--file", metavar="FILE", nargs="+", action="extend", help="read these instead; - is standard input"
    )
    parser.add_argument(
        "-k", "--key-separator", metavar="SEP", type=_separator, help="a line is KEY SEP VALUE; '\\t' is a tab"
    )
    parser.add_argument("--json", action="store_true", help="a line is a JSON object")
    parser.add_argument("--null", metavar="WORD", help="a key or value that is WORD is null (a tombstone)")
    parser.add_argument(
        "-H", "--header", metavar="NAME=VALUE", type=assignment, action="append", default=[],
        help="a header for every record; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "-p", "--partition", metavar="N", type=number(0, PARTITION_MAX),
        help="send all to this one (default: by the key, as other Kafka clients do)",
    )  # fmt: skip
    parser.add_argument(
        "--timestamp", metavar="TIME", type=moment, help="of every record: ms since 1970, an ISO time, or -1h"
    )
    parser.add_argument("-n", "--count", metavar="N", type=number(1), help="stop after so many records")
    parser.add_argument(
        "--codec", choices=[codec.label for codec in Codec], default="none", help="compression (default none)"
    )
    parser.add_argument(
        "--acks", choices=ACKS, default="all", help="who must have a record before it counts as sent (default all)"
    )
    parser.add_argument(
        "--grpc", action="store_true", help="through MyKafka's gRPC door: 'odradek produce --grpc --help' says how"
    )
    add_broker_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Send the records."""
    if args.json and (args.key_separator is not None or args.null is not None):
        raise CommandError("--json says itself what is key and null: leave -k and --null away", EXIT_USAGE)
    return run_client(args, lambda client: _produce(args, client), fast=True)
