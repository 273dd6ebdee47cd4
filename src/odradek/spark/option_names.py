"""The names of options: ours, Spark's, and those of Kafka's clients, with what we do about each.

Spark hands option names over in lower case; messages use the spelling of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from odradek.spark.errors import OptionError

KAFKA = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
STRATEGIES = ("subscribe", "subscribePattern", "assign")

READ = (
    *STRATEGIES,
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "includeHeaders", "columns",
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
WRITE = ("topic", "sinkId", "batchId")

# Reading from an object store, without a broker: what is only there, and what else can be given with it.
STORE = "store"
STORE_SETTINGS = "store."  # before the names of the store's own options: its credentials, its endpoint
OF_STORES = (STORE, "channel", "maxBytesPerPartition", "maxBytesPerTrigger", "readDelay", "pushFilters")
_WITH_STORE = frozenset({
    *OF_STORES, "topic", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "includeHeaders", "columns", "minPartitions",
    "failOnDataLoss",
})  # fmt: skip
_INSTEAD = MappingProxyType({
    **dict.fromkeys(STRATEGIES, "name a channel with channel, or an archived topic with topic"),
    "maxOffsetsPerTrigger": "limit a batch with maxBytesPerTrigger",
    "maxRecordsPerPartition": "limit a task with maxBytesPerPartition",
})  # fmt: skip

# Options of Spark's Kafka source that its way of reading needs and ours does not.
WITHOUT_EFFECT = MappingProxyType({
    "groupIdPrefix": "no group is joined; name one with kafka.group.id to see there how far the query has come",
})  # fmt: skip

# What Spark itself puts among a source's options.
OF_SPARK = ("checkpointLocation", "queryName")

KAFKA_HONOURED = (
    BOOTSTRAP, "kafka.client.id", "kafka.group.id", "kafka.isolation.level", "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms", "kafka.delivery.timeout.ms", "kafka.compression.type", "kafka.batch.size",
    "kafka.acks",
)  # fmt: skip

_OFFSETS_ARE_SPARKS = "the offsets are in the query's checkpoint"
KAFKA_REFUSED = MappingProxyType({
    "kafka.auto.offset.reset": "say where a new query starts with startingOffsets = earliest or latest;"
    " a query that is resumed goes on where it was",
    "kafka.key.deserializer": "keys are read as bytes; turn them into something else with DataFrame operations",
    "kafka.value.deserializer": "values are read as bytes; turn them into something else with DataFrame operations",
    "kafka.key.serializer": "keys are written as they are; turn them into bytes or strings with DataFrame operations",
    "kafka.value.serializer": "values are written as they are; turn them into bytes or strings with DataFrame"
    " operations",
    "kafka.enable.auto.commit": f"{_OFFSETS_ARE_SPARKS}; with kafka.group.id they are committed to that group too,"
    " for observation",
    "kafka.interceptor.classes": "there is no Java here to run them",
    "kafka.partitioner.class": "there is no Java here to run it; write the partition into the column `partition`",
    "kafka.transactional.id": "Spark's tasks cannot share one transaction; replays are recognised by sinkId and"
    " batchId",
})  # fmt: skip

# Names of Kafka's consumers, producers and admin clients that mean nothing here.
KAFKA_WITHOUT_EFFECT = frozenset(f"kafka.{name}" for name in (
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "buffer.memory", "check.crcs",
    "client.dns.lookup", "client.rack", "compression.gzip.level", "compression.level", "compression.lz4.level",
    "compression.zstd.level", "config.providers", "connections.max.idle.ms", "enable.idempotence",
    "enable.metrics.push", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "internal.leave.group.on.close", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "max.request.size", "metadata.max.age.ms",
    "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
    "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.ignore.keys", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
    "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms", "transaction.timeout.ms",
))  # fmt: skip

_SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_KNOWN = (
    *READ, *WRITE, *OF_STORES, *WITHOUT_EFFECT, *KAFKA_HONOURED, *KAFKA_REFUSED, *sorted(KAFKA_WITHOUT_EFFECT),
    "kafka.security.protocol",
)  # fmt: skip
_SPELLING = MappingProxyType({name.lower(): name for name in (*_KNOWN, *OF_SPARK)})


# What load("...") and CREATE TABLE put there: neither can work.
_NO_FILES = (
    "there is no file to load or save: name topics with subscribe to read, and with topic to write; an object store"
    " is named with store"
)
_NO_TABLE = (
    "CREATE TABLE ... USING odradek does not work, because Spark does not hand the options of a table in its catalog to"
    " a source in Python: use CREATE TEMPORARY VIEW ... USING odradek OPTIONS (...)"
)
_IMPOSSIBLE = MappingProxyType({"path": _NO_FILES, "paths": _NO_FILES, "provider": _NO_TABLE})


def proper(name: str) -> str:
    """The spelling of a name that Spark has put into lower case."""
    return _SPELLING.get(name.lower(), name)


def check_names(options: Mapping[str, str]) -> list[str]:
    """Refuse names that are unknown or forbidden; return a line for each that is accepted and does nothing."""
    _check_possible(options)
    remarks = []
    for key, value in options.items():
        name = proper(key)
        if name in OF_STORES or key.lower().startswith(STORE_SETTINGS):
            raise OptionError(
                f"option {name} is for reads from an object store: name that with store, as in s3://bucket/prefix"
            )
        if name in KAFKA_REFUSED:
            raise OptionError(f"option {name} is not supported: {KAFKA_REFUSED[name]}")
        if name.startswith(_SECURITY):
            _check_security(name, value)
        elif key.lower() not in _SPELLING:
            raise OptionError(f"unknown option {name}{_nearest(key.lower())}")
        elif name in KAFKA_WITHOUT_EFFECT:
            remarks.append(f"{name} has no meaning for this client")
        elif name in WITHOUT_EFFECT:
            remarks.append(f"{name}: {WITHOUT_EFFECT[name]}")
    return remarks


def check_store_names(options: Mapping[str, str]) -> None:
    """Refuse names that make no sense beside `store`."""
    _check_possible(options)
    for key in options:
        name = proper(key)
        if key.lower().startswith(STORE_SETTINGS) or name in _WITH_STORE or name in OF_SPARK:
            continue
        if name.startswith(KAFKA):
            raise OptionError(
                f"option {name} cannot be given together with store: a store is read without a broker."
                " Take store out to read from the broker, or this one to read from the store"
            )
        if key.lower() not in _SPELLING:
            raise OptionError(f"unknown option {name}{_nearest(key.lower())}")
        advice = _INSTEAD.get(name)
        raise OptionError(
            f"option {name} has no meaning for a read from a store: {'take it out' if advice is None else advice}"
        )


def _check_possible(options: Mapping[str, str]) -> None:
    for key, reason in _IMPOSSIBLE.items():
        if key in options:
            raise OptionError(reason)


def _check_security(name: str, value: str) -> None:
    if name == "kafka.security.protocol" and value.strip().upper() == "PLAINTEXT":
        return
    raise OptionError(
        f"option {name} is not supported yet: connections are PLAINTEXT, without SASL and TLS."
        " Take it out, and let the broker have a plain listener"
    )


def _nearest(key: str) -> str:
    """Suggest a name; the prefix `kafka.` does not count, since it is what people forget."""
    bare = {name.removeprefix(KAFKA): name for name in _SPELLING}
    close = get_close_matches(key.removeprefix(KAFKA), bare, n=1)
    return f": did you mean {proper(bare[close[0]])}?" if close else ""
