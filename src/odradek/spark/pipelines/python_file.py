"""Reads a pipeline from a Python file: the one `Pipeline` that it makes, whatever that is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.spark.pipelines import tables
from odradek.spark.pipelines.errors import PipelineError, PipelineFileError, Problem, nearest
from odradek.spark.pipelines.model import absolute
from odradek.spark.pipelines.modules import load_module
from odradek.spark.pipelines.pipeline import FOLDER, Pipeline

SETTABLE = ("bootstrap", "checkpoint", "trigger")
PREFERRED = "pipeline"


def read_python(file: Path, settings: Sequence[tuple[str, object]] = ()) -> Pipeline:
    """The pipeline that a file declares; `settings` are keys of [pipeline] and [spark] that replace what it says."""
    token = FOLDER.set(file.absolute().parent)
    try:
        module = load_module(file)
    finally:
        FOLDER.reset(token)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
    pipeline = found.get(PREFERRED) or next(iter(found.values()), None)
    if pipeline is None:
        raise PipelineFileError(
            str(file), [Problem((), 'it makes no pipeline: write pipeline = Pipeline("NAME") in it', 1)]
        )
    if len({id(one) for one in found.values()}) > 1 and PREFERRED not in found:
        names = ", ".join(found)
        raise PipelineFileError(
            str(file), [Problem((), f"it makes several pipelines ({names}): call one 'pipeline'", 1)]
        )
    for key, value in settings:
        _set(pipeline, key, value)
    if problems := pipeline.problems():
        raise PipelineFileError(str(file), problems)
    return pipeline


def _set(pipeline: Pipeline, key: str, value: object) -> None:
    section, _, name = key.partition(".")
    if section == "spark" and name:
        settings, problems = tables.check_spark(("spark",), {name if name.startswith("spark.") else key: value})
        pipeline.spark.update(settings)
    elif section == "pipeline" and name in SETTABLE:
        found, problems = tables.check_pipeline(("pipeline",), {"name": pipeline.name, name: value})
        if not problems:
            setattr(pipeline, name, absolute(pipeline.folder, found[name]) if name == "checkpoint" else found[name])
    else:
        names = [*(f"pipeline.{one}" for one in SETTABLE), "spark.NAME"]
        raise PipelineError(
            f"--set {key}: a pipeline in Python has {', '.join(names)} to set{nearest(key, names[:-1])}"
        )
    if problems:
        raise PipelineError(f"--set {key}: {problems[0].message}")
