"""What a pipeline is made of: sources, transforms and sinks, whichever kind of file declared them. Pure.

Nothing here knows Spark: frames are made by `frames`, queries are started by `queries`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late events may come: Spark forgets what is older than the newest event less the delay."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Records of topics."""

    name: str
    strategy: str  # subscribe, subscribePattern or assign: how Spark's option is called
    subscribed: str  # the value of that option
    format: str
    bootstrap: str | None = None  # None: the one of the pipeline
    schema: str | None = None
    malformed: str = "null"
    metadata: tuple[str, ...] = ()
    parsing: Mapping[str, str] = field(default_factory=dict)
    watermark: Watermark | None = None
    static: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def reads(self, topic: str) -> bool:
        """Whether records of a topic come from here."""
        if self.strategy == "subscribePattern":
            return re.fullmatch(self.subscribed, topic) is not None
        topics = json.loads(self.subscribed) if self.strategy == "assign" else self.subscribed.split(",")
        return topic in topics


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files of a folder."""

    name: str
    path: str
    format: str
    schema: str | None = None
    watermark: Watermark | None = None
    static: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSource:
    """What a function makes of the Spark session; only its schema is used when a pipeline is checked."""

    name: str
    function: Callable[..., Any]
    schema: str
    watermark: Watermark | None = None
    static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTransform:
    """A query over sources and other transforms."""

    name: str
    query: str
    inputs: tuple[str, ...] | None = None  # None: those that the query names
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTransform:
    """A function of DataFrames."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]  # of the function, by name
    inputs: tuple[str, ...]  # the steps that these are given, one for one
    takes_session: bool = False  # in a parameter called `spark`
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Rows become records of a topic."""

    name: str
    source: str
    topic: str
    bootstrap: str | None = None  # None: the one of the pipeline
    format: str = "json"
    key: str | None = None
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """Rows are added to a table of files: parquet, delta or iceberg."""

    name: str
    source: str
    kind: str
    path: str
    partition_by: tuple[str, ...] = ()
    mode: str = "append"  # or upsert
    keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    """Rows are printed."""

    name: str
    source: str
    rows: int = 20
    mode: str = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSink:
    """A function is given each batch and its number; a batch may come again after a crash, with the same number."""

    name: str
    source: str
    function: Callable[..., Any]
    mode: str = "append"


Source: TypeAlias = TopicSource | FileSource | FunctionSource
Transform: TypeAlias = SqlTransform | FunctionTransform
Sink: TypeAlias = TopicSink | LakeSink | ConsoleSink | FunctionSink


def absolute(folder: Path, path: str) -> str:
    """A path relative to a folder; one with a scheme (s3a://...) or from the root stays."""
    return path if "://" in path else str(folder.joinpath(Path(path).expanduser()))
