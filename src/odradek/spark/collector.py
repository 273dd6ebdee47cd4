"""Keeps the garbage collection that PySpark does after every task cheap."""

from __future__ import annotations

import functools
import gc


@functools.cache
def leave_modules_alone() -> None:
    """Take what is loaded by now out of all later collections, once a process.

    PySpark's workers call gc.collect() after each task. It would look at every function of every module: 40 ms a task,
    as long as a task takes to decode 100,000 records.
    """
    gc.collect()
    gc.freeze()
