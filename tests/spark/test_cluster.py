"""A job that runs on this machine runs on a standalone cluster, unchanged, with the broker outside of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.records.record import NewRecord
from tests.process import wait_until
from tests.spark import job
from tests.spark.conftest import Produce
from tests.spark.tools import kill_group, quick_environment

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 60.0
WORKERS = 2
RECORDS = 2_000

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


class Daemon:
    """A master or a worker, in a process group of its own: a worker's executors end with it."""

    def __init__(self, log: Path, environment: dict[str, str], program: str, *arguments: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{program}", *arguments],
                stdout=output,
                stderr=output,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )

    def says(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.log.read_text(errors="replace"))

    def await_word(self, pattern: str, times: int = 1) -> str:
        def is_said() -> bool:
            assert self._process.poll() is None, self.log.read_text()
            return len(self.says(pattern)) >= times

        wait_until(is_said, START_SECONDS_MAX, f"{pattern!r} in {self.log.name}")
        return self.says(pattern)[-1]

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self._process)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, spark_home: Path) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    environment = quick_environment(spark_home) | {"SPARK_DAEMON_MEMORY": "256m"}
    shared = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as running:
        leader = running.enter_context(Daemon(directory / "master.log", environment, "master.Master", *shared))
        url = leader.await_word(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for number in range(WORKERS):
            own = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"work-{number}"))
            running.enter_context(Daemon(directory / f"{number}.log", environment, "worker.Worker", *shared, *own, url))
        leader.await_word("Registering worker", times=WORKERS)
        yield url


def values(client: Client, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    with client.consumer(topic, start="start", follow=False) as consumer:
        return Counter((record.key, record.value) for record in consumer)


def test_a_job_gives_the_same_on_a_cluster_as_on_one_machine(
    spark: SparkSession,
    spark_home: Path,
    master: str,
    bootstrap: str,
    client: Client,
    produce: Produce,
    new_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    source, here, there = new_name(), new_name(), new_name()
    numbers = [NewRecord(str(number).encode(), key=str(number % 97).encode()) for number in range(RECORDS)]
    produce(source, numbers, partitions=3)
    for target in (here, there):
        client.admin.create_topic(f"{target}-batch", 2)
        client.admin.create_topic(f"{target}-stream", 2)

    on_this_machine = job.run(spark, bootstrap, source, here, str(tmp_path / "here"))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.job", master, bootstrap, source, there, str(tmp_path / "there")],
        env=quick_environment(spark_home),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    on_the_cluster = json.loads(ran.stdout)

    assert on_the_cluster["executors"] == WORKERS and on_this_machine["executors"] == 0
    assert on_the_cluster["batches"] >= RECORDS / 1_000
    sums = {int(partition): tuple(found) for partition, found in on_the_cluster["sums"].items()}
    assert sums == on_this_machine["sums"]
    assert sum(rows for rows, _ in sums.values()) == RECORDS
    assert sum(total for _, total in sums.values()) == sum(range(RECORDS))
    doubled = Counter((record.key, str(int(record.value or b"") * 2).encode()) for record in numbers)
    for topic in (f"{here}-batch", f"{here}-stream", f"{there}-batch", f"{there}-stream"):
        assert values(client, topic) == doubled, topic
