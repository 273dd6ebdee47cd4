"""The data source itself, as Spark's Python processes make and use it; no session is needed for that."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

import odradek.spark
import pyspark_odradek
from odradek.spark.batch_reader import OdradekBatchReader
from odradek.spark.errors import OptionError
from odradek.spark.read.decode import arrow_schema
from odradek.spark.source import OdradekSource
from odradek.spark.stream_reader import OdradekStreamReader

READ = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def source(**options: str) -> OdradekSource:
    return OdradekSource(CaseInsensitiveDict(READ | options))


def test_spark_finds_the_source_by_the_name_of_the_package() -> None:
    assert pyspark_odradek.DefaultSource is OdradekSource
    assert OdradekSource.name() == "odradek"


def test_the_package_can_be_imported_without_spark() -> None:
    """A broker's command line must not load it, and one that is not installed must not break it."""
    program = (
        "import sys, odradek.spark\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'pyarrow', 'numpy'))]\n"
        "assert sorted(odradek.spark.__all__) == ['register', 'session']\n"
        "from odradek.spark import register, session\n"
        "assert callable(register) and callable(session)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = odradek.spark.sesion


def test_the_schema_is_that_of_the_arrow_batches() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    for options in ({}, {"includeHeaders": "true"}, {"columns": "headers,offset,value"}):
        schema = source(**options).schema()
        assert to_arrow_schema(schema, timezone="UTC") == arrow_schema(schema.names)


def test_readers_travel_to_tasks() -> None:
    given = source()
    for reader in (given.reader(given.schema()), given.streamReader(given.schema())):
        assert isinstance(reader, OdradekBatchReader | OdradekStreamReader)
        travelled = pickle.loads(pickle.dumps(reader))  # noqa: S301
        assert travelled._options == reader._options


def test_a_schema_of_the_users_own_is_refused() -> None:
    own = StructType([StructField("value", StringType())])
    for method in (source().reader, source().streamReader):
        with pytest.raises(OptionError, match=r"the schema of a topic is fixed.*struct<value:string>"):
            method(own)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="a topic cannot be overwritten"):
        source(topic="orders").writer(StructType([StructField("value", StringType())]), True)


def test_options_are_checked_when_the_schema_is_asked_for() -> None:
    with pytest.raises(OptionError, match="subscribe, subscribePattern, assign"):
        OdradekSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "x:1"})).schema()
    to_write = {"kafka.bootstrap.servers": "x:1", "topic": "orders"}
    assert OdradekSource(CaseInsensitiveDict(to_write)).schema().names[0] == "key"
    with pytest.raises(OptionError, match="unknown option topik"):
        OdradekSource(CaseInsensitiveDict(to_write | {"topik": "x"})).schema()
