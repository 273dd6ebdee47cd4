"""The example of a Spark Declarative Pipeline: topics in, a topic and tables out, run by `spark-pipelines run`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pyarrow.dataset
import pytest

from examples.shop import ORDERS, PAYMENTS, Day
from odradek.client.sync import Client
from odradek.records.record import NewRecord
from tests.spark.conftest import Produce
from tests.spark.tools import quick_environment

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def test_the_declarative_example_computes_what_the_pipeline_does(
    bootstrap: str, client: Client, produce: Produce, spark_home: Path, tmp_path: Path
) -> None:
    day = Day(order_count=600)
    for topic in (ORDERS, PAYMENTS):
        events = [event for chunk in day.chunks for event in chunk if event.topic == topic]
        produce(topic, [NewRecord(event.value, event.key) for event in events], partitions=2)
    client.admin.create_topic("paid-orders", 2)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    spec = tmp_path / "examples" / "declarative" / "spark-pipeline.yml"
    text = spec.read_text().replace("/tmp/odradek-declarative", str(tmp_path / "storage"))
    spec.write_text(text.replace("127.0.0.1:9092", bootstrap))

    run_pipeline(spec, tmp_path, spark_home)

    # Spark writes times as Parquet's INT96: in UTC, but without saying so.
    revenue = pyarrow.dataset.dataset(tmp_path / "spark-warehouse" / "revenue", format="parquet").to_table()
    hours = revenue.column("hour").cast(pyarrow.timestamp("us")).to_pylist()
    places = zip((hour.replace(tzinfo=UTC) for hour in hours), revenue.column("city").to_pylist(), strict=True)
    assert dict(zip(places, revenue.column("cents").to_pylist(), strict=True)) == day.revenue

    with client.consumer("paid-orders", start="start", follow=False) as consumer:
        announced = [(record.key, json.loads(record.value or b"")) for record in consumer]
    assert Counter(key.decode() for key, _ in announced if key) == Counter(day.paid_orders)
    totals: Counter[tuple[datetime, str]] = Counter()
    for _, order in announced:
        hour = datetime.fromisoformat(order["ordered_at"]).replace(minute=0, second=0, microsecond=0)
        totals[hour, order["city"]] += order["cents"]
    assert totals == day.revenue


def run_pipeline(spec: Path, directory: Path, spark_home: Path) -> None:
    """Run it as docs/guides/spark.md says."""
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    flags = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    ran = subprocess.run(
        [spark_home / "bin" / "spark-pipelines", "run", "--spec", str(spec), *flags],
        env=quick_environment(spark_home),
        cwd=directory,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
