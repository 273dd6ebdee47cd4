"""`odradek consume`: shows records of topics at any Kafka broker, alone or as a member of a group.

What a group commits has been written out before: a reader that goes away early (`| head`) loses nothing for it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from odradek.cli.connect import EXIT_USAGE, add_broker_argument, find_topic, run_client
from odradek.cli.listing import counted, tell
from odradek.cli.partitions import chosen_partitions
from odradek.cli.render import FORMAT_DEFAULT, Render, as_json, formatted, joined
from odradek.cli.terminal import CommandError
from odradek.cli.values import number, place, seconds
from odradek.client.client import Client
from odradek.client.cluster import TopicInfo
from odradek.client.consumer import Consumer
from odradek.client.errors import ClientError
from odradek.client.fetched import ConsumerRecord
from odradek.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, bounds
from odradek.client.start import EARLIEST, Start, StartLike
from odradek.model import PARTITION_MAX, TopicPartition

RECORDS_AT_ONCE_MAX = 1_000
POLL_MS = 500
COMMIT_SECONDS = 1.0
EXIT_TOO_FEW = 1

_DESCRIPTION = """\
Show the records of topics: by default those that are there, from the start, and with -f also all that come later.

A PLACE is start, end, an offset, +n (behind the first n records), -n (the last n records), or @TIME (from then on):
@2026-01-31T12:00 (local time, or with Z or +02:00), @-1h (an hour ago), @1767225600000 (milliseconds since 1970). It
holds for each partition. With --group, what the group has committed is stronger; the PLACE is for partitions without
that. Records of one partition come in their order; those of several partitions are mixed as they arrive.

In a FORMAT, %t is the topic, %p the partition, %o the offset, %T the timestamp in ms, %k the key, %v the value, %h the
headers (name=value, commas between them), %K and %V the lengths of key and value in bytes (-1 for null), %% a percent
sign; \\n, \\t, \\r, \\0, \\\\ and \\xHH are bytes. Without one, a line is a value. Control characters and bytes that
are not UTF-8 are shown as \\n, \\r or \\xHH, unless --raw is given.

With --json a line is an object: topic, partition, offset, timestamp, key, value, headers ([{key, value}, ...]); bytes
that are not UTF-8 stand in "key_base64" and "value_base64" instead."""

_EXAMPLES = """\
examples:
  odradek consume orders                              what is there
  odradek consume orders -f                           and what comes
  odradek consume orders --from -10                   the last ten of each partition
  odradek consume orders --from @-1h --json | jq .    those of the last hour
  odradek consume orders -n 1 --from 1234 -p 0        one record
  odradek consume orders --format '%T %p/%o %k: %v\\n'
  odradek consume orders --group billing -f           as a member of a group, which remembers how far it is
"""


class _Output:
    """Standard output, in bytes."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._buffer = sys.stdout.buffer
        self.written = 0
        self.is_gone = False

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Show records, and see that they have left."""
        try:
            self._buffer.write(joined(records, self._render))
            self._buffer.flush()
        except OSError:
            self.is_gone = True
            raise
        self.written += len(records)


async def _consume(args: argparse.Namespace, client: Client, render: Render) -> int:
    topics = [await find_topic(client, name) for name in dict.fromkeys(args.topics)]
    output = _Output(render)
    reading = _Reading(args, output)
    consumer = client.consumer(
        await _sources(args, client, topics),
        group=args.group,
        start=args.start or "start",
        reset="start",
        isolation=args.isolation,
        follow=args.follow,
        on_revoke=reading.revoked,
    )
    reading.consumer = consumer
    async with consumer:
        return await reading.run()


async def _sources(
    args: argparse.Namespace, client: Client, topics: list[TopicInfo]
) -> list[str] | dict[TopicPartition, StartLike]:
    """The topics, or where partitions are named (or an offset is, which not all have), where to begin in each."""
    start: Start = args.start or Start(timestamp=EARLIEST)
    if args.partition is None and (start.offset is None or args.group is not None):
        return [topic.name for topic in topics]
    partitions = [partition for topic in topics for partition in chosen_partitions(topic, args.partition)]
    if start.offset is None:
        return dict.fromkeys(partitions, start)
    isolation = READ_COMMITTED if args.isolation == "read_committed" else READ_UNCOMMITTED
    first, last = await bounds(client.cluster, partitions, isolation=isolation)
    if all(start.offset > end for end in last.values()):
        ends = ", ".join(f"{partition} ends at {end}" for partition, end in last.items())
        tell(f"there is no offset {start.offset} yet: {ends}")
    return {key: min(max(start.offset, first[key]), last[key]) for key in partitions}


def came_early(took_s: float, patience_ms: float) -> bool:
    """Whether a poll without records did not wait: only that of a consumer that has read everything does not.

    Half is wide of what the clock of an event loop may be off.
    """
    return took_s * 1000 < patience_ms / 2


class _Reading:
    """Reads until it is enough."""

    def __init__(self, args: argparse.Namespace, output: _Output) -> None:
        self.consumer: Consumer | None = None
        self._args = args
        self._output = output
        self._dirty_since: float | None = None  # when records were written out that are not committed yet

    async def run(self) -> int:
        """Show records; return the exit status."""
        assert self.consumer is not None
        try:
            return await self._read(self.consumer)
        finally:
            if not self._output.is_gone:
                await self._commit(self.consumer)

    async def _read(self, consumer: Consumer) -> int:
        count, timeout = self._args.count, self._args.timeout
        quiet_since = time.monotonic()
        while count is None or self._output.written < count:
            wanted = RECORDS_AT_ONCE_MAX if count is None else min(RECORDS_AT_ONCE_MAX, count - self._output.written)
            patience_ms: float = POLL_MS
            if timeout is not None:
                patience_ms = max(0.0, min(POLL_MS, (quiet_since + timeout - time.monotonic()) * 1000))
            polled_at = time.monotonic()
            records = await consumer.poll(wanted, patience_ms)
            if records:
                self._output.write(records)
                quiet_since = time.monotonic()
                self._dirty_since = self._dirty_since or quiet_since
                await asyncio.sleep(0)  # a poll that has records at hand does not let anything else run
            elif not self._args.follow and came_early(time.monotonic() - polled_at, patience_ms):
                return 0
            elif timeout is not None and time.monotonic() - quiet_since >= timeout:
                return self._timed_out(timeout)
            if self._dirty_since is not None and time.monotonic() - self._dirty_since >= COMMIT_SECONDS:
                await self._commit(consumer)
        return 0

    def _timed_out(self, timeout: float) -> int:
        count = self._args.count
        if count is None:
            return 0
        came = counted(self._output.written, "record")
        tell(f"odradek: {came} of {count} came, and then nothing for {timeout:g} s")
        return EXIT_TOO_FEW

    async def _commit(self, consumer: Consumer) -> None:
        if self._args.group is None or self._dirty_since is None:
            return
        self._dirty_since = None
        try:
            await consumer.commit()
        except ClientError as error:
            tell(f"odradek: {error}")

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """Others will read these: say how far this member has come."""
        if partitions and self.consumer is not None and not self._output.is_gone:
            await self._commit(self.consumer)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek consume` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--from", metavar="PLACE", type=place, dest="start", help="where to begin (default start)")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more at the end")
    parser.add_argument("-n", "--count", metavar="N", type=number(0), help="stop after so many records")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds,
        help="stop when nothing came for so long; with -n the exit status is then 1",
    )  # fmt: skip
    parser.add_argument("-g", "--group", metavar="NAME", help="read as a member of a group, and commit")
    parser.add_argument(
        "-p", "--partition", metavar="N", type=number(0, PARTITION_MAX), action="append", help="only this; repeatable"
    )
    parser.add_argument(
        "--isolation", choices=("read_uncommitted", "read_committed"), default="read_uncommitted",
        help="read_committed leaves out what belongs to open or aborted transactions",
    )  # fmt: skip
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", metavar="FORMAT", default=FORMAT_DEFAULT, help="how a record is shown")
    shape.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--raw", action="store_true", help="show keys and values as the bytes they are")
    parser.add_argument("--null", metavar="WORD", default="null", help="how null is shown (default null)")
    parser.add_argument(
        "--grpc", action="store_true", help="through MyKafka's gRPC door: 'odradek consume --grpc --help' says how"
    )
    add_broker_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Show the records."""
    if args.raw and args.json:
        raise CommandError("--json writes bytes as base64: leave --raw away", EXIT_USAGE)
    try:
        render = as_json if args.json else formatted(args.format, null=args.null, raw=args.raw)
    except ValueError as error:
        raise CommandError(f"--format: {error}", EXIT_USAGE) from None
    return run_client(args, lambda client: _consume(args, client, render), fast=True)
