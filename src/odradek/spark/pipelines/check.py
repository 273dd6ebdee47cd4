"""Looks a pipeline over without running it: what each step's columns are and how Spark would compute each sink.

Spark resolves names and types and plans; no broker is asked, no record is read, no checkpoint is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.frames import Frames, isolated
from odradek.spark.pipelines.graph import inputs_of
from odradek.spark.pipelines.model import Sink
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.queries import output_mode, output_of


@dataclass(frozen=True, slots=True)
class StepReport:
    """A source or a transform."""

    name: str
    section: str
    inputs: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]  # names and types
    is_used: bool


@dataclass(frozen=True, slots=True)
class SinkReport:
    """A sink with the plan of its query."""

    name: str
    source: str
    mode: str
    columns: tuple[tuple[str, str], ...]
    plan: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that a check found."""

    steps: tuple[StepReport, ...]
    sinks: tuple[SinkReport, ...]


def check_pipeline(spark: SparkSession, pipeline: Pipeline, file: str) -> Report:
    """Resolve everything; a PipelineFileError lists all that is wrong."""
    frames = Frames(isolated(spark, pipeline), pipeline, only_schemas=True)
    sinks = []
    for sink in pipeline.sinks.values():
        frame = frames.by_name.get(sink.source)
        if frame is not None:
            with frames.step(("sinks", sink.name)):
                sinks.append(_sink_report(frame, sink))
    frames.check(file)
    steps = [*pipeline.sources, *pipeline.transforms]
    read = {name for transform in pipeline.transforms.values() for name in inputs_of(transform, steps)}
    read |= {sink.source for sink in pipeline.sinks.values()}
    return Report(
        tuple(
            StepReport(
                name,
                "sources" if name in pipeline.sources else "transforms",
                tuple(inputs_of(pipeline.transforms[name], steps)) if name in pipeline.transforms else (),
                _columns(frames.by_name[name]),
                name in read,
            )
            for name in steps
        ),
        tuple(sinks),
    )


def _sink_report(frame: DataFrame, sink: Sink) -> SinkReport:
    output = output_of(frame, sink)
    mode = output_mode(sink)
    _check_mode(output, mode)
    return SinkReport(sink.name, sink.source, mode, _columns(output), _plan(output))


def _columns(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.dataType.simpleString()) for field in frame.schema)


def _check_mode(frame: DataFrame, mode: str) -> None:
    """What Spark itself asks when a query starts: whether the stream can be computed in that mode at all."""
    java = frame.sparkSession._jvm
    if java is None:
        raise PipelineError("a pipeline cannot be checked over Spark Connect: use a session of this process")
    modes = java.org.apache.spark.sql.streaming.OutputMode
    wanted = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), wanted)


def _plan(frame: DataFrame) -> str:
    """How Spark would compute it, as its `explain` shows it."""
    java = frame.sparkSession._jvm
    assert java is not None  # _check_mode has seen it
    mode = java.org.apache.spark.sql.execution.ExplainMode.fromString("simple")
    # The frame of a query has a plan that is not resolved yet, in which Spark does not see that it is a stream.
    text: str = frame.select("*")._jdf.queryExecution().explainString(mode)
    return text.removeprefix("== Physical Plan ==\n").rstrip()
