"""The driver's side of a streaming read from a store, without Spark: every object in one batch, also when repeated."""

from __future__ import annotations

import json
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from odradek.clock import SystemClock
from odradek.objects.channels import create_channel, delete_channel, save_channel
from odradek.objects.reader import expire_channel
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import open_store
from odradek.spark.errors import DataLossError, MissingTopicError
from odradek.spark.options import Mode
from odradek.spark.store.channel_reader import UnitsPartition
from odradek.spark.store.stream_reader import QUIET_MS_MAX, ChannelStreamReader
from tests.s3 import S3Server
from tests.spark.store.channels import NOON_MS, Channel

ALL = ReadAllAvailable()
Offset = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut would spoil these tests all the same."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path.as_uri(), grace_ms=10_000)


class Query:
    """What Spark does with a reader, batch by batch; offsets travel as text, as in a checkpoint."""

    def __init__(self, channel: Channel, start: Offset | None = None, **options: str) -> None:
        self.channel = channel
        self.reader = ChannelStreamReader(channel.options(Mode.STREAM, **options), channel.clock)
        self.offset = stored(self.reader.initialOffset()) if start is None else start
        self.history: list[tuple[Offset, Offset, list[str]]] = []

    def batch(self, limit: ReadLimit = ALL) -> list[str]:
        """The keys of the next batch; none if there is nothing to do."""
        end = stored(self.reader.latestOffset(self.offset, limit))
        if end != self.offset:
            self.history.append((self.offset, end, keys_of(self.reader.partitions(self.offset, end))))
            self.offset = end
            found = self.history[-1][2]
        else:
            found = []
        self.check_repeats()
        return found

    def check_repeats(self) -> None:
        """Whatever was stored meanwhile: another process that repeats a batch plans the same."""
        for start, end, planned in self.history:
            repeating = ChannelStreamReader(self.reader._options, self.channel.clock)
            first = stored(repeating.initialOffset()) if "from" in end else start
            assert keys_of(repeating.partitions(first, end)) == planned


def stored(offset: Offset) -> Offset:
    read = json.loads(json.dumps(offset))
    assert isinstance(read, dict)
    return read


def keys_of(partitions: Any) -> list[str]:
    assert all(isinstance(partition, UnitsPartition) for partition in partitions)
    return [one.key for partition in partitions for unit in partition.units for one in unit.objects]


def test_a_new_query_reads_what_is_stored_from_now_on(channel: Channel) -> None:
    channel.stored_at(-20, channel.put_at(-20))
    query = Query(channel)
    assert query.batch() == []
    new = channel.put_at(1, 2)
    channel.stored_at(2, new)
    channel.clock.advance(12_000)
    assert query.batch() == []  # stored ten seconds ago, not earlier than that
    channel.clock.advance(1)
    assert query.batch() == new
    assert query.batch() == []


def test_the_delay_is_an_option(channel: Channel) -> None:
    query = Query(channel, readDelay="0")
    new = channel.put_at(1)
    channel.stored_at(1, new)
    channel.clock.advance(1_001)
    assert query.batch() == new


def test_a_query_from_the_beginning_catches_up_by_time_and_then_follows(channel: Channel) -> None:
    old = [channel.put_at(second) for second in (-500, -400.5, -400.2, -300)]
    channel.stored_at(-100, channel.keys())  # all at once, after an outage
    query = Query(channel, startingOffsets="earliest", maxBytesPerTrigger="1")
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(1)
    # One slice at least in each batch; two objects of the same slice stay together.
    assert [query.batch(limit), query.batch(limit)] == [old[0], sorted(old[1] + old[2])]
    assert query.offset["slice"] == NOON_MS - 300_000
    late = channel.put_at(-490)
    channel.stored_at(5, late)
    channel.clock.advance(20_000)
    assert query.batch(limit) == old[3]
    assert "slice" not in query.offset
    assert query.batch(limit) == late
    assert query.batch(limit) == []


def test_a_query_from_a_time_on_begins_with_the_slice_of_that_time(channel: Channel) -> None:
    made = [channel.put_at(second) for second in (-500, -400, -399, -300)]
    channel.stored_at(-100, channel.keys())
    query = Query(channel, startingTimestamp=str(NOON_MS - 400_000 + 500))
    assert query.batch() == [key for keys in made[1:] for key in keys]
    (partition,) = query.reader.partitions(
        Query(channel, startingTimestamp=str(NOON_MS - 399_500)).offset, query.offset
    )
    assert isinstance(partition, UnitsPartition)
    assert partition.times.start_ms == NOON_MS - 400_000 + 500


def test_what_comes_late_is_read_when_it_comes_and_once(channel: Channel) -> None:
    query = Query(channel)
    first = channel.put_at(1)
    channel.stored_at(2, first)
    channel.clock.advance(100_000)
    assert query.batch() == first
    outage = channel.put_at(*range(3, 90, 7))  # from 3 s to 87 s after noon; now it is 100 s
    channel.stored_at(100, outage)
    assert any("!late" in info.key for info in channel.store.list("orders/!late"))
    channel.clock.advance(500_000)
    punctual = channel.put_at(590)
    channel.stored_at(592, punctual)
    channel.clock.advance(20_000)
    assert query.batch() == sorted(outage + punctual)
    assert query.batch() == []


def test_batches_are_cut_by_bytes_at_times_of_storing(channel: Channel) -> None:
    query = Query(channel)
    made = [channel.put_at(number, number + 0.5) for number in range(6)]
    for number, keys in enumerate(made):
        channel.stored_at(10 + number // 2, keys)  # two at a time
    channel.clock.advance(60_000)
    size = sum(info.size_bytes for info in channel.store.list("orders") if info.key in made[0])
    assert query.batch(ReadMaxBytes(3 * size)) == sorted(made[0] + made[1])
    assert query.batch(ReadMaxBytes(1)) == sorted(made[2] + made[3])
    assert query.batch(ReadMaxBytes(1)) == sorted(made[4] + made[5])
    assert query.batch(ReadMaxBytes(1)) == []


def test_a_query_that_ends_reads_what_there_is_when_it_starts(channel: Channel) -> None:
    made = channel.put_at(-50)
    channel.stored_at(-50, made)
    query = Query(channel, startingOffsets="earliest")
    channel.stored_at(5, after := channel.put_at(4))
    channel.clock.advance(20_000)
    query.reader.prepareForTriggerAvailableNow()
    channel.stored_at(21, channel.put_at(21))
    channel.clock.advance(60_000)
    assert [query.batch(), query.batch(), query.batch()] == [made, after, []]
    assert query.reader.reportLatestOffset() == {"channel": channel.spec.id, "stored": NOON_MS + 10_000}


def test_the_first_batch_is_repeated_from_where_the_query_began(channel: Channel) -> None:
    """Spark asks for the initial offset again, hours later."""
    query = Query(channel)
    new = channel.put_at(1)
    channel.stored_at(1, new)
    channel.clock.advance(20_000)
    end = query.reader.latestOffset(query.offset, ALL)
    channel.clock.advance(7_200_000)
    channel.stored_at(7_000, channel.put_at(7_000))
    again = Query(channel)
    assert again.offset != query.offset
    assert keys_of(again.reader.partitions(again.offset, end)) == new


def test_a_source_without_news_repeats_nothing(channel: Channel) -> None:
    query = Query(channel)
    assert query.reader.partitions(query.offset, query.offset) == []


def test_a_quiet_channel_moves_the_offset_now_and_then(channel: Channel) -> None:
    query = Query(channel)
    start = query.offset
    channel.clock.advance(QUIET_MS_MAX - 1)
    assert (query.batch(), query.offset) == ([], start)
    channel.clock.advance(1)
    assert query.batch() == []
    assert query.offset["stored"] == start["stored"] + QUIET_MS_MAX


def test_readers_travel_without_what_the_driver_remembers(channel: Channel) -> None:
    query = Query(channel, startingOffsets="earliest")
    travelled = pickle.loads(pickle.dumps(query.reader))  # noqa: S301
    assert travelled._options == query.reader._options
    assert travelled._initial is None


def test_an_s3_store_tells_when_it_took_an_object(s3: S3Server) -> None:
    url = s3.new_url()
    channel = Channel(url, store=open_store(url, s3.options))
    channel.now_ms = SystemClock().now_ms
    channel.clock.advance(channel.now_ms() - NOON_MS)
    now_s = (channel.now_ms() - NOON_MS) / 1000
    settings = {f"store.{name}": value for name, value in s3.options.items()}
    old = channel.put_at(now_s - 5)
    catching_up = Query(channel, None, startingOffsets="earliest", **settings)
    following = Query(channel, None, **settings)
    punctual, late = channel.put_at(now_s), channel.put_at(now_s - 7_200, now_s - 7_201)
    assert (catching_up.batch(), following.batch()) == ([], [])
    channel.clock.advance(120_000)
    assert following.batch() == catching_up.batch() == sorted(late + old + punctual)
    assert (catching_up.batch(), following.batch()) == ([], [])


# Trouble.


def test_a_channel_that_is_not_there_is_named(channel: Channel) -> None:
    options = channel.options(Mode.STREAM, channel="ordres")
    with pytest.raises(MissingTopicError, match=r"there is no channel ordres.*archived topic is named with topic"):
        ChannelStreamReader(options).initialOffset()


def test_another_channel_of_the_same_name_is_not_read_as_if_it_were_the_old_one(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    query, careless = Query(channel), Query(channel, failOnDataLoss="false")
    delete_channel(channel.store, "orders")
    create_channel(channel.store, ChannelSpec("orders", "another"))
    with pytest.raises(DataLossError, match="channel orders was deleted and created again"):
        Query(channel, start=query.offset).batch()
    other = Channel(channel.url, id="another")
    new = other.put_at(1)
    other.stored_at(1, new)
    channel.clock.advance(20_000)
    with caplog.at_level(logging.WARNING, logger="odradek.spark"):
        assert Query(channel, start=careless.offset, failOnDataLoss="false").batch() == new
    assert "deleted and created again" in caplog.text


def test_an_object_that_could_not_be_seen_in_time_is_an_error(channel: Channel) -> None:
    query = Query(channel)
    channel.stored_at(1, channel.put_at(1))
    channel.clock.advance(20_000)
    assert len(query.batch()) == 1
    channel.stored_at(5, missed := channel.put_at(4))  # and it is 20 seconds after noon
    channel.clock.advance(1_000)
    with pytest.raises(DataLossError, match=rf"{missed[0]}.*clocks.*readDelay \(10000 ms\) longer.*failOnDataLoss"):
        query.batch()


def test_a_query_that_was_away_for_longer_than_records_are_kept_says_so(channel: Channel) -> None:
    save_channel(channel.store, ChannelSpec("orders", channel.spec.id, retention_ms=3_600_000))
    query = Query(channel)
    channel.stored_at(1, channel.put_at(1))
    channel.clock.advance(20_000)
    assert len(query.batch()) == 1
    watching = Query(channel, start=query.offset)
    for _ in range(8):
        channel.clock.advance(900_000)
        assert watching.batch() == []
    assert Query(channel, start=query.offset).batch() == []  # it was away, but nothing came meanwhile
    expire_channel(
        channel.store, ChannelSpec("orders", channel.spec.id, retention_ms=3_600_000), channel.clock.now_ms()
    )
    channel.put_at(100)
    channel.save()
    with pytest.raises(DataLossError, match="channel orders keeps records for 3600000 ms"):
        Query(channel, start=query.offset).batch()
    assert watching.batch() == []
