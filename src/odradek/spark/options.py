"""The options of reads and writes, parsed and checked: those of Spark's Kafka connector by name, default and meaning.

All checks that need no broker are here. Names are in option_names, the forms of values in option_values.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from odradek.client.address import parse_addresses
from odradek.client.start import EARLIEST, LATEST
from odradek.model import TopicPartition
from odradek.records.compression import Codec, codec_from_name
from odradek.records.errors import UnsupportedCodecError
from odradek.spark.connection import REQUEST_TIMEOUT_MS, TIMEOUT_MS, ConnectionOptions
from odradek.spark.errors import OptionError
from odradek.spark.option_names import BOOTSTRAP, STRATEGIES, check_names
from odradek.spark.option_values import (
    check_topic,
    parse_bool,
    parse_by_partition,
    parse_duration_ms,
    parse_int,
    parse_partitions,
)

PLAIN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
BATCH_BYTES = 1024 * 1024
OFFSET_TRIES = 3
OFFSET_RETRY_MS = 1_000

_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_log = logging.getLogger("odradek.spark")
_warned: set[tuple[str, ...]] = set()  # by this process: Spark builds a source many times over


class Mode(Enum):
    """What the options are for; ANY while Spark asks for the schema and does not say."""

    BATCH = "batch"
    STREAM = "streaming"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of some topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of all topics whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Some partitions, and no others however many there will be."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Subscribe | Pattern | Assign


class Edge(Enum):
    """An end of every partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition; LATEST (-1) and EARLIEST (-2) are possible."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition at or after a time: one for all, or by partition."""

    timestamp_ms: int | None
    by_partition: Mapping[TopicPartition, int]
    option: str


Place: TypeAlias = Edge | AtOffsets | AtTime


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch or streaming read was asked for."""

    connection: ConnectionOptions
    subscription: Subscription
    starting: Place
    ending: Place
    latest_if_no_match: bool  # startingOffsetsByTimestampStrategy: or else it is an error
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None  # of one task
    fail_on_data_loss: bool
    columns: tuple[str, ...]  # in the order of the schema
    read_committed: bool
    group: str | None  # offsets are committed there, to be seen; the checkpoint is the truth
    offset_tries: int  # how often a partition is asked for its end if that lies before what was read already
    offset_retry_ms: int

    @staticmethod
    def parse(options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """Read the options of a read; an OptionError says what is wrong with which."""
        given = _given(options)
        starting = parse_place(given, "starting", Edge.LATEST if mode is Mode.STREAM else Edge.EARLIEST)
        ending = parse_place(given, "ending", Edge.LATEST)
        if mode is Mode.BATCH:
            check_batch_places(starting, ending)
            _warn([f"{name} in a batch query" for name in _OF_STREAMS if name.lower() in given])
        if mode is Mode.STREAM:
            check_no_end(given)
        max_offsets = optional_int(given, "maxOffsetsPerTrigger")
        min_offsets = optional_int(given, "minOffsetsPerTrigger")
        if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
            raise OptionError(
                f"minOffsetsPerTrigger ({min_offsets}) is higher than maxOffsetsPerTrigger ({max_offsets})"
            )
        delay = given.get("maxtriggerdelay")
        return ReadOptions(
            connection=_connection(
                given, timeout_names=("kafkaConsumer.pollTimeoutMs", "kafka.default.api.timeout.ms")
            ),
            subscription=_subscription(given),
            starting=starting,
            ending=ending,
            latest_if_no_match=_latest_if_no_match(given),
            max_offsets=max_offsets,
            min_offsets=min_offsets,
            max_delay_ms=MAX_TRIGGER_DELAY_MS if delay is None else parse_duration_ms("maxTriggerDelay", delay),
            min_partitions=optional_int(given, "minPartitions"),
            max_records=optional_int(given, "maxRecordsPerPartition"),
            fail_on_data_loss=optional_bool(given, "failOnDataLoss", True),
            columns=columns_of(given),
            read_committed=_read_committed(given),
            group=_group(given),
            offset_tries=optional_int(given, "fetchOffset.numRetries") or OFFSET_TRIES,
            offset_retry_ms=optional_int(given, "fetchOffset.retryIntervalMs") or OFFSET_RETRY_MS,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a batch or streaming write was asked for. Every write is acknowledged by all replicas in sync."""

    connection: ConnectionOptions
    topic: str | None  # or else the rows name it
    codec: Codec
    batch_bytes: int
    sink_id: str | None  # with the number of the batch: the identity of a write, so that its replay is recognised
    batch_id: int | None

    @staticmethod
    def parse(options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a write; an OptionError says what is wrong with which."""
        given = _given(options)
        topic = given.get("topic")
        if topic is not None:
            check_topic("topic", topic)
        if given.get("kafka.acks", "all").strip() not in ("all", "-1"):
            _warn([f"kafka.acks = {given['kafka.acks']}: writes wait for all replicas in sync, always"])
        sink_id, batch_id = given.get("sinkid"), given.get("batchid")
        if sink_id is None and batch_id is not None:
            raise OptionError("batchId needs sinkId: the two are the identity of a write")
        if sink_id is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", sink_id):
            raise OptionError(f"sinkId consists of up to 100 letters, digits, '.', '_' and '-', not {sink_id!r}")
        return WriteOptions(
            connection=_connection(given, timeout_names=("kafka.delivery.timeout.ms",)),
            topic=topic,
            codec=_codec(given),
            batch_bytes=optional_int(given, "kafka.batch.size") or BATCH_BYTES,
            sink_id=sink_id,
            batch_id=None if batch_id is None else parse_int("batchId", batch_id, least=0),
        )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a read in the order of the schema: all but the headers, unless the options say otherwise."""
    given = {name.lower(): value for name, value in options.items()}
    with_headers = optional_bool(given, "includeHeaders", False)
    listed = given.get("columns")
    if listed is None:
        return (*PLAIN_COLUMNS, HEADERS) if with_headers else PLAIN_COLUMNS
    known = {name.lower(): name for name in (*PLAIN_COLUMNS, HEADERS)}
    wanted = [name.strip() for name in listed.split(",") if name.strip()]
    for name in wanted:
        if name.lower() not in known:
            raise OptionError(f"columns has {name!r}: there are {', '.join(known.values())}")
    if not wanted:
        raise OptionError(f"columns names none of {', '.join(known.values())}")
    chosen = {known[name.lower()] for name in wanted} | ({HEADERS} if with_headers else set())
    return tuple(name for name in known.values() if name in chosen)


def has_subscription(options: Mapping[str, str]) -> bool:
    """Whether the options say what to read: a table may be there to be written only."""
    names = {name.lower() for name in options}
    return any(name.lower() in names for name in STRATEGIES)


def _given(options: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    _warn(check_names(given))
    return given


def _warn(remarks: list[str]) -> None:
    if remarks and tuple(remarks) not in _warned:
        _warned.add(tuple(remarks))
        _log.warning("options without effect: %s", "; ".join(remarks))


def optional_bool(given: Mapping[str, str], name: str, default: bool) -> bool:
    """The truth value of an option, by its proper name."""
    text = given.get(name.lower())
    return default if text is None else parse_bool(name, text)


def optional_int(given: Mapping[str, str], name: str) -> int | None:
    """The positive number of an option, by its proper name; None if it is not given."""
    text = given.get(name.lower())
    return None if text is None else parse_int(name, text)


def _connection(given: Mapping[str, str], *, timeout_names: tuple[str, ...]) -> ConnectionOptions:
    bootstrap = given.get(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise OptionError(f"option {BOOTSTRAP} is missing: the address of the broker, for example 127.0.0.1:9092")
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise OptionError(f"{BOOTSTRAP}: {error}") from None
    timeouts = [optional_int(given, name) for name in timeout_names]
    return ConnectionOptions(
        bootstrap,
        client_id=given.get("kafka.client.id", "odradek-spark"),
        request_timeout_ms=optional_int(given, "kafka.request.timeout.ms") or REQUEST_TIMEOUT_MS,
        timeout_ms=next((value for value in timeouts if value is not None), TIMEOUT_MS),
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in STRATEGIES if name.lower() in given]
    if not chosen:
        raise OptionError(f"what is to be read? Give one of the options {', '.join(STRATEGIES)}")
    if len(chosen) > 1:
        raise OptionError(f"only one of {', '.join(STRATEGIES)} can be given, not {' and '.join(chosen)}")
    (name,) = chosen
    text = given[name.lower()]
    if name == "assign":
        return Assign(parse_partitions(name, text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise OptionError(f"subscribe names no topic: {text!r}")
        for topic in topics:
            check_topic(name, topic)
        return Subscribe(topics)
    if not text.strip():
        raise OptionError("subscribePattern is empty")
    try:
        re.compile(text.strip())
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return Pattern(text.strip())


def parse_place(given: Mapping[str, str], side: str, default: Edge) -> Place:
    """Where a read starts or ends: one time wins over times by partition, and these win over offsets, as in Spark."""
    by_time, by_times, by_offset = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (text := given.get(by_time.lower())) is not None:
        return AtTime(parse_int(by_time, text, least=0), {}, by_time)
    if (text := given.get(by_times.lower())) is not None:
        return AtTime(None, parse_by_partition(by_times, text, least=0), by_times)
    text = given.get(by_offset.lower())
    if text is None:
        return default
    if text.strip().lower() in ("earliest", "latest"):
        return Edge(text.strip().lower())
    if not text.strip().startswith("{"):
        raise OptionError(f"{by_offset} is earliest, latest or JSON, not {text!r}")
    return AtOffsets(parse_by_partition(by_offset, text, least=EARLIEST), by_offset)


def check_batch_places(starting: Place, ending: Place) -> None:
    """Refuse a batch in which nothing can be."""
    if starting is Edge.LATEST:
        raise OptionError("startingOffsets cannot be latest for batch queries: there would be nothing to read")
    if ending is Edge.EARLIEST:
        raise OptionError("endingOffsets cannot be earliest for batch queries: there would be nothing to read")
    for place, edge, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if isinstance(place, AtOffsets):
            for partition, offset in place.offsets.items():
                if offset == edge:
                    raise OptionError(f"{place.option} for {partition} cannot be {word} ({edge}) for batch queries")


def check_no_end(given: Mapping[str, str]) -> None:
    """Refuse a stream that is to end."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise OptionError(f"{name} is not valid in streaming queries: they have no end")


def _latest_if_no_match(given: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = given.get(name.lower(), "error").strip().lower()
    if value not in ("error", "latest"):
        raise OptionError(f"{name} is error or latest, not {value!r}")
    return value == "latest"


def _read_committed(given: Mapping[str, str]) -> bool:
    name = "kafka.isolation.level"
    value = given.get(name, "read_uncommitted").strip().lower()
    if value not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"{name} is read_uncommitted or read_committed, not {value!r}")
    return value == "read_committed"


def _group(given: Mapping[str, str]) -> str | None:
    name = "kafka.group.id"
    group = given.get(name)
    if group is not None and not group.strip():
        raise OptionError(f"{name} is empty")
    return group


def _codec(given: Mapping[str, str]) -> Codec:
    name = "kafka.compression.type"
    try:
        return codec_from_name(given.get(name, "none").strip().lower())
    except UnsupportedCodecError as error:
        raise OptionError(f"{name}: {error}") from None
