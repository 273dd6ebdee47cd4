"""`odradek pipeline check`: the columns of each step and the plan of each sink."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cli.listing import counted, tell
from odradek.cli.pipeline import complaint
from odradek.cli.pipeline_session import spark_session
from odradek.cli.terminal import escape
from odradek.spark.pipelines import Pipeline, PipelineFileError

if TYPE_CHECKING:
    from odradek.spark.pipelines.check import Report

_PLAN_WIDTH = 160  # expressions can be long; --json has all of it

Columns = Sequence[tuple[str, str]]


def check(args: argparse.Namespace, pipeline: Pipeline) -> int:
    """Look a pipeline over."""
    with spark_session(pipeline, None) as spark:
        from odradek.spark.pipelines.check import check_pipeline  # noqa: PLC0415 (needs Spark)

        try:
            report = check_pipeline(spark, pipeline, args.file)
        except PipelineFileError as error:
            raise complaint(error) from None
    if args.json:
        print(json.dumps(_json(pipeline, report)))
    else:
        _print(pipeline, report)
    return 0


def _print(pipeline: Pipeline, report: Report) -> None:
    for step in report.steps:
        reads = f" from {', '.join(step.inputs)}" if step.inputs else ""
        print(escape(f"{step.section.removesuffix('s')} {step.name}{reads}"))
        _print_columns(step.columns)
        if not step.is_used:
            tell(f"{step.section}.{step.name}: no sink needs it")
    for sink in report.sinks:
        print(escape(f"sink {sink.name} from {sink.source}, {sink.mode}"))
        _print_columns(sink.columns)
        print("  plan:")
        for line in sink.plan.splitlines():
            print(escape(f"    {line}" if len(line) <= _PLAN_WIDTH else f"    {line[:_PLAN_WIDTH]}..."))
    parts = (
        counted(len(pipeline.sources), "source"),
        counted(len(pipeline.transforms), "transform"),
        counted(len(pipeline.sinks), "sink"),
    )
    print(f"{pipeline.name}: {', '.join(parts)}: good")


def _print_columns(columns: Columns) -> None:
    width = max((len(name) for name, _ in columns), default=0)
    for name, kind in columns:
        print(escape(f"  {name:<{width}}  {kind}"))


def _json(pipeline: Pipeline, report: Report) -> dict[str, object]:
    def typed(columns: Columns) -> list[dict[str, str]]:
        return [{"name": name, "type": kind} for name, kind in columns]

    return {
        "pipeline": pipeline.name,
        "steps": [
            {
                "name": step.name,
                "kind": step.section.removesuffix("s"),
                "inputs": list(step.inputs),
                "columns": typed(step.columns),
                "used": step.is_used,
            }
            for step in report.steps
        ],
        "sinks": [
            {
                "name": sink.name,
                "from": sink.source,
                "mode": sink.mode,
                "columns": typed(sink.columns),
                "plan": sink.plan,
            }
            for sink in report.sinks
        ],
    }
