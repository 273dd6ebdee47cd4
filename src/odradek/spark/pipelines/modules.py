"""Loads a Python file that somebody wrote for a pipeline: one that declares it, or one with functions for its steps.

What such a file defines is sent to Spark's workers by value, since they cannot import it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from odradek.spark.pipelines.errors import PipelineError, PipelineFileError, Problem


def load_module(file: Path) -> ModuleType:
    """Run the file; a PipelineFileError says what is wrong with it and in which line."""
    folder = str(file.absolute().parent)
    name = f"odradek_pipeline_{file.stem}_{sha256(folder.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file.absolute())
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is no Python file: its name must end in .py")
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PipelineError(f"{file} cannot be read: {reason}") from None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for themselves there
    sys.path.append(folder)  # so that it can import its neighbours; last, since one of them may be called copy.py
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)  # noqa: S102 (to run it is what was asked for)
    except PipelineFileError:
        raise
    except SyntaxError as error:
        raise PipelineFileError(error.filename or str(file), [_no_python(error)]) from None
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        message = f"{type(error).__name__}: {error}"
        raise PipelineFileError(str(file), [Problem((), message, lines[-1] if lines else None)]) from error
    finally:
        sys.path.remove(folder)
    _send_by_value([module, *_neighbours(folder)])
    return module


def _no_python(error: SyntaxError) -> Problem:
    return Problem((), f"no Python: {error.msg}", error.lineno)


def _neighbours(folder: str) -> list[ModuleType]:
    """The modules that were imported from the same folder."""
    return [
        module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and Path(file).is_relative_to(folder)
    ]


def _send_by_value(modules: list[ModuleType]) -> None:
    try:
        from pyspark import cloudpickle  # noqa: PLC0415 (a file can be read where Spark is not installed)
    except ImportError:
        return
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
