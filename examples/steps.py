"""What the pipeline of the example does with DataFrames; the same function serves batches and streams."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql


def paid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Orders with their payments, where the payment came within half an hour.

    The bounds on the times are what lets a stream forget: without them every order would be kept for ever.
    """
    same = sql.expr(
        "orders.order_id = payments.order_id AND paid_at >= ordered_at AND paid_at <= ordered_at + INTERVAL 30 MINUTES"
    )
    joined = orders.alias("orders").join(payments.alias("payments"), same)
    columns = ("customer", "city", "item", "quantity", "orders.cents", "method", "ordered_at", "paid_at")
    return joined.select("orders.order_id", *columns, sql.to_date("ordered_at").alias("day"))
