"""Pipelines: sources, transforms and sinks in a small file, run by `odradek pipeline run`.

Importing this needs no Spark: a pipeline is declared without it.
"""

from odradek.spark.pipelines import ready
from odradek.spark.pipelines.errors import PipelineError, PipelineFileError
from odradek.spark.pipelines.files import read_pipeline
from odradek.spark.pipelines.pipeline import Pipeline

__all__ = ["Pipeline", "PipelineError", "PipelineFileError", "read_pipeline", "ready"]
