"""A pipeline's TOML file: what it declares, and every mistake with its file, line and key. No Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.spark.pipelines import Pipeline, PipelineError, PipelineFileError, read_pipeline
from odradek.spark.pipelines.files import toml_value
from odradek.spark.pipelines.model import FileSource, FunctionTransform, LakeSink, SqlTransform, TopicSink, TopicSource
from odradek.spark.pipelines.steps import read_options

GOOD = """\
[pipeline]
name = "revenue"
bootstrap = "127.0.0.1:9999"
checkpoint = "checkpoints"
trigger = "5 seconds"

[spark]
spark.sql.shuffle.partitions = 4
"spark.ui.enabled" = false

[sources.orders]
topic = "orders"
format = "json"
schema = "id STRING, amount DOUBLE, at TIMESTAMP"
metadata = ["key", "offset"]
watermark = { column = "at", delay = "10 minutes" }
options = { maxOffsetsPerTrigger = 1000, kafka.client.id = "revenue" }

[sources.customers]
files = "customers.csv"
format = "csv"
schema = "id STRING, name STRING"
static = true

[transforms.late]
sql = "SELECT * FROM named"

[transforms.named]
python = "steps.py:join"

[sinks.results]
from = "late"
topic = "results"
key = "id"

[sinks.table]
from = "named"
parquet = "lake/named"
partition_by = "id"
"""


def read(tmp_path: Path, text: str, *settings: tuple[str, str]) -> Pipeline:
    """Read a text as a file, beside a file with a function."""
    (tmp_path / "steps.py").write_text("def join(orders, customers, spark, flag=True):\n    return orders\n")
    file = tmp_path / "revenue.toml"
    file.write_text(text)
    return read_pipeline(file, settings)


def mistakes(tmp_path: Path, text: str) -> list[str]:
    """What is wrong with a text, without the name of the file."""
    with pytest.raises(PipelineFileError) as caught:
        read(tmp_path, text)
    prefix = f"{tmp_path / 'revenue.toml'}:"
    assert all(line.startswith(prefix) for line in caught.value.lines())
    return [line.removeprefix(prefix) for line in caught.value.lines()]


def test_a_file_declares_a_pipeline(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD)
    assert (pipeline.name, pipeline.bootstrap, pipeline.trigger) == ("revenue", "127.0.0.1:9999", "5 seconds")
    assert pipeline.checkpoint == str(tmp_path / "checkpoints")
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    orders, customers = pipeline.sources["orders"], pipeline.sources["customers"]
    assert isinstance(orders, TopicSource) and isinstance(customers, FileSource)
    assert (orders.strategy, orders.subscribed, orders.metadata) == ("subscribe", "orders", ("key", "offset"))
    assert orders.watermark is not None and orders.watermark.delay == "10 minutes"
    assert read_options(orders, "b:1") == {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "orders",
        "columns": "value,key,offset",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
        "kafka.client.id": "revenue",
    }
    assert (customers.path, customers.static) == (str(tmp_path / "customers.csv"), True)
    named, late = pipeline.transforms["named"], pipeline.transforms["late"]
    assert isinstance(named, FunctionTransform) and isinstance(late, SqlTransform)
    assert (named.inputs, named.takes_session) == (("orders", "customers"), True)
    results, table = pipeline.sinks["results"], pipeline.sinks["table"]
    assert isinstance(results, TopicSink) and isinstance(table, LakeSink)
    assert (results.format, results.key, results.mode) == ("json", "id", "append")
    assert (table.path, table.partition_by) == (str(tmp_path / "lake" / "named"), ("id",))


def test_what_is_not_said_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_BROKER", "127.0.0.1:7777")
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    text = '[pipeline]\nname = "p"\n[sources.a]\ntopics = ["x", "y"]\n[sinks.s]\nfrom = "a"\nconsole = true\n'
    pipeline = read(tmp_path, text)
    assert (pipeline.bootstrap, pipeline.trigger) == ("127.0.0.1:7777", "1 second")
    assert pipeline.checkpoint == str(tmp_path / "home" / "pipelines" / "p" / "checkpoints")
    source = pipeline.sources["a"]
    assert isinstance(source, TopicSource)
    assert (source.format, source.subscribed) == ("raw", "x,y")


def test_partitions_and_patterns_can_be_read(tmp_path: Path) -> None:
    text = (
        '[pipeline]\nname = "p"\n[sources.a]\nassign = { x = [0, 2] }\n[sources.b]\npattern = "x.*"\n'
        'options = { startingOffsets = "latest" }\n[sinks.s]\nfrom = "a"\nconsole = true\n'
    )
    pipeline = read(tmp_path, text)
    first, second = pipeline.sources["a"], pipeline.sources["b"]
    assert isinstance(first, TopicSource) and isinstance(second, TopicSource)
    assert (first.strategy, json.loads(first.subscribed)) == ("assign", {"x": [0, 2]})
    assert (second.strategy, second.subscribed) == ("subscribePattern", "x.*")
    assert read_options(second, "b:1")["startingOffsets"] == "latest"


MISTAKES = [
    (
        'name = "revenue"',
        "nam = 1",
        "1: pipeline: 'name' is missing: what the pipeline is called, and the consumer group in which its lag is seen",
    ),
    (
        'name = "revenue"',
        'name = "a b"',
        "2: pipeline.name: 'a b' cannot be a name: it begins with a letter and goes on"
        " with letters, digits, '.', '_' and '-'",
    ),
    ("bootstrap =", "bootstap =", "3: pipeline.bootstap: there is no such key; did you mean 'bootstrap'?"),
    (
        'trigger = "5 seconds"',
        'trigger = "often"',
        "5: pipeline.trigger: 'often' is not a duration as Spark writes it: '10 seconds', '1 hour 30 minutes'",
    ),
    (
        'trigger = "5 seconds"',
        "trigger = 5",
        "5: pipeline.trigger: 5 is not a duration as Spark writes it: '10 seconds', '1 hour 30 minutes'",
    ),
    ("[spark]", "[sprak]", "7: sprak: there is no such table; did you mean 'spark'?"),
    (
        '"spark.ui.enabled"',
        '"ui.enabled"',
        "9: spark.\"ui.enabled\": Spark's settings begin with 'spark.'; did you mean 'spark.ui.enabled'?",
    ),
    (
        'topic = "orders"',
        'tpoic = "orders"',
        "11: sources.orders: one of topic, topics, pattern, assign or files is missing",
    ),
    (
        'topic = "orders"',
        'topic = "or ders"',
        "12: sources.orders.topic: a topic's name consists of letters, digits, '.', '_' and '-', not 'or ders'",
    ),
    ('topic = "orders"', "topic = 7", "12: sources.orders.topic: this must be a string, not a whole number"),
    (
        'topic = "orders"',
        'topic = "orders"\nfiles = "x"',
        "13: sources.orders.files: only one of topic, topics, pattern,"
        " assign or files can be given, not topic and files",
    ),
    (
        'format = "json"',
        'format = "jsn"',
        "13: sources.orders.format: 'jsn' is not one of json, csv, string, raw; did you mean 'json'?",
    ),
    ('format = "json"', 'format = "raw"', "14: sources.orders.schema: a source of the format raw has its own columns"),
    (
        'schema = "id STRING, amount DOUBLE, at TIMESTAMP"',
        "",
        "11: sources.orders: 'schema' is missing, which json needs:"
        " the columns, as in 'id STRING, amount DOUBLE, at TIMESTAMP'",
    ),
    (
        '["key", "offset"]',
        '["key", "ofset"]',
        "15: sources.orders.metadata: 'ofset' is not one of key, topic, partition,"
        " offset, timestamp, headers; did you mean 'offset'?",
    ),
    (
        'delay = "10 minutes"',
        'dely = "10 minutes"',
        "16: sources.orders.watermark.dely: there is no such key; did you mean 'delay'?",
    ),
    ("maxOffsetsPerTrigger = 1000", "maxOffsetPerTrigger = 1000", None),
    ("static = true", 'static = "yes"', "23: sources.customers.static: this must be true or false, not a string"),
    (
        "static = true",
        'malformed = "drop"',
        "23: sources.customers.malformed: this is for topic and topics and pattern and assign, not for files",
    ),
    ('"SELECT * FROM named"', "true", "26: transforms.late.sql: this must be a string, not true or false"),
    (
        '"SELECT * FROM named"',
        '"SELECT * FROM late"',
        "25: transforms.late: this needs itself: late -> late (each reads the next)",
    ),
    ("steps.py:join", "steps.py:jion", "29: transforms.named.python: "),
    (
        "steps.py:join",
        "steps.py",
        "29: transforms.named.python: 'steps.py' names no function: write FILE:FUNCTION, as in steps.py:enrich",
    ),
    ("steps.py:join", "step.py:join", "29: transforms.named.python: "),
    (
        'from = "late"',
        'from = "lat"',
        "32: sinks.results.from: there is no source or transform 'lat'; did you mean 'late'?",
    ),
    ('topic = "results"', "", "31: sinks.results: one of topic, parquet, delta, iceberg or console is missing"),
    ('key = "id"', 'keys = ["id"]', "34: sinks.results.keys: this is for parquet and delta and iceberg, not for topic"),
    ('key = "id"', 'mode = "upsert"', "34: sinks.results.mode: upsert is for lake tables: parquet, delta and iceberg"),
    (
        'partition_by = "id"',
        'mode = "complete"',
        "39: sinks.table.mode: a parquet table takes append (aggregations need a"
        " watermark then) or upsert, with the keys that tell rows apart",
    ),
    (
        'partition_by = "id"',
        'mode = "upsert"',
        "36: sinks.table: mode 'upsert' needs keys: the columns that tell one row of the table from another",
    ),
    ('partition_by = "id"', "options = { compresion = 1 }", None),
    (
        "[sinks.table]",
        '[sources.late]\ntopic = "x"\n[sinks.table]',
        "25: transforms.late: there is already a step 'late'",
    ),
    (
        '"SELECT * FROM named"',
        '"DROP TABLE named"',
        "26: transforms.late.sql: this is no query: it begins with 'DROP'; a transform is a SELECT",
    ),
    (
        'topic = "results"',
        'topic = "orders"',
        "33: sinks.results.topic: the source 'orders' reads this topic: the pipeline would go round without end",
    ),
    (
        "[transforms.late]",
        '[transforms."la te"]',
        "25: transforms.\"la te\": 'la te' cannot be the name of a table in SQL:"
        " it begins with a letter and goes on with letters, digits and '_', and is not 'spark'",
    ),
]


@pytest.mark.parametrize(("good", "bad", "message"), MISTAKES)
def test_a_mistake_is_told_with_line_and_key(tmp_path: Path, good: str, bad: str, message: str | None) -> None:
    assert good in GOOD
    found = mistakes(tmp_path, GOOD.replace(good, bad, 1))
    if message is not None:
        assert any(line.startswith(message) for line in found), found
    else:
        assert "did you mean" in found[0] and ".options: " in found[0]


def test_all_mistakes_are_listed_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = (
        GOOD.replace("bootstrap =", "bootstap =").replace('format = "json"', 'format = "jsn"').replace("late", "lte", 1)
    )
    text = text.replace('key = "id"', "key = 1")
    found = mistakes(tmp_path, text)
    assert [line.partition(":")[0] for line in found] == ["3", "13", "34"]


def test_a_circle_of_transforms_is_told(tmp_path: Path) -> None:
    text = GOOD.replace('python = "steps.py:join"', 'sql = "SELECT * FROM late, orders"')
    assert mistakes(tmp_path, text) == [
        "25: transforms.late: this needs itself: late -> named -> late (each reads the next)"
    ]


def test_an_unknown_input_of_a_function_is_told(tmp_path: Path) -> None:
    text = GOOD.replace("[sources.customers]", "[sources.clients]")
    (found,) = mistakes(tmp_path, text)
    assert found.startswith("28: transforms.named: there is no source or transform 'customers'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pipeline]\nname = \n", "2: no TOML: Invalid value"),
        ("[pipeline]\nname = 'a'\nname = 'b'\n", "3: no TOML: Cannot overwrite a value"),
        ('[pipeline]\nname = "a', "2: no TOML: "),
        ("name = 'a'\n", "1: name: there is no such table"),
        ("pipeline = 'a'\n", "1: pipeline: this must be a table: [pipeline]"),
        ("[pipeline]\nname = 'a'\n[sources]\nx = 1\n", "4: sources.x: this must be a table: [sources.NAME]"),
        (
            "[pipeline]\nname = 'a'\nuse = 'archve'\n",
            "3: pipeline.use: there is no ready pipeline 'archve'; did you mean",
        ),
        ("[pipeline]\nname = 'a'\nuse = 'archive'\n[sinks.s]\n", '4: sinks: a pipeline with use = "archive" has its'),
        ("[pipeline]\nname = 'a'\n[archive]\n", '3: archive: this is for a pipeline with use = "archive"'),
        ("[pipeline]\nname = 'a'\n[sources.x]\ntopic = 'x'\nassign = { x = [-1] }\n", "5: sources.x.assign: "),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert any(line.startswith(message) for line in mistakes(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table [pipeline] is missing, with at least a name"),
        ("[pipeline]\nname = 'a'\n", "there are no sources: a table [sources.NAME] says what is read"),
    ],
)
def test_a_file_without_steps_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PipelineFileError, match=r"revenue\.toml") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_values_can_be_replaced(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        GOOD,
        ("pipeline.trigger", "1 minute"),
        ("sources.orders.topic", "others"),
        ("sources.orders.options.kafka.client.id", "another"),
        ("spark.sql.ansi.enabled", "false"),
        ("sources.customers.static", "true"),
    )
    orders = pipeline.sources["orders"]
    assert isinstance(orders, TopicSource)
    assert (pipeline.trigger, orders.subscribed) == ("1 minute", "others")
    assert orders.options["kafka.client.id"] == "another"
    with pytest.raises(PipelineFileError, match=r"sources.orders.tpic: there is no such key; did you mean 'topic'"):
        read(tmp_path, GOOD, ("sources.orders.tpic", "x"))
    with pytest.raises(PipelineFileError, match="this is a value and no table"):
        read(tmp_path, GOOD, ("pipeline.name.x", "x"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("true", True), ('"a"', "a"), ("a b", "a b"), ('["x"]', ["x"]), ("", ""), ("1\nx = 2", "1\nx = 2")],
)
def test_a_replaced_value_is_toml_or_a_string(text: str, value: object) -> None:
    assert toml_value(text) == value


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.toml cannot be read: No such file"):
        read_pipeline(tmp_path / "none.toml")
    with pytest.raises(PipelineError, match=r"its name ends in \.toml or \.py"):
        read_pipeline(tmp_path / "none.yaml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_pipeline(tmp_path / "latin.toml")
    with pytest.raises(PipelineFileError, match=r"transforms.t.sql_file: .*none\.sql cannot be read: No such file"):
        read(tmp_path, GOOD.replace("[transforms.late]", '[transforms.t]\nsql_file = "none.sql"\n[transforms.late]'))
