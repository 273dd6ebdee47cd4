"""`odradek pipeline run` and `status` with a real broker and a real Spark: what is read, written, told and kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.spark.pipelines import Pipeline
from odradek.spark.pipelines.runner import Outcome, Runner, Watcher
from odradek.spark.pipelines.status_file import read_status
from tests.cli.commands import Cli
from tests.process import BrokerProcess, wait_until
from tests.spark.conftest import Produce

PIPELINE = """\
[pipeline]
name = "{name}"
checkpoint = "checkpoints"

[sources.orders]
topic = "{name}.orders"
schema = "customer STRING, amount DOUBLE"
malformed = "drop"
metadata = ["key", "offset"]

[sources.customers]
files = "customers.csv"
format = "csv"
schema = "customer STRING, name STRING"
static = true

[transforms.named]
python = "steps.py:named"

[transforms.big]
sql = "SELECT name, shout, amount, _key FROM named WHERE amount >= 2"

[sinks.results]
from = "big"
topic = "{name}.results"
key = "_key"

[sinks.table]
from = "named"
parquet = "lake"

[sinks.shown]
from = "big"
console = true
"""

MARKS = "def marked(text):\n    return text + '!'\n"

STEPS = """\
from marks_of_revenue import marked
from pyspark.sql.functions import udf

@udf("string")
def shouted(text):
    return marked(text.upper())

def named(orders, customers):
    return orders.join(customers, "customer").withColumn("shout", shouted("name"))
"""


def order(customer: str, amount: float, key: str | None = None, age_seconds: float = 0) -> NewRecord:
    value = json.dumps({"customer": customer, "amount": amount}).encode()
    timestamp = int((time.time() - age_seconds) * 1000)
    return NewRecord(value, key=None if key is None else key.encode(), timestamp=timestamp)


def values(client: Client, topic: str) -> list[tuple[bytes | None, object]]:
    """The keys and the JSON of all records of a topic."""
    ends = client.admin.list_offsets({TopicPartition(topic, 0): "end"})
    count = ends[TopicPartition(topic, 0)].offset
    with client.consumer(topic) as consumer:
        found = [next(iter(consumer)) for _ in range(count)]
    return [(record.key, json.loads(record.value or b"null")) for record in found]


def status_of(cli: Cli, name: str) -> Any:
    """What the command says of one pipeline."""
    return json.loads(cli.ok("pipeline", "status", name, "--json").out)


def test_a_pipeline_reads_computes_and_writes_and_goes_on_where_it_stopped(
    spark_cli: Cli, spark: SparkSession, tmp_path: Path, client: Client, produce: Produce, new_name: Callable[[], str]
) -> None:
    name = new_name()
    orders, results = f"{name}.orders", f"{name}.results"
    (tmp_path / "revenue.toml").write_text(PIPELINE.format(name=name))
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "marks_of_revenue.py").write_text(MARKS)
    (tmp_path / "customers.csv").write_text("c1,Ada\nc2,Bob\n")
    client.admin.create_topic(results)
    produce(orders, [order("c1", 1, "k1"), order("c2", 2, "k2"), "{nonsense", None, order("c9", 5)])

    ran = spark_cli.ok("pipeline", "run", "revenue.toml")
    assert values(client, results) == [(b"k2", {"name": "Bob", "shout": "BOB!", "amount": 2.0, "_key": "k2"})]
    assert "name=Bob shout=BOB! amount=2.0 _key=k2" in ran.lines
    assert ran.lines[-1].startswith(f"{name}: done after ")
    assert ran.lines[-1].endswith(": results 5 rows in 1 batch, table 5 rows in 1 batch, shown 5 rows in 1 batch")
    progress = sorted(line for line in ran.err.splitlines() if ": batch " in line)
    assert [line.split(", ")[:2] for line in progress] == [
        [f"{sink}: batch 0", "5 rows"] for sink in ("results", "shown", "table")
    ]
    assert all(line.endswith(", lag 0") for line in progress)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["results", "shown", "table"]
    assert spark_cli.ok("group", "describe", name).lines[1:] == [f"{orders}-0 committed=5 end=5 lag=0 member=-"]

    produce(orders, [order("c1", 3, "k3", age_seconds=100), order("c1", 4, age_seconds=50)])
    told = status_of(spark_cli, name)
    assert (told["state"], told["running"], told["lag"]) == ("done", False, 2)
    (partition,) = told["partitions"]
    assert (partition["topic"], partition["position"], partition["end"], partition["lag"]) == (orders, 5, 7, 2)
    assert 100 <= partition["lag_seconds"] < 200

    ran = spark_cli.ok("pipeline", "run", "revenue.toml", "--once")
    assert [value for _, value in values(client, results)][1:] == [
        {"name": "Ada", "shout": "ADA!", "amount": 3.0, "_key": "k3"},
        {"name": "Ada", "shout": "ADA!", "amount": 4.0},
    ]
    rows = spark.read.parquet(str(tmp_path / "lake")).select("customer", "amount", "_offset").collect()
    assert sorted(map(tuple, rows)) == [("c1", 1.0, 0), ("c1", 3.0, 5), ("c1", 4.0, 6), ("c2", 2.0, 1)]

    lines = spark_cli.ok("pipeline", "status", "revenue.toml").lines
    assert lines[0].startswith(f"pipeline {name}: done since ") and lines[0].endswith(", once, lag 0 records")
    assert [line.partition(" ")[0] for line in lines[1:]] == ["results", "table", "shown", f"{orders}-0"]
    assert lines[1].startswith("results state=done batch=1 at=") and " rows=2 " in lines[1]
    assert lines[4] == f"{orders}-0 position=7 end=7 lag=0 seconds=0.0"

    assert spark_cli.ok("pipeline", "run", "revenue.toml").lines[-1].endswith("shown 0 rows in 0 batches")


AGGREGATION = """\
from odradek.spark.pipelines import Pipeline

pipeline = Pipeline("{name}")
pipeline.topic("orders", "{name}.orders", schema="customer STRING, amount DOUBLE")

@pipeline.transform
def totals(orders):
    return orders.groupBy("customer").sum("amount")

pipeline.write_topic(totals, "{name}.results", key="customer", mode="{mode}", format="csv")
"""


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_an_aggregation_is_written_in_every_mode(
    spark_cli: Cli, tmp_path: Path, client: Client, produce: Produce, new_name: Callable[[], str], mode: str
) -> None:
    name = new_name()
    (tmp_path / "totals.py").write_text(AGGREGATION.format(name=name, mode=mode))
    client.admin.create_topic(f"{name}.results")
    written: list[list[str]] = []
    for amounts in ({"a": 1, "b": 2}, {"b": 3}):
        produce(f"{name}.orders", [order(customer, amount) for customer, amount in amounts.items()])
        ran = spark_cli.ok("pipeline", "run", "totals.py")
        assert "state 2 rows" in ran.err
        lines = spark_cli.ok("consume", f"{name}.results", "--format", "%k %v\\n").lines
        written.append(sorted(lines[sum(len(some) for some in written) :]))
    changed = ["b b,5.0"] if mode == "update" else ["a a,1.0", "b b,5.0"]
    assert written == [["a a,1.0", "b b,2.0"], changed]


FAILING = """\
from odradek.spark.pipelines import Pipeline
from pyspark.sql.functions import udf

@udf("double")
def broken(amount):
    return 1 / (amount - 2)

pipeline = Pipeline("{name}")
pipeline.topic("orders", "{name}.orders", schema="customer STRING, amount DOUBLE")

@pipeline.transform
def inverse(orders):
    return orders.select(broken("amount").alias("x"))

pipeline.write_console(inverse)
"""


def test_a_query_that_fails_ends_the_run_with_its_reason_in_one_line(
    spark_cli: Cli, tmp_path: Path, produce: Produce, new_name: Callable[[], str]
) -> None:
    name = new_name()
    (tmp_path / "failing.py").write_text(FAILING.format(name=name))
    produce(f"{name}.orders", [order("c1", 2)])
    line = spark_cli.fails("pipeline", "run", "failing.py", "--follow")
    assert line == f"{name}: console: ZeroDivisionError: float division by zero"
    status = spark_cli.ok("pipeline", "status", name)
    assert status.lines[0].startswith(f"pipeline {name}: failed since ")
    assert status.lines[1] == "error: ZeroDivisionError: float division by zero"
    line = spark_cli.fails("pipeline", "run", "failing.py", "--set", "pipeline.bootstrap=127.0.0.1:1")
    assert line.startswith(f"{name}: console: no Kafka broker answered at kafka.bootstrap.servers = 127.0.0.1:1")
    line = spark_cli.fails("pipeline", "status", "failin.py")
    assert line.startswith("failin.py cannot be read: No such file")


INTERRUPTED = """\
import os, signal
from odradek.spark.pipelines import Pipeline

pipeline = Pipeline("{name}")
pipeline.topic("orders", "{name}.orders", format="string", options={{"maxOffsetsPerTrigger": 1}})

def seen(batch, number):
    with open("seen.txt", "a") as file:
        for row in batch.collect():
            print(number, row.value, file=file)
    if number == 1:
        os.kill(os.getpid(), signal.{signal})

pipeline.write("orders", seen, name="seen")
"""


@pytest.mark.parametrize(("signal", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_lets_the_batch_under_way_finish(
    spark_cli: Cli, tmp_path: Path, produce: Produce, new_name: Callable[[], str], signal: str, status: int
) -> None:
    name = new_name()
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(name=name, signal=signal))
    produce(f"{name}.orders", [str(number) for number in range(5)])
    ran = spark_cli("pipeline", "run", "interrupted.py")
    assert ran.status == status
    assert "stopping after the batch under way" in ran.err
    assert ran.lines[-1].startswith(f"{name}: stopped after ")
    assert (tmp_path / "seen.txt").read_text().splitlines()[:2] == ["0 0", "1 1"]
    assert "4 4" not in (tmp_path / "seen.txt").read_text()
    told = status_of(spark_cli, name)
    (query,) = told["queries"]
    assert (told["state"], query["state"]) == ("stopped", "stopped")
    assert spark_cli.ok("pipeline", "run", "interrupted.py").lines[-1].startswith(f"{name}: done")
    seen = (tmp_path / "seen.txt").read_text().splitlines()
    assert sorted(set(seen)) == [f"{n} {n}" for n in range(5)]
    assert seen.count("1 1") == 1, "it was finished"


def test_a_broker_that_was_never_reached_is_not_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_name: Callable[[], str]
) -> None:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    pipeline = Pipeline(new_name(), bootstrap="127.0.0.1:1")
    pipeline.topic("lines", "nowhere", format="string")
    pipeline.write("lines", lambda batch, _: None, name="seen")
    events: list[str] = []
    watcher = Watcher(lambda query, report: None, events.append, lambda *rows: None)
    outcome = Runner(spark, pipeline, "lost.py", follow=True, watcher=watcher).run()
    assert outcome.failure is not None and "no Kafka broker answered" in outcome.failure
    assert events == []


def test_a_query_that_lost_its_broker_is_started_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_name: Callable[[], str]
) -> None:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    name, topic = new_name(), new_name()
    seen: list[str] = []
    events: list[str] = []
    with BrokerProcess(tmp_path / "data") as broker:
        pipeline = Pipeline(name, bootstrap=broker.bootstrap, trigger="100 milliseconds")
        impatient = {"kafka.default.api.timeout.ms": 2000, "kafka.request.timeout.ms": 1000}
        pipeline.topic("lines", topic, format="string", options=impatient)
        pipeline.write("lines", lambda batch, _: seen.extend(row.value for row in batch.collect()), name="seen")
        watcher = Watcher(lambda query, report: None, events.append, lambda *rows: None)
        runner = Runner(spark, pipeline, "lost.py", follow=True, watcher=watcher)
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(runner.run()))
        with Client(broker.bootstrap) as client:
            client.admin.create_topic(topic)
            thread.start()
            try:
                with client.producer() as producer:
                    producer.send(topic, b"before")
                wait_until(lambda: seen == ["before"], 60, "the first record")
                broker.kill()
                wait_until(lambda: events, 60, "the fault")
                assert "trying again in 1 s (1 of 10)" in events[0]
                broker.start()
                with client.producer() as producer:
                    producer.send(topic, b"after")
                wait_until(lambda: seen == ["before", "after"], 90, "the second record")
                other = Runner(spark, pipeline, "lost.py", follow=True, watcher=watcher)
                with pytest.raises(Exception, match=f"the pipeline {name} is running already, as process"):
                    other.run()
            finally:
                runner.stop.set()
                thread.join(60)
            group = client.admin.group_offsets(name)
    (outcome,) = outcomes
    assert outcome.stopped and outcome.failure is None
    assert outcome.queries[0].restarts >= 1
    status = read_status(tmp_path / "home" / "pipelines" / name)
    assert status is not None and (status.state, status.queries[0]["rows"]) == ("stopped", 2)
    assert group[TopicPartition(topic, 0)].offset == 2
