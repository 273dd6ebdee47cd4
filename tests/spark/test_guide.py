"""docs/guides/spark.md is true: its programs run in the order in which they stand, and it names every option."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.spark import option_names
from odradek.spark.lake import delta

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "spark.md").read_text(encoding="utf-8")
LOADED = (delta,)  # pytest rewrites what is imported, and Python 3.11 fails if two threads do so at the same time

# A cluster that nobody has: the call is checked, the cluster is not.
CLUSTER = "spark://cluster.example:7077"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [text for found, text in fenced if found == language]


def commands() -> list[str]:
    return [line.removeprefix("$ ") for block in blocks("") for line in block.splitlines()]


def test_the_programs_run_one_after_the_other(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    for number, program in enumerate(blocks("python")):
        if CLUSTER in program:
            continue
        # Spark's JVM looks up relative names where it was started, which for the shared session is not here.
        text = program.replace("127.0.0.1:9092", bootstrap).replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
        text = text.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')  # Java stays in the folder it was started in
        exec(compile(text, f"spark.md, program {number}", "exec"), names)  # noqa: S102 (they are our own)
    spark.catalog.dropTempView("orders")
    assert names["spark"].sparkContext is spark.sparkContext
    assert {row["start"][11:16] for row in names["written"]} == {"12:00", "12:10", "12:20", "12:30", "12:40"}
    # Once more, as the guide says: what was processed is not processed again.
    assert names["query"].recentProgress[-1]["numInputRows"] == 3_600
    writer = names["parsed"](names["stream"]).withColumn("day", names["F"].to_date("at")).writeStream
    again = writer.foreachBatch(names["write"]).option("checkpointLocation", f"{tmp_path}/checkpoints/lake")
    query = again.trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 0
    assert names["read_table"](spark, "delta", "lake/orders").count() == 3_600


def test_the_session_of_a_cluster_is_called_as_the_guide_does() -> None:
    (program,) = [program for program in blocks("python") if CLUSTER in program]
    called: dict[str, Any] = {}
    names = {"session": lambda *given, **named: called.update(named, name=given)}
    exec(program, names)  # noqa: S102
    assert called == {"name": ("guide",), "master": CLUSTER, "conf": {"spark.executor.memory": "2g"}}


def test_the_commands_that_find_things_find_them() -> None:
    found = {}
    for name, program in re.findall(r"export (\w+)=\$\(python -c '([^']+)'\)", GUIDE):
        ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
        found[name] = Path(ran.stdout.strip())
    assert (found["JAVA_HOME"] / "bin" / "java").exists()
    for program in re.findall(r"\$SPARK_HOME/(\S+)", GUIDE):
        assert (found["SPARK_HOME"] / program).exists()
    assert Path(sys.executable).with_name("spark-pipelines").exists()
    (spec,) = {word for line in commands() for word in line.split() if word.endswith(".yml")}
    assert (ROOT / spec).exists()


def test_what_is_to_be_installed_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for named in re.findall(r"pip install 'odradek\[([\w,]+)\]'", GUIDE):
        assert set(named.split(",")) <= set(extras), named


def test_every_option_is_in_a_table_and_every_option_in_a_table_is_one() -> None:
    rows = re.findall(r"^\| (`[^|]+?) +\| ", GUIDE.partition("## Options")[2].partition("\n## ")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    known = {*option_names.READ, *option_names.WRITE, *option_names.WITHOUT_EFFECT, *option_names.KAFKA_HONOURED}
    known |= set(option_names.OF_STORES)
    assert named == known


def test_every_message_of_ours_that_is_explained_is_one() -> None:
    """Those of Spark itself are in capitals, or say that a worker failed."""
    source = " ".join(path.read_text() for path in (ROOT / "src" / "odradek").rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", source)  # as the compiler joins them
    source = source.replace("{OLDEST} to {NEWEST}", "17 to 25")
    rows = re.findall(r"^\| `([^`]+)` \| ", GUIDE.partition("## When it does not work")[2], re.MULTILINE)
    ours = [text for text in rows if not text.isupper() and not text.startswith("Python worker")]
    assert len(ours) >= 7
    for text in ours:
        assert text in source, text
