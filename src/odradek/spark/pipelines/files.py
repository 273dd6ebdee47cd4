"""Reads a pipeline's file, of whichever kind it is."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.python_file import read_python
from odradek.spark.pipelines.toml_file import read_toml


def read_pipeline(file: Path, settings: Sequence[tuple[str, str]] = ()) -> Pipeline:
    """The pipeline that a TOML or Python file declares; `settings` are dotted keys with values as in TOML."""
    values = [(key, toml_value(text)) for key, text in settings]
    if file.suffix == ".py":
        return read_python(file, values)
    if file.suffix != ".toml":
        raise PipelineError(f"{file} is no pipeline: its name ends in .toml or .py")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PipelineError(f"{file} is not UTF-8, which TOML must be") from None
    except OSError as error:
        raise PipelineError(f"{file} cannot be read: {error.strerror}") from None
    return read_toml(file, text, values)


def toml_value(text: str) -> object:
    """A value as it is written in TOML; what is none is a string, so that quotes can be left away."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if len(document) == 1 else text
