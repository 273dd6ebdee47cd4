"""What a broker has brought into a store is read by Spark when the broker is gone: the same rows as from the broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odradek.client.sync import Client
from odradek.objects.archive import ArchivedSegment, archived_segments
from odradek.objects.stores import open_store
from odradek.records.record import NewRecord
from odradek.testing import broker
from tests.process import wait_until
from tests.spark.store.channels import NOON_MS, samples
from tests.spark.test_batch_read import as_tuples


def records_of(partition: int) -> list[NewRecord]:
    return [record for minute in range(5) for record in samples(NOON_MS + minute * 60_000 + partition, step_ms=700)]


def archived(url: str) -> list[ArchivedSegment]:
    return archived_segments(open_store(url), "old")


def rows(load: Callable[..., DataFrame], **options: str) -> list[tuple[Any, ...]]:
    return as_tuples(load(includeHeaders="true", **options).collect())


def test_channels_and_archived_topics_outlive_their_broker(spark: SparkSession, tmp_path: Path) -> None:
    def load(**options: str) -> DataFrame:
        return spark.read.format("odradek").options(**options).load()

    (tmp_path / "objects").mkdir()
    url = (tmp_path / "objects").as_uri()
    settings = {
        "store.url": url, "remote.log.manager.task.interval.ms": "100", "log.retention.check.interval.ms": "100"
    }  # fmt: skip
    tiered = {
        "remote.storage.enable": "true", "segment.bytes": "16384", "retention.ms": "-1", "local.retention.bytes": "0"
    }  # fmt: skip
    with broker(settings, tmp_path / "data") as server, Client(server.bootstrap_servers) as client:
        client.admin.create_topic("live", 2, {"channel.store": url, "retention.ms": "-1"})
        client.admin.create_topic("old", 2, tiered)
        for name in ("live", "old"):
            with client.producer() as producer:
                for partition in range(2):
                    producer.send_many(name, records_of(partition), partition=partition)
        wait_until(
            lambda: {segment.partition for segment in archived(url)} == {0, 1},
            60,
            "archived segments of both partitions",
        )
        first = [tmp_path / "data" / f"old-{partition}" / f"{0:020d}.log" for partition in range(2)]
        wait_until(lambda: not any(file.exists() for file in first), 60, "the first offsets to be gone from the disk")
        address = {"kafka.bootstrap.servers": server.bootstrap_servers}
        live = rows(load, **address, subscribe="live")
        old = rows(load, **address, subscribe="old")
    stored = rows(load, store=url, channel="live")
    assert len(stored) == 60
    assert stored == live
    for partition in range(2):  # also of what only the store has, asked at the broker
        values = [(row[0], row[1]) for row in old if row[3] == partition]
        assert values == [(record.key, record.value) for record in records_of(partition)]
    ends = {segment.partition: segment.end_offset for segment in archived(url)}
    assert rows(load, store=url, topic="old") == [row for row in old if row[4] < ends[row[3]]]
