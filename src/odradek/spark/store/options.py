"""The options of a read from an object store, parsed and checked. Nothing here talks to the store.

Names and meanings are those of reads from a broker where there is such a thing there. What is in `store.<name>` goes to
the store as it is, and is never shown: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from odradek.spark.errors import OptionError
from odradek.spark.option_names import STORE, STORE_SETTINGS, check_store_names
from odradek.spark.option_values import check_topic, parse_duration_ms
from odradek.spark.options import (
    AtOffsets,
    AtTime,
    Edge,
    Mode,
    Place,
    check_batch_places,
    check_no_end,
    columns_of,
    optional_bool,
    optional_int,
    parse_place,
)

SCHEMES = ("s3", "gs", "az", "file")
EXAMPLES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory"
PARTITION_BYTES = 64 * 1024 * 1024
READ_DELAY_MS = 10_000  # as long as a PUT may take: its object may be stamped with the time at which it began
REMOTE_DELAY_MS_MIN = 2_000  # what comes over a network bears times of whole seconds

NO_WRITES = (
    "nothing can be written to a store by Spark: channels are written through a broker, or by odradek.objects.writer."
    " Take store out, and name the broker with kafka.bootstrap.servers and the channel with topic"
)


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """Which store, and what it needs to be opened."""

    url: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets are among them


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times of records, [start, end), in milliseconds."""

    start_ms: int
    end_ms: int

    def within(self, start_ms: int, end_ms: int) -> TimeRange:
        """What lies in both ranges; it may be nothing."""
        return TimeRange(max(self.start_ms, start_ms), min(self.end_ms, end_ms))


ALWAYS = TimeRange(-(2**62), 2**62)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a batch or streaming read of a store was asked for."""

    target: StoreTarget
    name: str  # of the channel or the topic
    is_channel: bool
    starting: Place
    ending: Place
    min_partitions: int | None
    partition_bytes: int
    trigger_bytes: int | None
    read_delay_ms: int
    fail_on_data_loss: bool
    push_filters: bool
    columns: tuple[str, ...]  # in the order of the schema

    @staticmethod
    def parse(options: Mapping[str, str], mode: Mode) -> StoreOptions:
        """Read the options; an OptionError says what is wrong with which."""
        given = {name.lower(): value for name, value in options.items()}
        check_store_names(given)
        is_channel, name = _what(given)
        starting = parse_place(given, "starting", Edge.LATEST if mode is Mode.STREAM else Edge.EARLIEST)
        ending = parse_place(given, "ending", Edge.LATEST)
        if is_channel:
            _check_by_time(starting, ending)
        if mode is Mode.BATCH:
            check_batch_places(starting, ending)
        if mode is Mode.STREAM:
            check_no_end(given)
            if not is_channel:
                raise OptionError(
                    "an archived topic is read in batches: its newest records are not in the store yet. Read a stream"
                    " from the broker (kafka.bootstrap.servers and subscribe), which has the archived ones too"
                )
        target = _target(given)
        return StoreOptions(
            target=target,
            name=name,
            is_channel=is_channel,
            starting=starting,
            ending=ending,
            min_partitions=optional_int(given, "minPartitions"),
            partition_bytes=optional_int(given, "maxBytesPerPartition") or PARTITION_BYTES,
            trigger_bytes=optional_int(given, "maxBytesPerTrigger"),
            read_delay_ms=_read_delay_ms(given, target),
            fail_on_data_loss=optional_bool(given, "failOnDataLoss", True),
            push_filters=optional_bool(given, "pushFilters", False),
            columns=columns_of(given),
        )

    @property
    def times(self) -> TimeRange:
        """The times of the records that are asked for; for channels, which are read by time alone."""
        times = ALWAYS
        if isinstance(self.starting, AtTime) and self.starting.timestamp_ms is not None:
            times = replace(times, start_ms=self.starting.timestamp_ms)
        if isinstance(self.ending, AtTime) and self.ending.timestamp_ms is not None:
            times = replace(times, end_ms=self.ending.timestamp_ms)
        return times


def has_store(options: Mapping[str, str]) -> bool:
    """Whether the options are about an object store."""
    return STORE in options


def _what(given: Mapping[str, str]) -> tuple[bool, str]:
    """Whether it is a channel, and its name or that of the topic."""
    chosen = [name for name in ("channel", "topic") if name in given]
    if len(chosen) != 1:
        both = " Not both: the one is written into the store as it comes, the other is a copy of old segments"
        raise OptionError(
            "what is to be read from the store? Give a channel with channel, or an archived topic with topic."
            + (both if chosen else "")
        )
    (kind,) = chosen
    check_topic(kind, given[kind])
    return kind == "channel", given[kind]


def _check_by_time(starting: Place, ending: Place) -> None:
    for place in (starting, ending):
        if isinstance(place, AtOffsets) or (isinstance(place, AtTime) and place.timestamp_ms is None):
            side = "startingTimestamp" if place is starting else "endingTimestamp"
            raise OptionError(f"{place.option}: a channel is read by time, not by partition. Use {side}")


def _read_delay_ms(given: Mapping[str, str], target: StoreTarget) -> int:
    text = given.get("readdelay")
    if text is None:
        return READ_DELAY_MS
    delay_ms = parse_duration_ms("readDelay", text)
    if delay_ms < REMOTE_DELAY_MS_MIN and not target.url.startswith("file:"):
        raise OptionError(
            f"readDelay is at least {REMOTE_DELAY_MS_MIN} ms, not {delay_ms}: the store tells when it took an object in"
            " whole seconds, and what it is just taking would be missed"
        )
    return delay_ms


def _target(given: Mapping[str, str]) -> StoreTarget:
    url = given[STORE].strip()
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise OptionError(f"store is no URL: {error}. It looks like {EXAMPLES}") from None
    if "@" in parts.netloc and parts.scheme != "az":
        raise OptionError(
            "store has a user or a password in its URL: give credentials with store.<name>, as in"
            " store.aws_access_key_id, or in the environment of the driver and of the executors"
        )
    if parts.scheme == "memory":
        raise OptionError("a memory:// store lives in one process, and Spark has several: use file:// to try things")
    if parts.scheme not in SCHEMES:
        raise OptionError(f"store {url!r} has no scheme that is known: it looks like {EXAMPLES}")
    settings = {
        name.removeprefix(STORE_SETTINGS): value for name, value in given.items() if name.startswith(STORE_SETTINGS)
    }
    return StoreTarget(url, tuple(sorted(settings.items())))
