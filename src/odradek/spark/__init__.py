"""Odradek on Spark: topics as batch and streaming tables, `format("odradek")`, and pipelines.

    from odradek.spark import session

    spark = session("orders")
    orders = spark.readStream.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:9092")

Importing this package does not import PySpark: what needs it is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.sessions import session
    from odradek.spark.source import register

__all__ = ["register", "session"]

_HOMES = {"register": "odradek.spark.source", "session": "odradek.spark.sessions"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("odradek"):
            raise
        raise ImportError(f"odradek.spark.{name} needs {error.name}: pip install 'odradek[spark]'") from error
