"""Channels: messages a second through one proxy, how long from publish to read, requests a million messages, the bill.

    python -m bench.channel [--seconds 10] [--rounds 3]

One `odradek serve` is the proxy. Messages of 100 bytes go in by POST /CHANNEL, 5,000 a request, over 64 connections:
each request is answered when its messages are in the store, up to a second later. The stores are a local directory and
a real S3 server on this machine (SeaweedFS), which shares its cores. Beside it stand the same bytes written by plain
PUTs, one a slice, which is the least that a store can be asked. Latency is measured at the defaults with 50 single
messages a second: from before the publish to when a reader has the message, through the broker and, by a reader that
knows no broker, through the store alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.channel_load import Door, publish_at_rate, publish_batches, read_broker, read_store
from bench.harness import Results, Row, median
from bench.kafka_process import Process
from odradek.objects import ObjectStore, open_store
from odradek.objects.cost import PROVIDERS, Use, bill, slices_within
from odradek.objects.keys import parse_object_key
from tests.s3 import S3Server

MESSAGE_BYTES = 100
BATCH = 5_000
CONNECTIONS = 64
LATENCY_RATE = 50
STORE_SECONDS_MAX = 3.0
BROKER_SECONDS_MAX = 0.050
BILL_DOLLARS_MAX = 100.0
MILLION = 1_000_000


class Place(NamedTuple):
    """A store under measurement."""

    name: str
    url: str
    environment: dict[str, str]
    options: dict[str, str]


class Measured(NamedTuple):
    """One round."""

    rate: float
    cpu_share: float  # of one core that the broker used
    objects_per_million: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of load a round (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a store (default: 3)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        results = Results("Channels in an object store", directory)
        rates: dict[str, float] = {}
        with _s3(directory) as s3:
            places = [Place("local directory", (directory / "objects").as_uri(), {}, {}), s3]
            for place in places:
                rates[place.name] = _throughput(place, directory, args, results)
            a_slice = max(_latency(place, directory, args, results) for place in places)
        _bills(results, max(rates.values()), a_slice)
        return results.show()


@contextmanager
def _s3(directory: Path) -> Iterator[Place]:
    home = directory / "s3"
    home.mkdir()
    with S3Server(home) as server:
        yield Place("S3 server", f"{server.url}/bench", server.environment, server.options)


@contextmanager
def _broker(place: Place, directory: Path) -> Iterator[tuple[Door, Process]]:
    home = Path(tempfile.mkdtemp(dir=directory))
    command = [
        sys.executable, "-m", "odradek", "serve", "--data", str(home / "data"), "--kafka", "127.0.0.1:0",
        "--http", "127.0.0.1:0", "--grpc", "off", "--set", f"store.url={place.url}",
    ]  # fmt: skip
    os.environ.update(place.environment)
    process = Process("odradek", command, home)
    try:
        yield Door.of(process), process
    finally:
        process.stop()


def _throughput(place: Place, directory: Path, args: argparse.Namespace, results: Results) -> float:
    rounds = []
    plain = []
    with _broker(place, directory) as (door, process):
        for number in range(args.rounds):
            channel = f"load-{place.name.split()[0].lower()}-{number}"
            rounds.append(_one_round(place, door, process, channel, args.seconds))
            plain.append(_plain_puts(place, rounds[-1].rate, args.seconds))
    rate = median(each.rate for each in rounds)
    share = median(each.cpu_share for each in rounds)
    objects = median(each.objects_per_million for each in rounds)
    results.add(Row(
        f"{place.name}: messages a second", f"{rate:,.0f}", f"{median(plain):,.0f} as plain PUTs",
        f"{rate / median(plain):.2f}", "", None,
    ))  # fmt: skip
    results.add(Row(f"{place.name}: broker's cores used", f"{share:.2f}", "", "", "", None))
    results.add(Row(f"{place.name}: PUTs a million messages", f"{objects:.1f}", "", "", "", None))
    return rate


def _one_round(place: Place, door: Door, process: Process, channel: str, seconds: int) -> Measured:
    key = door.make_channel(channel)
    cpu = process.cpu_seconds()
    count, took = publish_batches(door, channel, key, MESSAGE_BYTES, BATCH, CONNECTIONS, seconds)
    used = process.cpu_seconds() - cpu
    store = open_store(place.url, place.options)
    found = [info for info in store.list(f"{channel}/") if "/!" not in info.key]
    return Measured(count / took, used / took, len(found) / count * MILLION)


def _plain_puts(place: Place, rate: float, seconds: int) -> float:
    """Messages a second if one thread did nothing but PUT the same bytes, one object a slice."""
    store = open_store(place.url, place.options)
    data = os.urandom(int(rate * MESSAGE_BYTES))
    began = time.monotonic()
    for number in range(seconds):
        store.put(f"plain/{began}-{number}", data)
    return rate * seconds / (time.monotonic() - began)


def _latency(place: Place, directory: Path, args: argparse.Namespace, results: Results) -> float:
    """Measure both ways of reading; say how many objects a slice became."""
    through: dict[str, list[float]] = {"broker": [], "store": []}
    with _broker(place, directory) as (door, _):
        channel = f"latency-{place.name.split()[0].lower()}"
        key = door.make_channel(channel)
        stop = threading.Event()
        store: ObjectStore = open_store(place.url, place.options)
        readers = [
            threading.Thread(target=read_broker, args=(door, channel, key, through["broker"], stop)),
            threading.Thread(target=read_store, args=(store, channel, through["store"], stop)),
        ]
        for reader in readers:
            reader.start()
        seconds = args.seconds * 3
        sent = publish_at_rate(door, channel, key, LATENCY_RATE, seconds)
        _wait_for(through, sent, STORE_SECONDS_MAX * 3)
        stop.set()
        for reader in readers:
            reader.join()
    for name, bar in (("broker", BROKER_SECONDS_MAX), ("store", STORE_SECONDS_MAX)):
        found = sorted(through[name])
        complete = len(found) == sent
        p50, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
        results.add(Row(
            f"{place.name}: publish to read through the {name}, p50 / p99", f"{p50 * 1e3:,.0f} / {p99 * 1e3:,.0f} ms",
            f"{len(found)} of {sent} read", "", f"<= {bar * 1e3:,.0f} ms", complete and p99 <= bar,
        ))  # fmt: skip
    stored = [each for info in store.list(f"{channel}/") if (each := parse_object_key(info.key)) is not None]
    a_slice = len(stored) / len({each.start_ms for each in stored})
    results.add(Row(f"{place.name}: objects a slice", f"{a_slice:.2f}", "", "", "", None))
    return a_slice


def _wait_for(through: dict[str, list[float]], sent: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(len(found) < sent for found in through.values()):
        time.sleep(0.05)


def _bills(results: Results, rate: float, a_slice: float) -> None:
    """What a million messages a second cost, with as many proxies as that needs here, at the defaults and otherwise."""
    proxies = max(-(-MILLION // int(rate)), 1)
    many = Use(float(MILLION), MESSAGE_BYTES, publishers=proxies, objects_per_slice=a_slice)
    enough = next(slices_within(many, PROVIDERS["s3"], BILL_DOLLARS_MAX))
    uses = {
        "one proxy": replace(many, publishers=1),
        f"the {proxies} proxies that this machine's rate asks for": many,
        f"those, with slices of {enough / 1_000:g} s": replace(many, slice_ms=enough),
    }
    for title, use in uses.items():
        dollars = bill(use, PROVIDERS["s3"]).request_dollars
        results.add(Row(
            f"requests of 1,000,000 messages a second, {title}", f"{dollars:,.2f} dollars a month", "", "",
            f"<= {BILL_DOLLARS_MAX:,.0f}", dollars <= BILL_DOLLARS_MAX,
        ))  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
