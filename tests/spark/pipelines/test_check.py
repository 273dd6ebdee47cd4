"""`odradek pipeline check`: what Spark resolves, all that it refuses, and that nothing is touched."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Cli

PIPELINE = """\
[pipeline]
name = "checked"
bootstrap = "{address}"

[sources.orders]
topic = "orders"
schema = "customer STRING, amount DOUBLE, at TIMESTAMP"
metadata = ["key", "timestamp"]
watermark = {{ column = "at", delay = "1 minute" }}

[sources.lines]
topic = "lines"
format = "string"

[sources.customers]
files = "customers.csv"
format = "csv"
schema = "customer STRING, name STRING"
static = true

[transforms.totals]
sql = '''
SELECT window(at, '1 minute').start AS minute, name, sum(amount) AS amount
FROM named GROUP BY window(at, '1 minute'), name
'''

[transforms.named]
python = "steps.py:named"

[transforms.unused]
sql = "SELECT value FROM lines"

[sinks.results]
from = "totals"
topic = "results"
key = "name"

[sinks.shown]
from = "lines"
console = true
"""

STEPS = """\
def named(orders, customers):
    return orders.join(customers, "customer")

def nothing(orders):
    orders.select("customer")

def broken(orders):
    return 1 / 0
"""


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """A place where a broker could listen, at which nobody must knock."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write(tmp_path: Path, text: str, door: socket.socket) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "customers.csv").write_text("c1,Ada\n")
    (tmp_path / "checked.toml").write_text(text.format(address=f"127.0.0.1:{door.getsockname()[1]}"))


def test_a_check_shows_columns_and_plans_and_touches_nothing(
    spark_cli: Cli, tmp_path: Path, door: socket.socket
) -> None:
    write(tmp_path, PIPELINE, door)
    before = files_below(tmp_path)
    ran = spark_cli.ok("pipeline", "check", "checked.toml")
    found = json.loads(spark_cli.ok("pipeline", "check", "checked.toml", "--json").out)
    assert files_below(tmp_path) == before
    with pytest.raises(BlockingIOError):
        door.accept()

    lines = ran.lines
    start = lines.index("transform totals from named")
    assert lines[start : start + 4] == [
        "transform totals from named",
        "  minute  timestamp",
        "  name    string",
        "  amount  double",
    ]
    assert "transform named from orders, customers" in lines
    assert "sink results from totals, append" in lines
    assert lines[-1] == "checked: 3 sources, 3 transforms, 2 sinks: good"
    assert "transforms.unused: no sink needs it" in ran.err

    steps = {step["name"]: step for step in found["steps"]}
    assert [column["name"] for column in steps["orders"]["columns"]] == [
        "customer",
        "amount",
        "at",
        "_key",
        "_timestamp",
    ]
    assert steps["lines"]["columns"] == [{"name": "value", "type": "string"}]
    assert [name for name, step in steps.items() if not step["used"]] == ["unused"]
    results, shown = found["sinks"]
    assert [column["name"] for column in results["columns"]] == ["key", "value"]
    assert "StateStoreSave" in results["plan"] and "odradek" in shown["plan"]


MISTAKES = """\
[transforms.unknown_column]
sql = "SELECT amont FROM orders"
[transforms.after]
sql = "SELECT * FROM unknown_column"
[transforms.unknown_table]
sql = "SELECT * FROM ordrs"
[transforms.no_sql]
sql = "SELECT * FORM orders"
[transforms.no_return]
python = "steps.py:nothing"
[transforms.raises]
python = "steps.py:broken"
[transforms.no_watermark]
sql = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
[transforms.late]
sql = "SELECT * FROM orders"
watermark = {{ column = "ad", delay = "1 minute" }}
[sources.untyped]
topic = "x"
schema = "id STRIN"
[sinks.a]
from = "no_watermark"
topic = "a"
[sinks.b]
from = "orders"
topic = "b"
key = "nobody"
[sinks.c]
from = "orders"
topic = "c"
format = "raw"
[sinks.d]
from = "customers"
topic = "d"
[sinks.e]
from = "orders"
topic = "e"
format = "string"
"""


def test_all_that_spark_refuses_is_told_with_its_step(spark_cli: Cli, tmp_path: Path, door: socket.socket) -> None:
    write(tmp_path, f"{PIPELINE}\n{MISTAKES}", door)
    ran = spark_cli("pipeline", "check", "checked.toml")
    assert ran.status == 1
    told = {}
    for line in ran.err.splitlines()[:-1]:
        place, key, message = line.split(": ", 2)
        number = int(place.removeprefix("checked.toml:"))
        told[key] = message
        header = (tmp_path / "checked.toml").read_text().splitlines()[number - 1]
        assert header == f"[{key}]", line
    expected = {
        "sources.untyped": "STRIN",
        "transforms.unknown_column": "Did you mean one of the following? [`amount`",
        "transforms.unknown_table": "`ordrs` cannot be found",
        "transforms.no_sql": "[PARSE_SYNTAX_ERROR] Syntax error at or near 'orders'",
        "transforms.no_return": "it returned None where a DataFrame is needed: is a return missing?",
        "transforms.raises": "ZeroDivisionError: division by zero",
        "transforms.late": "`ad` cannot be resolved",
        "sinks.a": "not supported for streaming aggregations without watermark",
        "sinks.b": "`nobody` cannot be resolved",
        "sinks.c": "cannot be written to a topic",
        "sinks.d": "'customers' is no stream: all that it reads is static",
        "sinks.e": "the format string writes the column 'value', and 'orders' has no such column",
    }
    assert told.keys() == expected.keys(), "and nothing of what only reads from a step that is wrong"
    for key, words in expected.items():
        assert words in told[key], told[key]
    assert ran.err.splitlines()[-1] == f"odradek: checked.toml has {len(expected)} mistakes"
    assert "The pipeline has orders" in told["transforms.unknown_table"]


def test_a_new_file_is_good(spark_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text(spark_cli.ok("pipeline", "new", "mine").out)
    ran = spark_cli.ok("pipeline", "check", "new.toml", "--json")
    assert json.loads(ran.out)["pipeline"] == "mine"
