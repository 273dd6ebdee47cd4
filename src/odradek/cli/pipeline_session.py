"""The Spark session of a command: made for it and ended with it, or the one that this process has already."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from odradek.cli.terminal import CommandError
from odradek.spark.pipelines import Pipeline
from odradek.spark.pipelines.failures import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark would log what we tell in one line, with all its traces; [spark] can turn it on again.
QUIET = {"spark.log.level": "OFF"}
TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # PySpark logs each error that it raises


def need_spark() -> None:
    """Say what to install where Spark is missing."""
    try:
        import pyspark  # noqa: F401, PLC0415 (takes a second)
    except ImportError:
        raise CommandError("this needs Spark: pip install 'odradek[spark]'") from None


@contextmanager
def spark_session(pipeline: Pipeline, master: str | None) -> Iterator[SparkSession]:
    """A session with the pipeline's settings."""
    need_spark()
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    from odradek.spark.sessions import session  # noqa: PLC0415

    for name in TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what a function of foreachBatch raises
    if SparkContext._active_spark_context is not None:
        yield session()
        return
    try:
        spark = session(f"odradek {pipeline.name}", master=master, conf=QUIET | pipeline.spark)
    except (PySparkException, Py4JError) as error:
        where = f" Is {master} the address of a master, and is it running?" if master and "://" in master else ""
        raise CommandError(f"Spark did not start: {Failure.of(error).message}{where}") from None
    try:
        yield spark
    except ConnectionError:
        raise CommandError(
            "Spark's own process has ended before this one, killed perhaps; the next run goes on where this one stopped"
        ) from None
    finally:
        with suppress(ConnectionError):
            spark.stop()
