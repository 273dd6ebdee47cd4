"""A session works where it is made, takes what the caller says over its own defaults, and joins one that is running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.spark.errors import SparkError
from odradek.spark.sessions import cores_of, session
from tests.spark.conftest import Produce
from tests.spark.tools import environment_without_java

# Prints the settings of a session that it makes on a machine where nothing is set.
PROGRAM = """
import json, os
from odradek.spark.sessions import session
spark = session("named", master="local[3]", conf={"spark.driver.host": "localhost", "spark.app.own": "kept"})
row = spark.range(1).selectExpr("java_method('java.lang.System', 'getProperty', 'java.version') as java").first()
print(json.dumps(dict(spark.sparkContext.getConf().getAll()) | {"java": row.java, "home": os.environ["JAVA_HOME"]}))
spark.stop()
"""


@pytest.mark.xdist_group("spark")
def test_a_session_is_made_where_there_is_no_java_and_nothing_is_set(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment_without_java(tmp_path),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    made = json.loads(ran.stdout)
    assert made["java"].startswith("25")
    assert made["home"].startswith(str(tmp_path / "cache" / "odradek"))
    assert made["spark.app.name"] == "named"
    assert made["spark.sql.shuffle.partitions"] == "3"
    assert made["spark.ui.enabled"] == "false"
    assert made["spark.driver.host"] == "localhost"  # the caller wins
    assert made["spark.app.own"] == "kept"
    assert "spark.sql.session.timeZone" not in made
    assert not [line for line in ran.stderr.splitlines() if not line.startswith("WARNING: ")]  # those are the JVM's
    assert [file.name for file in tmp_path.iterdir() if file.name not in ("cache", "path")] == []


def test_a_session_that_is_running_is_joined_and_takes_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    joined = session("another name", conf={"spark.sql.session.own": "set"})
    assert joined.sparkContext is spark.sparkContext
    assert joined.conf.get("spark.sql.session.own") == "set"
    assert joined.conf.get("spark.sql.shuffle.partitions") == before


def test_a_running_session_whose_workers_lack_odradek_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'No module named odradek' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(SparkError, match="cannot be imported") as raised:
        session()
    assert str(bare) in str(raised.value) and f"PYSPARK_PYTHON={sys.executable}" in str(raised.value)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "nowhere"))
    with pytest.raises(SparkError, match="cannot be imported"):
        session()


def test_a_thread_that_asks_for_the_session_can_write_a_stream(
    spark: SparkSession, bootstrap: str, client: Client, produce: Produce, new_name: Callable[[], str], tmp_path: Path
) -> None:
    source, target = new_name(), new_name()
    produce(source, ["a", "b"])
    client.admin.create_topic(target)

    def copy() -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        records = session().readStream.format("odradek").options(**options).load().select("value")
        writer = records.writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy).result()
    with client.consumer(target, start="start", follow=False) as consumer:
        assert sorted(record.value or b"" for record in consumer) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[4]", 4), ("local[ 2 ]", 2), ("local[3, 5]", 3), ("local[*]", None), ("local[*, 2]", None)],
)
def test_the_cores_of_a_local_master_are_counted(master: str, cores: int | None) -> None:
    assert cores_of(master) == (cores or len(os.sched_getaffinity(0)))
