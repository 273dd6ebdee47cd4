"""A pipeline's Python file: the same model as TOML makes, and mistakes with file and line. No Spark is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.spark.pipelines import Pipeline, PipelineError, PipelineFileError, read_pipeline, ready
from odradek.spark.pipelines.model import (
    ConsoleSink,
    FileSource,
    FunctionSink,
    FunctionSource,
    FunctionTransform,
    LakeSink,
    TopicSink,
    TopicSource,
)

GOOD = """\
from odradek.spark.pipelines import Pipeline

pipeline = Pipeline("revenue", checkpoint="checkpoints", spark={"spark.ui.enabled": False})
pipeline.topic("orders", schema="id STRING, amount DOUBLE", watermark=("at", "1 minute"), metadata=["key"])
pipeline.files("customers", "customers", "csv", schema="id STRING", static=True)
pipeline.source("ticks", lambda spark: spark.readStream.format("rate").load(), "timestamp TIMESTAMP, value LONG")
pipeline.sql("big", "SELECT * FROM orders WHERE amount > 10")

@pipeline.transform
def named(big, customers):
    return big.join(customers, "id")

pipeline.add("renamed", lambda frame: frame, inputs=["named"])
pipeline.write_topic(named, "results", key="id")
pipeline.write_lake("named", "delta", "lake", name="table", partition_by=["id"])
pipeline.write_console("ticks", rows=3)
pipeline.write("renamed", lambda batch, number: None, name="own")
"""


def read(tmp_path: Path, text: str, *settings: tuple[str, str]) -> Pipeline:
    file = tmp_path / "revenue.py"
    file.write_text(text)
    return read_pipeline(file, settings)


def test_a_python_file_declares_a_pipeline(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD)
    assert pipeline.checkpoint == str(tmp_path / "checkpoints")
    assert pipeline.spark == {"spark.ui.enabled": "false"}
    kinds = [type(step) for step in (*pipeline.sources.values(), *pipeline.sinks.values())]
    assert kinds == [TopicSource, FileSource, FunctionSource, TopicSink, LakeSink, ConsoleSink, FunctionSink]
    orders, customers = pipeline.sources["orders"], pipeline.sources["customers"]
    assert isinstance(orders, TopicSource) and isinstance(customers, FileSource)
    assert (orders.subscribed, orders.format, orders.metadata) == ("orders", "json", ("key",))
    assert customers.path == str(tmp_path / "customers"), "relative to the file"
    named, renamed = pipeline.transforms["named"], pipeline.transforms["renamed"]
    assert isinstance(named, FunctionTransform) and isinstance(renamed, FunctionTransform)
    assert (named.inputs, renamed.inputs, renamed.parameters) == (("big", "customers"), ("named",), ("frame",))
    assert pipeline.sinks["results"].source == "named"


def test_both_kinds_of_files_make_the_same_model(tmp_path: Path) -> None:
    toml = tmp_path / "revenue.toml"
    toml.write_text(
        '[pipeline]\nname = "p"\n[sources.orders]\ntopics = "orders"\nschema = "id STRING"\n[transforms.t]\n'
        'sql = "SELECT * FROM orders"\n[sinks.out]\nfrom = "t"\ntopic = "out"\nformat = "json"\nmode = "append"\n'
    )
    python = read(
        tmp_path,
        'from odradek.spark.pipelines import Pipeline\npipeline = Pipeline("p")\n'
        'pipeline.topic("orders", schema="id STRING")\npipeline.sql("t", "SELECT * FROM orders")\n'
        'pipeline.write_topic("t", "out")\n',
    )
    other = read_pipeline(toml)
    assert (python.sources, python.transforms, python.sinks) == (other.sources, other.transforms, other.sinks)
    assert (python.name, python.bootstrap, python.checkpoint) == (other.name, other.bootstrap, other.checkpoint)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ('"1 minute"', '"soon"', ":4: sources.orders.watermark.delay: 'soon' is not a duration"),
        ('metadata=["key"]', 'metadata=["keys"]', ":4: sources.orders.metadata: 'keys' is not one of key"),
        ('"csv"', '"cvs"', ":5: sources.customers.format: 'cvs' is not one of json, csv"),
        ("FROM orders", "FROM big", ":7: transforms.big: this needs itself: big -> big"),
        (
            "def named(big, customers)",
            "def named(big, clients)",
            ":9: transforms.named: there is no source or transform 'clients'",
        ),
        ("def named(big, customers)", "def named(*frames)", ":9: transforms.named.function: each parameter"),
        ('inputs=["named"]', 'inputs=["named", "big"]', ":13: transforms.renamed.inputs: the function takes 1 inputs"),
        (
            'write_topic(named, "results"',
            'write_topic("nmed", "results"',
            ":14: sinks.results.from: there is no source or transform 'nmed'; did you mean 'named'?",
        ),
        ('"delta"', '"dlta"', ":15: sinks.table: 'dlta' is not one of parquet, delta, iceberg"),
        ("rows=3", "rows=-3", ":16: sinks.console.rows: -3 is negative"),
        ('name="own"', 'name="console"', ":17: sinks.console: there is already a step 'console'"),
        ('Pipeline("revenue"', 'Pipeline("rev enue"', ":3: pipeline.name: 'rev enue' cannot be a name"),
        ("pipeline.sql(", "pipeline.sqll(", ":7: AttributeError: 'Pipeline' object has no attribute 'sqll'"),
        ("@pipeline.transform", "@pipeline.transform(", ":9: no Python: '(' was never closed"),
        ("pipeline = Pipeline", "1 / 0\npipeline = Pipeline", ":3: ZeroDivisionError: division by zero"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    with pytest.raises(PipelineFileError) as caught:
        read(tmp_path, GOOD.replace(good, bad, 1))
    assert any(line.startswith(f"{tmp_path / 'revenue.py'}{message}") for line in caught.value.lines()), caught.value


def test_a_file_must_make_one_pipeline(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"revenue.py:1: it makes no pipeline: write pipeline = Pipeline"):
        read(tmp_path, "x = 1\n")
    two = 'from odradek.spark.pipelines import Pipeline\na = Pipeline("a")\nb = Pipeline("b")\n'
    with pytest.raises(PipelineFileError, match=r"it makes several pipelines \(a, b\): call one 'pipeline'"):
        read(tmp_path, two)
    assert read(tmp_path, f"{GOOD}\n{two}").name == "revenue"
    with pytest.raises(PipelineError, match=r"none\.py cannot be read: No such file"):
        read_pipeline(tmp_path / "none.py")


def test_a_file_can_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_revenue.py").write_text("NAME = 'big'\n")
    text = "from neighbour_of_revenue import NAME\n" + GOOD.replace('sql("big"', "sql(NAME")
    assert "big" in read(tmp_path, text).transforms


def test_the_pipelines_own_settings_can_be_replaced(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        GOOD,
        ("pipeline.bootstrap", "127.0.0.1:1"),
        ("pipeline.checkpoint", "elsewhere"),
        ("spark.ui.enabled", "true"),
    )
    assert (pipeline.bootstrap, pipeline.spark["spark.ui.enabled"]) == ("127.0.0.1:1", "true")
    assert pipeline.checkpoint == str(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match=r"--set sources.orders.topic: a pipeline in Python has pipeline.bootstrap"):
        read(tmp_path, GOOD, ("sources.orders.topic", "x"))
    with pytest.raises(PipelineError, match=r"--set pipeline.trigger: 'soon' is not a duration"):
        read(tmp_path, GOOD, ("pipeline.trigger", "soon"))


def test_a_ready_pipeline_can_be_added_from_python(tmp_path: Path) -> None:
    text = (
        "from odradek.spark.pipelines import Pipeline, ready\npipeline = Pipeline('kept')\n"
        "ready.add(pipeline, 'archive', {})\n"
    )
    names = ready.parameters_of("archive")
    assert names, "it has parameters"
    with pytest.raises(PipelineFileError, match=r"revenue.py:3: archive"):
        read(tmp_path, text.format("nonsense=1"))
    with pytest.raises(PipelineFileError, match=r"there is no ready pipeline 'archve'; did you mean 'archive'"):
        read(tmp_path, text.format("").replace("'archive'", "'archve'"))
