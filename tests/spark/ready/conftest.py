"""What the tests of ready pipelines share: a file is written, read and run once, and topics are looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from odradek.client.fetched import ConsumerRecord
from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.spark.pipelines.files import read_pipeline
from odradek.spark.pipelines.runner import Outcome, Runner, Watcher


class RunPipeline(Protocol):
    """Run a pipeline, given as TOML, over all that there is."""

    def __call__(self, toml: str, *, fails: bool = False) -> Outcome: ...


@pytest.fixture
def run_pipeline(spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPipeline:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("ODRADEK_BROKER", bootstrap)

    def run(toml: str, *, fails: bool = False) -> Outcome:
        file = tmp_path / "pipeline.toml"
        file.write_text(toml, encoding="utf-8")
        watcher = Watcher(on_batch=lambda *_: None, on_event=lambda _: None, show_rows=lambda *_: None)
        outcome = Runner(spark, read_pipeline(file), str(file), follow=False, watcher=watcher).run()
        assert (outcome.failure is not None) is fails, outcome.failure
        return outcome

    return run


@pytest.fixture
def records(client: Client) -> Callable[[str], list[ConsumerRecord]]:
    """All records of a topic, partition by partition."""

    def read(topic: str) -> list[ConsumerRecord]:
        count = client.admin.describe_topic(topic).partition_count
        ends = client.admin.list_offsets({TopicPartition(topic, number): "end" for number in range(count)})
        total = sum(end.offset for end in ends.values())
        found: list[ConsumerRecord] = []
        with client.consumer(topic) as consumer:
            while len(found) < total:
                found += consumer.poll()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    return read
