"""A broker, a day in a shop and a pipeline on Spark, from nothing to checked results: `make demo`.

It starts a broker in a directory that goes with it, sends orders and payments (examples/shop.py) while the pipeline of
examples/revenue.toml joins them and sums them up, and compares what came out with what was sent. Exits with 0 if all
is right, with 1 if not, with 130 if it was interrupted; it leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

import pyarrow
import pyarrow.dataset
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.broker import DemoError, broker
from examples.shop import CITIES, ORDERS, PAYMENTS, Day, Event
from odradek.client.sync import Client, Producer
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.spark import session
from odradek.spark.pipelines import read_pipeline
from odradek.spark.pipelines.progress import BatchReport, QueryStatus
from odradek.spark.pipelines.runner import Runner, Watcher

PIPELINE = Path(__file__).with_name("revenue.toml")
RESULTS = "revenue"
PARTITIONS = 2
PROCESS_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.1
MISSED = 1
INTERRUPTED = 130

console = Console()


class StoppedError(Exception):
    """The pipeline is to stop: nothing more is to be sent."""


def main() -> int:
    """Run the demo and return its exit status."""
    arguments = argparse.ArgumentParser(description="a day in a shop, from the events to the results")
    arguments.add_argument("--orders", type=int, default=20_000, help="how many orders there are (default 20000)")
    arguments.add_argument("--seconds", type=float, default=10.0, help="how long they take to come (default 10)")
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="odradek-demo-") as temporary:
            return _run(Path(temporary), Day(given.orders), given.seconds)
    except KeyboardInterrupt:
        console.print("\ninterrupted; everything is stopped")
        return INTERRUPTED
    except DemoError as error:
        console.print(f"[red]{error}")
        return MISSED


def _run(directory: Path, day: Day, seconds: float) -> int:
    started = time.monotonic()
    with ExitStack() as running:
        bootstrap = running.enter_context(broker(directory, "kafka"))
        console.print(f"A broker is running at {bootstrap}.")
        client = running.enter_context(Client(bootstrap))
        for topic in (ORDERS, PAYMENTS, RESULTS):
            client.admin.create_topic(topic, PARTITIONS)
        with console.status("Starting Spark ..."):
            spark = running.enter_context(_spark())
        console.print(f"Spark {spark.version} is running, on Java {_java_version(spark)}.")
        event_count = day.event_count + len(day.late) + len(day.closing)
        _run_pipeline(Watched(spark, bootstrap, directory, event_count), client, day, seconds)
        ok = show(day, _results(client), _lake(directory / "paid_orders"))
        if _count(spark, bootstrap) != event_count:
            raise DemoError("the topics do not hold what was sent")
    console.print(f"Done in {time.monotonic() - started:.0f} s.")
    return 0 if ok else MISSED


# What runs beside this program


@contextmanager
def _spark() -> Iterator[SparkSession]:
    spark = session("odradek demo")
    # Spark's own handler cancels what is under way: here it is stopped in good order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    finally:
        spark.stop()


class Watched:
    """The pipeline, how far each of its sinks has come, and a bar for each."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path, event_count: int) -> None:
        os.environ["ODRADEK_DIR"] = str(directory)  # where a pipeline keeps its status
        places = [
            ("pipeline.bootstrap", bootstrap),
            ("pipeline.checkpoint", str(directory / "checkpoints")),
            ("sinks.lake.parquet", str(directory / "paid_orders")),
        ]
        pipeline = read_pipeline(PIPELINE, places)
        watcher = Watcher(self._on_batch, console.print, show_rows=_no_rows)
        self.runner = Runner(spark, pipeline, str(PIPELINE), follow=True, watcher=watcher)
        self.progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._sent = self.progress.add_task("orders and payments sent", total=event_count)
        self._bars: dict[str, TaskID] = {
            sink: self.progress.add_task(f"  pipeline to {sink}", total=event_count) for sink in pipeline.sinks
        }
        self._statuses: dict[str, QueryStatus] = {}

    def sent(self, count: int) -> None:
        """Count events that were sent."""
        self.progress.advance(self._sent, count)

    def pause(self, seconds: float) -> None:
        """Wait, unless the pipeline is to stop: then there is nothing to wait for."""
        if self.runner.stop.wait(max(0.0, seconds)):
            raise StoppedError

    def wait_until_processed(self, ends: dict[TopicPartition, int]) -> None:
        """Wait until all is read, and until the batch after it has drawn what follows from the time having passed."""
        deadline = time.monotonic() + PROCESS_SECONDS_MAX
        while not all(self._has_processed(sink, ends) for sink in self._bars):
            if time.monotonic() > deadline:
                raise DemoError(f"the pipeline did not come to the end within {PROCESS_SECONDS_MAX:.0f} s")
            self.pause(LOOK_SECONDS)

    def _has_processed(self, sink: str, ends: dict[TopicPartition, int]) -> bool:
        status = self._statuses.get(sink)
        return (
            status is not None
            and all(status.positions.get(place) == end for place, end in ends.items())
            and status.last is not None
            and status.last.rows == 0
        )

    def _on_batch(self, status: QueryStatus, report: BatchReport) -> None:
        self._statuses[status.sink] = status
        self.progress.update(self._bars[status.sink], completed=status.rows)


def _no_rows(*_: object) -> None:
    """The pipeline has no sink that prints."""


def _run_pipeline(watched: Watched, client: Client, day: Day, seconds: float) -> None:
    """Run the pipeline while a thread sends the day's events; the thread ends it when all is processed."""
    failures: list[Exception] = []

    def send() -> None:
        try:
            _send_day(client, day, watched, seconds)
        except StoppedError:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            watched.runner.stop.set()

    sender = threading.Thread(target=send, name="sender")
    with watched.progress, _stopping(watched.runner) as interrupted:
        sender.start()
        try:
            outcome = watched.runner.run()
        finally:
            watched.runner.stop.set()
            sender.join()
    if interrupted.is_set():
        raise KeyboardInterrupt
    for error in failures:
        raise DemoError(f"not everything could be sent: {error}") from error
    if outcome.failure is not None:
        raise DemoError(f"the pipeline failed: {outcome.failed_sink}: {outcome.failure}")


@contextmanager
def _stopping(runner: Runner) -> Iterator[threading.Event]:
    """Let Ctrl+C stop the pipeline after the batch under way, and a second one at once."""
    interrupted = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        (runner.give_up if interrupted.is_set() else runner.stop).set()
        interrupted.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What is sent


def _send_day(client: Client, day: Day, watched: Watched, seconds: float) -> None:
    """Send the day's events over some seconds, then those that come too late and those of the next day."""
    started = time.monotonic()
    with client.producer() as producer:
        for number, chunk in enumerate(day.chunks, 1):
            _send(producer, chunk)
            watched.sent(len(chunk))
            watched.pause(started + seconds * number / len(day.chunks) - time.monotonic())
        watched.wait_until_processed(_ends(client))
        _send(producer, [*day.late, *day.closing])
        watched.sent(len(day.late) + len(day.closing))
    watched.wait_until_processed(_ends(client))


def _send(producer: Producer, events: list[Event]) -> None:
    for topic in (ORDERS, PAYMENTS):
        producer.send_many(topic, [NewRecord(event.value, event.key) for event in events if event.topic == topic])


def _ends(client: Client) -> dict[TopicPartition, int]:
    places = [TopicPartition(topic, partition) for topic in (ORDERS, PAYMENTS) for partition in range(PARTITIONS)]
    return {place: found.offset for place, found in client.admin.list_offsets(dict.fromkeys(places, "end")).items()}


# What came out


def _results(client: Client) -> list[tuple[datetime, str, int, int]]:
    """The records of the results topic: hour, city, orders, cents."""
    with client.consumer(RESULTS, start="start", follow=False) as consumer:
        rows = [json.loads(record.value or b"") for record in consumer]
    return [(datetime.fromisoformat(row["hour"]), row["city"], row["orders"], row["cents"]) for row in rows]


def _count(spark: SparkSession, bootstrap: str) -> int:
    """Count the records of both topics, as a table."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": f"{ORDERS},{PAYMENTS}"}
    return spark.read.format("odradek").options(**options).load().count()


def _lake(folder: Path) -> pyarrow.Table:
    """The lake table, as any reader of Parquet sees it."""
    return pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(["order_id", "cents"])


def show(day: Day, results: list[tuple[datetime, str, int, int]], lake: pyarrow.Table) -> bool:
    """Show the results and compare them with what was sent; whether all is right."""
    cents = Counter({(hour, city): cents for hour, city, _, cents in results})
    shown = Table(title="Revenue by the hour (topic revenue)", title_justify="left")
    for heading in ("hour", *CITIES, "all"):
        shown.add_column(heading, justify="left" if heading == "hour" else "right")
    for hour in sorted({hour for hour, _ in cents}):
        amounts = [cents[hour, city] for city in CITIES]
        shown.add_row(f"{hour:%H:%M}", *map(_money, amounts), _money(sum(amounts)))
    console.print(shown)
    checks = Table(title="What was sent, and what came of it", title_justify="left")
    for heading in ("", "sent", "found", ""):
        checks.add_column(heading, justify="right" if heading else "left")
    rights = _checks(day, results, lake, checks.add_row)
    console.print(checks)
    return all(rights)


def _checks(
    day: Day, results: list[tuple[datetime, str, int, int]], lake: pyarrow.Table, add_row: Callable[..., None]
) -> list[bool]:
    orders = lake.column("order_id").to_pylist()
    facts = [
        ("results: hours and cities", len(day.revenue), len(results)),
        ("results: paid orders", len(day.paid_orders), sum(row[2] for row in results)),
        ("results: revenue", sum(day.revenue.values()), sum(row[3] for row in results)),
        ("lake: paid orders", len(day.paid_orders), len(orders)),
        ("lake: orders of nobody", 0, len(set(orders) - day.paid_orders)),
        ("lake: revenue", sum(day.revenue.values()), sum(lake.column("cents").to_pylist())),
    ]
    exact = Counter({(hour, city): cents for hour, city, _, cents in results}) == day.revenue
    rights = [sent == found for _, sent, found in facts] + [exact and set(orders) == day.paid_orders]
    for (name, sent, found), right in zip(facts, rights, strict=False):
        as_text = _money if "revenue" in name else "{:,}".format
        add_row(name, as_text(sent), as_text(found), "[green]right" if right else "[red]WRONG")
    left_out = f"{sum(day.malformed.values())} malformed, {len(day.late)} late"
    add_row(f"left out: {left_out}", "", "", "[green]right" if rights[-1] else "[red]WRONG")
    return rights


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def _java_version(spark: SparkSession) -> str:
    row = spark.range(1).selectExpr("java_method('java.lang.System', 'getProperty', 'java.version') AS version").first()
    return str(row["version"]) if row is not None else "?"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
