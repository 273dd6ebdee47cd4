"""A driver that is killed in the middle of a micro-batch goes on from its checkpoint: each row is written once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.spark.lake import parquet
from tests.process import wait_until
from tests.spark import copying
from tests.spark.conftest import Produce
from tests.spark.copying import ROWS_A_BATCH
from tests.spark.tools import kill_group, quick_environment

ROOT = Path(__file__).parents[2]
LOADED = (parquet,)  # pytest rewrites what is imported, and Python 3.11 fails if two threads do so at the same time
ROWS = 3 * ROWS_A_BATCH  # in each of two partitions: three batches
KILLED_BATCH = 1  # the second
SECONDS_MAX = 240.0

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


class Driver:
    """The driver in a process group of its own."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: IO[bytes]) -> None:
        command = [sys.executable, "-m", "tests.spark.copying", *arguments]
        self.log = Path(log.name)
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def says(self) -> str:
        return self.log.read_text(errors="replace")

    def is_at(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        def check() -> bool:
            assert self.process.poll() is None, self.says()
            return condition()

        return check


def end_offsets(client: Client, topic: str) -> int:
    places = [TopicPartition(topic, number) for number in client.admin.describe_topic(topic).partitions]
    return sum(found.offset for found in client.admin.list_offsets(dict.fromkeys(places, "end")).values())


def commits(directory: Path, sink: str) -> list[int]:
    folder = directory / "checkpoints" / sink / "commits"
    return sorted(int(file.name) for file in folder.glob("[0-9]*")) if folder.exists() else []


def started(directory: Path, sink: str) -> list[int]:
    folder = directory / "checkpoints" / sink / "offsets"
    return sorted(int(file.name) for file in folder.glob("[0-9]*")) if folder.exists() else []


def forget_last_commit(directory: Path, sink: str) -> int:
    """Make a checkpoint forget that its last batch was written; which one that was."""
    last = commits(directory, sink)[-1]
    folder = directory / "checkpoints" / sink / "commits"
    (folder / str(last)).unlink()
    (folder / f".{last}.crc").unlink(missing_ok=True)
    return last


def in_topic(client: Client, topic: str) -> Counter[str]:
    with client.consumer(topic, start="start", follow=False) as consumer:
        return Counter((record.value or b"").decode() for record in consumer)


def in_lake(directory: Path) -> Counter[str]:
    return Counter(pyarrow.dataset.dataset(directory / "lake").to_table().column("value").to_pylist())


def test_after_a_kill_in_the_middle_of_a_batch_each_row_is_there_once(
    spark: SparkSession,
    spark_home: Path,
    bootstrap: str,
    client: Client,
    produce: Produce,
    new_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    source, target = new_name(), new_name()
    client.admin.create_topic(source, 2)
    client.admin.create_topic(target, 3)
    for partition in (0, 1):
        rows = [NewRecord(f"{partition}-{row}".encode(), key=str(row % 50).encode()) for row in range(ROWS)]
        produce(source, rows, partition=partition)
    wanted = Counter(f"{partition}-{row}" for partition in (0, 1) for row in range(ROWS))
    arguments = [bootstrap, source, target, str(tmp_path)]
    environment = quick_environment(spark_home)

    with (tmp_path / "driver.log").open("wb") as log:
        # One task of the second batch has written all of its rows to the topic; the other one waits at the gate.
        before = KILLED_BATCH * 2 * ROWS_A_BATCH
        driver = Driver(arguments, environment, log)
        try:
            half = driver.is_at(lambda: end_offsets(client, target) == before + ROWS_A_BATCH)
            wait_until(half, SECONDS_MAX, "half of the second batch")
            at_batch = driver.is_at(lambda: started(tmp_path, "lake")[-1:] == [KILLED_BATCH])
            wait_until(at_batch, SECONDS_MAX, "the second batch of the lake table")
        finally:
            kill_group(driver.process)
        for sink in ("topic", "lake"):
            assert commits(tmp_path, sink) == list(range(KILLED_BATCH)), sink
        assert max(in_topic(client, target).values()) == 1
        assert end_offsets(client, target) == before + ROWS_A_BATCH

        (tmp_path / "gate").touch()
        again = Driver(arguments, environment, log)
        try:
            assert again.process.wait(SECONDS_MAX) == 0, again.says()
        finally:
            if again.process.poll() is None:
                kill_group(again.process)
    assert in_topic(client, target) == wanted
    assert in_lake(tmp_path) == wanted

    # The last moment at which a driver can die: all is written, but the checkpoint does not say so yet.
    last = {sink: forget_last_commit(tmp_path, sink) for sink in ("topic", "lake")}
    queries = copying.start(spark, bootstrap, source, target, tmp_path)
    for query, batch in zip(queries, last.values(), strict=True):
        query.processAllAvailable()
        assert query.recentProgress[0]["batchId"] == batch  # it was done again
        query.stop()
    assert in_topic(client, target) == wanted
    assert in_lake(tmp_path) == wanted
