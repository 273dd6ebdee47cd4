"""Tells the end of a task's rows from the end of the connection that they came over.

When the computation of the rows fails, Spark's JVM closes the connection to the Python process that writes them. Arrow
takes that for the end of the stream, and the rows so far would pass for all of them. Only what stands behind the stream
tells the difference: Spark's own mark if it ended well, and nothing if it broke off. PySpark does not hand the
connection to a writer, so it is taken from where PySpark's own main function keeps it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BufferedReader, BufferedRWPair
from types import FrameType

import pyarrow as pa

from odradek.spark.errors import SparkError

WORKER_MODULE = "pyspark.worker"
CONNECTION_NAME = "infile"


class BrokenInputError(SparkError):
    """The rows of a task ended before their end."""


def whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on; raise BrokenInputError at their end if there should have been more."""
    connection = _connection()
    yield from batches
    if not connection.peek(1):
        raise BrokenInputError("the rows of this task broke off: their computation failed, or the task was cancelled")


def _connection() -> BufferedReader | BufferedRWPair:
    """What Spark sends this process its rows by."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in (WORKER_MODULE, "__main__") and CONNECTION_NAME in frame.f_locals:
            found = frame.f_locals[CONNECTION_NAME]
            if isinstance(found, BufferedReader | BufferedRWPair):
                return found
        frame = frame.f_back
    raise SparkError(
        "the connection to Spark was not found: a failed task could not be told from one that has ended."
        " This is made for PySpark 4.3: is another version installed on the workers?"
    )
