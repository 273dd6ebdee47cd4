"""Spark looks for packages called `pyspark_<name>`: this one makes `format("odradek")` work with no register call."""

from odradek.spark.source import OdradekSource as DefaultSource

__all__ = ["DefaultSource"]
