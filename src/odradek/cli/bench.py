"""`odradek bench`: measures any Kafka broker with Odradek's own client: throughput both ways, and latencies.

The client is Python and runs on one core: a fast broker waits for it. For the limits of a broker use many of these at
once, or a client in C; this is for comparing settings and brokers, and for a quick look.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import perf_counter

from odradek.cli import load as loads
from odradek.cli.connect import (
    EXIT_USAGE,
    add_broker_argument,
    broker_addresses,
    check_topic_name,
    connected_client,
    find_topic,
    run_client,
)
from odradek.cli.listing import tell
from odradek.cli.live import watched
from odradek.cli.load import STAMP_BYTES, Load
from odradek.cli.measure import Meter
from odradek.cli.partitions import partitions_of
from odradek.cli.produce import ACKS
from odradek.cli.terminal import CommandError, table
from odradek.cli.values import number, seconds, size
from odradek.client.client import Client
from odradek.model import PARTITION_MAX
from odradek.records.compression import Codec

TOPIC_PREFIX = "odradek-bench-"
SECONDS_DEFAULT = 10.0
RECORDS_TO_READ = 200_000
CONNECTIONS_MAX = 1_000
_RECORD_BYTES_MAX = 16 * 2**20

_DESCRIPTION = """\
Measure any Kafka broker with Odradek's own client, which is one process on one core. The topic is made for it and
deleted at the end, unless one is given with --topic. While it runs, standard error shows how it goes; the result is on
standard output. Values compress about as well as text does."""

_EXAMPLES = """\
examples:
  odradek bench produce                           10 s of records of 1 KiB
  odradek bench produce --size 100 --codec lz4 --connections 4
  odradek bench consume -n 1000000 --size 100
  odradek bench latency --rate 1000 --acks all
  odradek bench produce --broker kafka.example:9092 --json

'odradek bench COMMAND --help' says more.
"""

_PRODUCE = """\
Send as fast as it goes, for a time or a number of records, and wait for the acknowledgements. One record in a hundred
is timed, from the call to its acknowledgement; that includes the wait in the client's full buffer."""

_CONSUME = """\
Read as fast as it goes what is in a topic. Without --topic, one is filled first (-n records), which is not measured.
The percentiles are those of polls, each of which returns up to 2,000 records."""

_LATENCY = """\
Send at a steady rate, however the broker does, and time every record from the call to its acknowledgement, and to its
delivery at a consumer in the same process."""

Measurement = Callable[[argparse.Namespace, list[Client], str, Meter], Awaitable[None]]


async def _bench(args: argparse.Namespace, client: Client) -> int:
    meter = Meter(started_at=perf_counter())
    async with _clients(args, client) as clients, _topic(args, client) as topic:
        try:
            await args.measure(args, clients, topic, meter)
        finally:  # also when it was interrupted: what was measured so far is worth something
            meter.stopped_at = meter.stopped_at or perf_counter()
            if meter.records:
                _report(args, topic, meter)
    return 0


@asynccontextmanager
async def _clients(args: argparse.Namespace, client: Client) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        clients = [client]
        for _ in range(args.connections - 1):
            more = await connected_client(broker_addresses(args))
            stack.push_async_callback(more.close)
            clients.append(more)
        yield clients


@asynccontextmanager
async def _topic(args: argparse.Namespace, client: Client) -> AsyncIterator[str]:
    """The topic that was given, or one that is there for as long as it is needed."""
    if args.topic is not None:
        await find_topic(client, args.topic)
        yield args.topic
        return
    name = TOPIC_PREFIX + secrets.token_hex(4)
    await client.admin.create_topic(name, args.partitions or args.connections)
    try:
        yield name
    finally:
        await client.admin.delete_topic(name)


def _load(args: argparse.Namespace, topic: str, count: int | None, duration: float | None) -> Load:
    return Load(topic, args.size, count, duration, ACKS[args.acks], args.codec, args.batch_bytes)


def _count_and_seconds(args: argparse.Namespace) -> tuple[int | None, float | None]:
    """What was given; without either, some seconds."""
    duration = SECONDS_DEFAULT if args.count is None and args.duration is None else args.duration
    return args.count, duration


async def _produce(args: argparse.Namespace, clients: list[Client], topic: str, meter: Meter) -> None:
    async with watched(meter, "producing"):
        await loads.produce(clients, _load(args, topic, *_count_and_seconds(args)), meter)


async def _consume(args: argparse.Namespace, clients: list[Client], topic: str, meter: Meter) -> None:
    if args.topic is None:
        filled = Meter(started_at=meter.started_at)
        async with watched(filled, "filling"):
            await loads.produce(clients, _load(args, topic, args.count or RECORDS_TO_READ, None), filled, timed=None)
    partitions = partitions_of(await find_topic(clients[0], topic))
    async with watched(meter, "consuming"):
        await loads.consume(clients, partitions, args.count, meter)
    if not meter.records:
        tell(f"topic {topic} is empty: there was nothing to read")


async def _latency(args: argparse.Namespace, clients: list[Client], topic: str, meter: Meter) -> None:
    async with watched(meter, "latency"):
        await loads.steady(clients, _load(args, topic, *_count_and_seconds(args)), args.rate, meter)


# What was measured.


def _report(args: argparse.Namespace, topic: str, meter: Meter) -> None:
    took = meter.seconds(0)
    figures = {
        "records": meter.records,
        "seconds": round(took, 3),
        "records_per_second": round(meter.records / took, 1),
        "mib_per_second": round(meter.size_bytes / took / 2**20, 2),
    }
    timed = {name: histogram for name, histogram in meter.latencies.items() if histogram.count}
    if args.json:
        settings = {key: getattr(args, key, None) for key in ("size", "acks", "codec", "connections", "rate")}
        latencies = {name: {**histogram.in_ms(), "samples": histogram.count} for name, histogram in timed.items()}
        result = {"bench": args.bench, "topic": topic, **figures, "bytes": meter.size_bytes, "latency_ms": latencies}
        print(json.dumps(result | {"settings": settings}))
        return
    rows = [
        ("records", str(meter.records)),
        ("seconds", f"{took:.2f}"),
        ("rec/s", f"{figures['records_per_second']:.0f}"),
        ("MiB/s", f"{figures['mib_per_second']:.2f}"),
    ]
    for name, histogram in timed.items():
        rows += [(f"{name} {label} ms", _significant(value)) for label, value in histogram.in_ms().items()]
    table((f"{args.bench}", ""), rows)


def _significant(value: float) -> str:
    """Three digits that mean something."""
    if value <= 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


# What is typed.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek bench` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    add_broker_argument(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    produce = commands.add_parser("produce", help="records sent a second", description=_PRODUCE)
    produce.epilog = (
        "examples:\n  odradek bench produce --duration 30s\n  odradek bench produce -n 1000000 --size 100 --acks 1\n"
    )
    _measures(produce, "produce", _produce)

    consume = commands.add_parser("consume", help="records read a second", description=_CONSUME)
    consume.epilog = "examples:\n  odradek bench consume\n  odradek bench consume --topic orders\n"
    _measures(consume, "consume", _consume)

    latency = commands.add_parser("latency", help="how long a record takes", description=_LATENCY)
    latency.epilog = (
        "examples:\n  odradek bench latency --rate 1000 --duration 1m\n  odradek bench latency --rate 100 --acks 1\n"
    )
    latency.add_argument(
        "--rate", metavar="N", type=number(1, 10**6), default=1_000, help="records a second (default 1000)"
    )
    _measures(latency, "latency", _latency)

    for command in (produce, latency):
        command.add_argument("--duration", metavar="SECONDS", type=seconds, help="how long (default 10 s)")


def _measures(parser: argparse.ArgumentParser, name: str, measure: Measurement) -> None:
    parser.set_defaults(bench=name, measure=measure)
    parser.add_argument("-n", "--count", metavar="N", type=number(1), help="how many records")
    parser.add_argument(
        "-s", "--size", metavar="BYTES", type=size, default=1024, help="of a record's value (default 1KiB)"
    )
    parser.add_argument("--codec", choices=[codec.label for codec in Codec], default="none", help="compression")
    parser.add_argument("--acks", choices=ACKS, default="all", help="who must have a record (default all)")
    parser.add_argument("--batch-bytes", metavar="BYTES", type=size, default=256 * 1024, help="default 256KiB")
    parser.add_argument(
        "--connections", metavar="N", type=number(1, CONNECTIONS_MAX), default=1, help="clients at once (default 1)"
    )
    parser.add_argument(
        "-p", "--partitions", metavar="N", type=number(1, PARTITION_MAX),
        help="of the topic that is made (default: as many as connections)",
    )  # fmt: skip
    parser.add_argument("-t", "--topic", metavar="NAME", help="use this one, and leave it")
    parser.add_argument("--json", action="store_true", help="print the result as a JSON object")
    add_broker_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Measure."""
    least = STAMP_BYTES if args.bench == "latency" else 1
    if not least <= args.size <= _RECORD_BYTES_MAX:
        raise CommandError(f"--size is from {least} to {_RECORD_BYTES_MAX} bytes, not {args.size}", EXIT_USAGE)
    if args.batch_bytes < 1:
        raise CommandError("--batch-bytes is at least 1", EXIT_USAGE)
    if args.topic is not None:
        check_topic_name(args.topic)
    return run_client(args, partial(_bench, args), fast=True)
