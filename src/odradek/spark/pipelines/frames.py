"""Makes Spark's DataFrames of a pipeline's steps. Nothing is read by that: Spark only resolves names and types.

Each pipeline has a session of its own in the running Spark, so that its tables and settings are no one else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all who use Spark call it)
from pyspark.sql.types import StringType, StructType

from odradek.spark.errors import SparkError
from odradek.spark.pipelines.errors import Path, PipelineError, PipelineFileError, Problem
from odradek.spark.pipelines.failures import Failure
from odradek.spark.pipelines.graph import in_order
from odradek.spark.pipelines.model import (
    FileSource,
    FunctionSource,
    FunctionTransform,
    Source,
    SqlTransform,
    TopicSource,
    Transform,
    Watermark,
)
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.steps import SESSION_PARAMETER, read_options
from odradek.spark.source import register

MALFORMED = "_malformed"
SOURCE_FORMAT = "odradek"
STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"  # Spark's own default is to wait for ever
STOP_TIMEOUT_DEFAULT = "60s"


def isolated(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with the pipeline's settings, as far as they can still be changed, and with no tables."""
    own = spark.newSession()
    register(own)
    own.conf.set(STOP_TIMEOUT, STOP_TIMEOUT_DEFAULT)
    for name, value in pipeline.spark.items():
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


class Frames:
    """The frames of a pipeline, by the names of its steps. Problems are collected, so that all are told at once."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, only_schemas: bool = False) -> None:
        """`only_schemas` calls no function of a source: empty frames take their place."""
        self._spark = spark
        self._pipeline = pipeline
        self._only_schemas = only_schemas
        self.problems: list[Problem] = []
        self.by_name: dict[str, DataFrame] = {}
        for source in pipeline.sources.values():
            self._add("sources", source, self._source)
        for transform in in_order(pipeline.sources, pipeline.transforms):
            self._add("transforms", transform, self._transform)

    def check(self, file: str) -> None:
        """Complain about all that was found."""
        if self.problems:
            raise PipelineFileError(file, self.problems)

    @contextmanager
    def step(self, path: Path) -> Iterator[None]:
        """Turn an error of Spark, or of a function that somebody wrote, into a problem of a step."""
        try:
            yield
        except (PySparkException, Py4JError, SparkError) as error:
            self._found(path, Failure.of(error).message)
        except Exception as error:
            self._found(path, f"{type(error).__name__}: {error}")

    def _found(self, path: Path, message: str) -> None:
        self.problems.append(Problem(path, message, self._pipeline.line_of(path)))

    def _add(self, section: str, step: Any, make: Callable[[Any], DataFrame | None]) -> None:
        with self.step((section, step.name)):
            frame = make(step)
            if frame is not None:
                frame = _marked(frame, step.watermark)
                frame.createOrReplaceTempView(step.name)
                self.by_name[step.name] = frame

    # Sources

    def _source(self, source: Source) -> DataFrame:
        if isinstance(source, TopicSource):
            return decoded(source, self._topic(source))
        if isinstance(source, FileSource):
            return self._files(source)
        return self._from_function(source)

    def _topic(self, source: TopicSource) -> DataFrame:
        reader = self._spark.read if source.static else self._spark.readStream
        return reader.format(SOURCE_FORMAT).options(**read_options(source, self._pipeline.bootstrap)).load()

    def _files(self, source: FileSource) -> DataFrame:
        reader: Any = self._spark.read if source.static else self._spark.readStream
        reader = reader.format(source.format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        frame: DataFrame = reader.load(source.path)
        return frame

    def _from_function(self, source: FunctionSource) -> DataFrame:
        if self._only_schemas:
            return empty(self._spark, source.schema, static=source.static)
        frame = source.function(self._spark)
        if not isinstance(frame, DataFrame) or frame.isStreaming is source.static:
            wanted = "DataFrame that is no stream" if source.static else "streaming DataFrame"
            raise TypeError(f"its function returned {_described(frame)} where a {wanted} is needed")
        return frame

    # Transforms

    def _transform(self, transform: Transform) -> DataFrame | None:
        if isinstance(transform, SqlTransform):
            return self._query(transform)
        given = [self.by_name.get(name) for name in transform.inputs]
        if any(frame is None for frame in given):
            return None  # what it reads has a problem of its own
        return self._call(transform, given)

    def _query(self, transform: SqlTransform) -> DataFrame | None:
        try:
            return self._spark.sql(transform.query)
        except PySparkException as error:
            failure = Failure.of(error)
            if "TABLE_OR_VIEW_NOT_FOUND" not in failure.message:
                raise
            broken = [step for step in (*self._pipeline.sources, *self._pipeline.transforms)
                      if f"`{step}`" in failure.message]  # fmt: skip
            if broken:
                return None  # what it reads has a problem of its own
            steps = ", ".join(name for name in self.by_name)
            raise SparkError(f"{failure.message} The pipeline has {steps}") from None

    def _call(self, transform: FunctionTransform, given: list[DataFrame | None]) -> DataFrame:
        arguments: dict[str, Any] = dict(zip(transform.parameters, given, strict=True))
        if transform.takes_session:
            arguments[SESSION_PARAMETER] = self._spark
        frame = transform.function(**arguments)
        if not isinstance(frame, DataFrame):
            raise TypeError(f"it returned {_described(frame)} where a DataFrame is needed: is a return missing?")
        return frame


def decoded(source: TopicSource, records: DataFrame) -> DataFrame:
    """The columns that the format and the schema of a source promise."""
    if source.format == "raw":
        return records
    metadata = [
        (F.col(name).cast("string") if name == "key" else F.col(name)).alias(f"_{name}") for name in source.metadata
    ]
    text = F.col("value").cast("string")
    if source.format == "string":
        return records.select(text.alias("value"), *metadata)
    assert source.schema is not None
    if source.malformed == "drop":
        return _well_formed(source, records, text, metadata)
    options = {"mode": "FAILFAST" if source.malformed == "fail" else "PERMISSIVE", **source.parsing}
    parsed = records.select(_parsed(source, text, struct_of(source.schema), options).alias("data"), *metadata)
    return parsed.select("data.*", *(F.col(f"_{name}") for name in source.metadata))


def _well_formed(source: TopicSource, records: DataFrame, text: Column, metadata: list[Column]) -> DataFrame:
    """Only rows that are as the schema says. By a generator: Spark would parse for a filter, and again for the rows."""
    assert source.schema is not None
    schema = struct_of(source.schema).add(MALFORMED, StringType())
    options = {"mode": "PERMISSIVE", **source.parsing, "columnNameOfCorruptRecord": MALFORMED}
    rows = F.array(_parsed(source, text, schema, options))
    good = F.filter(rows, lambda row: row.isNotNull() & row[MALFORMED].isNull())
    return records.select(F.inline(good), *metadata).drop(MALFORMED)


def _parsed(source: TopicSource, text: Column, schema: StructType, options: dict[str, str]) -> Column:
    if source.format == "json":
        return F.from_json(text, schema, options)
    return F.from_csv(text, schema.toDDL(), options)


def struct_of(schema: str) -> StructType:
    """Columns as they are written: `id STRING, amount DOUBLE`."""
    found = StructType.fromDDL(schema)
    if not isinstance(found, StructType):
        raise PipelineError(f"{schema!r} is the type of one value: write columns, as in 'id STRING, amount DOUBLE'")
    return found


def empty(spark: SparkSession, schema: str, *, static: bool) -> DataFrame:
    """A frame, or a stream, of some schema and no rows."""
    fields = struct_of(schema)
    if static:
        return spark.createDataFrame([], fields)
    nothing = spark.readStream.format("rate").load().where("false")
    return nothing.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))


def _marked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _described(value: object) -> str:
    if isinstance(value, DataFrame):
        return "a streaming DataFrame" if value.isStreaming else "a DataFrame that is no stream"
    return "None" if value is None else f"a {type(value).__name__}"
