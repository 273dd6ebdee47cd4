"""`odradek pipeline run`: a pipeline in this process, its progress on standard error, until its end or a signal.

Rows of a console sink go to standard output, and so does the line that sums the run up.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from odradek.cli.listing import counted, tell
from odradek.cli.pipeline import complaint
from odradek.cli.pipeline_session import spark_session
from odradek.cli.pipeline_view import View
from odradek.cli.terminal import CommandError, escape, is_terminal, table
from odradek.spark.pipelines import Pipeline, PipelineFileError
from odradek.spark.pipelines.model import ConsoleSink

if TYPE_CHECKING:
    from odradek.spark.pipelines.runner import Outcome, Runner


def run_pipeline(args: argparse.Namespace, pipeline: Pipeline) -> int:
    """Run it and return the exit status."""
    draws = is_terminal(sys.stderr) and not any(isinstance(sink, ConsoleSink) for sink in pipeline.sinks.values())
    with View(pipeline.name, draws=draws) as view, spark_session(pipeline, args.master) as spark:
        from odradek.spark.pipelines.runner import Runner, Watcher  # noqa: PLC0415 (needs Spark)

        watcher = Watcher(view.on_batch, view.on_event, _show_rows)
        runner = Runner(spark, pipeline, args.file, follow=args.follow, watcher=watcher)
        with _stopping(runner) as received:
            try:
                outcome = runner.run()
            except PipelineFileError as error:
                raise complaint(error) from None
    if outcome.failure is not None:
        raise CommandError(f"{pipeline.name}: {outcome.failed_sink}: {outcome.failure}")
    print(_summary(pipeline, outcome))
    return 128 + received[0] if outcome.stopped and not args.follow else 0  # as a shell counts what was cut short


def _summary(pipeline: Pipeline, outcome: Outcome) -> str:
    sums = (
        f"{query.sink} {counted(query.rows, 'row')} in {query.batches} batch{'' if query.batches == 1 else 'es'}"
        for query in outcome.queries
    )
    how = "stopped" if outcome.stopped else "done"
    return escape(f"{pipeline.name}: {how} after {outcome.seconds:.1f} s: {', '.join(sums)}")


def _show_rows(sink: str, batch_id: int, columns: Sequence[str], rows: Sequence[Sequence[object]], total: int) -> None:
    """Print rows of a batch: a table on a terminal, else a line each with its columns by name."""
    if not rows:
        return
    if is_terminal():
        table(columns, [[_cell(value) for value in row] for row in rows])
    else:
        for row in rows:
            print(escape(" ".join(f"{name}={_cell(value)}" for name, value in zip(columns, row, strict=True))))
    if total > len(rows):
        tell(f"{sink}: batch {batch_id} has {total - len(rows)} more rows")
    sys.stdout.flush()


def _cell(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return "null" if value is None else str(value)


@contextmanager
def _stopping(runner: Runner) -> Iterator[list[int]]:
    """Let Ctrl+C and SIGTERM stop the run after its batches, a second one at once; the signals that came are listed.

    Spark's own handler, which cancels what is under way, is put aside for that time.
    """
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        (runner.give_up if received else runner.stop).set()
        if not received:
            tell("stopping after the batch under way; once more to stop at once")
        received.append(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
