"""Orders and payments of a shop, declared: Spark finds out what depends on what, and in which order to run it.

The join and the sum are those of the pipeline in examples/revenue.toml, from the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

EXAMPLES = Path(__file__).parents[2]
sys.path.insert(0, str(EXAMPLES))

import steps  # noqa: E402

spark = SparkSession.active()
BOOTSTRAP = str(spark.conf.get("shop.bootstrap"))
ORDER = "order_id STRING, customer STRING, city STRING, item STRING, quantity INT, cents BIGINT, ordered_at TIMESTAMP"
PAYMENT = "order_id STRING, method STRING, cents BIGINT, paid_at TIMESTAMP"


def events(topic: str, schema: str) -> DataFrame:
    """The JSON records of a topic as a stream; those that cannot be parsed are left out."""
    options = {"kafka.bootstrap.servers": BOOTSTRAP, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("odradek").options(**options).load()
    parsed = records.select(sql.from_json(sql.col("value").cast("string"), schema).alias("event"))
    return parsed.select("event.*").where("order_id IS NOT NULL")


@dp.table
def orders() -> DataFrame:
    """A streaming table: each run adds what is new in the topic."""
    return events("orders", ORDER)


@dp.table
def payments() -> DataFrame:
    """The same for payments."""
    return events("payments", PAYMENT)


@dp.materialized_view
def paid() -> DataFrame:
    """The join, computed from the whole tables."""
    return steps.paid(spark.read.table("orders"), spark.read.table("payments"))


@dp.materialized_view
def revenue() -> DataFrame:
    """The sum by hour and city."""
    return spark.sql((EXAMPLES / "revenue.sql").read_text(encoding="utf-8"))


dp.create_sink("paid_orders", format="odradek", options={"kafka.bootstrap.servers": BOOTSTRAP, "topic": "paid-orders"})


@dp.append_flow(target="paid_orders")
def announce_paid_orders() -> DataFrame:
    """The same join as a stream, each paid order a record of the topic `paid-orders`.

    It reads the topics themselves: Spark 4.3 cannot give a watermark to a table of the same pipeline.
    """
    ordered = events("orders", ORDER).withWatermark("ordered_at", "10 minutes")
    settled = events("payments", PAYMENT).withWatermark("paid_at", "10 minutes")
    order = sql.to_json(sql.struct("*"))
    return steps.paid(ordered, settled).select(sql.col("order_id").alias("key"), order.alias("value"))
