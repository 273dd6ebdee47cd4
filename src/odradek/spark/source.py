"""The data source `odradek`: topics as tables of Spark, with the schema and the options of Spark's Kafka connector.

Spark imports this in a new process for each look at the source, so what needs numpy and Arrow is imported when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.spark.batch_reader import OdradekBatchReader
from odradek.spark.connection import connect_first
from odradek.spark.errors import OptionError
from odradek.spark.options import HEADERS, Mode, ReadOptions, WriteOptions, columns_of, has_subscription
from odradek.spark.store.options import NO_WRITES, StoreOptions, has_store
from odradek.spark.stream_reader import OdradekStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}


class OdradekSource(DataSource):
    """`format("odradek")`. Spark makes one in several processes, and asks it for what that process needs."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "odradek"

    def schema(self) -> StructType:
        """The columns that the options ask for. Spark asks at load(): what is wrong with the options is said here."""
        if has_store(self.options):
            StoreOptions.parse(self.options, Mode.ANY)
        elif "topic" in self.options and not has_subscription(self.options):
            WriteOptions.parse(self.options)  # a view that is there to be written
        else:
            ReadOptions.parse(self.options, Mode.ANY)
        return self._schema()

    def _schema(self) -> StructType:
        return StructType([StructField(name, _TYPES[name]) for name in columns_of(self.options)])

    def _check_schema(self, given: StructType) -> None:
        """A schema that the user gave is as good as none: the columns are what they are."""
        if given != self._schema():
            raise OptionError(
                "the schema of a topic is fixed: leave .schema(...) out, choose columns with the option columns, and"
                f" parse values with DataFrame operations. Given: {given.simpleString()}"
            )

    def _check_no_store(self) -> None:
        if has_store(self.options):
            raise OptionError(NO_WRITES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        self._check_schema(schema)
        if has_store(self.options):
            return _store_reader(StoreOptions.parse(self.options, Mode.BATCH))
        return OdradekBatchReader(ReadOptions.parse(self.options, Mode.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        self._check_schema(schema)
        if has_store(self.options):
            from odradek.spark.store.stream_reader import ChannelStreamReader  # noqa: PLC0415

            return ChannelStreamReader(StoreOptions.parse(self.options, Mode.STREAM))
        return OdradekStreamReader(ReadOptions.parse(self.options, Mode.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write."""
        self._check_no_store()
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode append, or delete the topic before")
        from odradek.spark.write.writer import OdradekWriter  # noqa: PLC0415

        options = WriteOptions.parse(self.options)
        made = OdradekWriter(schema, options)
        connect_first(options.connection)  # tasks are patient: a wrong address has to be found before they start
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming write."""
        self._check_no_store()
        from odradek.spark.write.writer import OdradekStreamWriter  # noqa: PLC0415

        return OdradekStreamWriter(schema, WriteOptions.parse(self.options))


def _store_reader(options: StoreOptions) -> DataSourceReader:
    """The reader of a channel or an archived topic; one that takes filters only if that was asked for.

    Spark refuses a reader that takes filters, unless it is set to hand them over.
    """
    if options.is_channel:
        from odradek.spark.store.channel_reader import ChannelReader, FilteringChannelReader  # noqa: PLC0415

        return FilteringChannelReader(options) if options.push_filters else ChannelReader(options)
    from odradek.spark.store.archive_reader import ArchiveReader, FilteringArchiveReader  # noqa: PLC0415

    return FilteringArchiveReader(options) if options.push_filters else ArchiveReader(options)


def register(spark: SparkSession) -> None:
    """Make `format("odradek")` known to a session whose Python does not look for it by itself."""
    spark.dataSource.register(OdradekSource)
