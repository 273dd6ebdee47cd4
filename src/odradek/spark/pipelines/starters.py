"""Files to begin a pipeline with: one that explains every table, and one for each ready pipeline. Pure."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Mapping

from odradek.spark.pipelines import ready
from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.pipeline import Pipeline

_WIDTH = 100
_SAMPLES = {
    "text": '"..."', "texts": '["..."]', "topic": '"results"', "topics": '["orders"]', "path": '"lake/orders"',
    "duration": '"1 minute"', "whole": "1", "number": "1.0", "flag": "true", "table": "{}",
    "partitions": "{ orders = [0, 1] }",
}  # fmt: skip

_OWN = """\
# The pipeline {name}: 'odradek pipeline check FILE' looks it over, 'odradek pipeline run FILE' runs it.

[pipeline]
name = "{name}"                         # also the consumer group in which its lag is seen
# bootstrap = "127.0.0.1:9092"          # the broker; ODRADEK_BROKER or this one if there is none
# checkpoint = "checkpoints"            # how far it has come; below ~/.odradek/pipelines if there is none
# trigger = "5 seconds"                 # how often --follow looks for new records

[spark]                                 # any setting of Spark
"spark.sql.shuffle.partitions" = 4

# Sources are streams of rows: topics, or files of a folder. Each is a table for the transforms.
[sources.orders]
topic = "orders"                        # or topics = [...], pattern = "...", assign = {{ orders = [0] }}, files = "..."
format = "json"                         # or csv, string, raw (the columns of a record: key, value, topic, ...)
schema = "customer STRING, amount DOUBLE, at TIMESTAMP"
malformed = "drop"                      # or null (a row of nulls), fail
watermark = {{ column = "at", delay = "10 minutes" }}
options = {{ startingOffsets = "earliest", maxOffsetsPerTrigger = 100000 }}

# Transforms are queries, or functions of DataFrames: python = "steps.py:enrich".
[transforms.totals]
sql = \"\"\"
SELECT window(at, '1 minute').start AS minute, customer, sum(amount) AS amount
FROM orders
GROUP BY window(at, '1 minute'), customer
\"\"\"

# Each sink is a streaming query: topic, parquet, delta, iceberg or console.
[sinks.results]
from = "totals"
topic = "{name}-results"
key = "customer"
mode = "update"                         # each change of a total; append waits until its minute is complete

# [sinks.table]
# from = "totals"
# parquet = "lake/totals"
"""


def starting_file(name: str, use: str | None = None) -> str:
    """A commented TOML file, to be changed by whoever needs the pipeline."""
    if use is None:
        return _OWN.format(name=name)
    lines = [
        f"# {ready.summary_of(use)}",
        "# 'odradek pipeline check FILE' looks it over, 'odradek pipeline run FILE' runs it.",
        "",
        "[pipeline]",
        f'name = "{name}"',
        f'use = "{use}"',
        '# bootstrap = "127.0.0.1:9092"   # the broker; ODRADEK_BROKER or this one if there is none',
        "",
        f"[{use}]",
        *_parameter_lines(ready.parameters_of(use), _needed(use)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _needed(use: str) -> set[str]:
    """The parameters without which nothing can be built: the required ones, and what is missed when these are there."""
    parameters = ready.parameters_of(use)
    needed = {name for name, parameter in parameters.items() if parameter.required}
    while True:
        given = {name: tomllib.loads(f"value = {_value(parameters[name])}")["value"] for name in needed}
        found, problems = ready.check(use, (use,), given)
        problems = problems or ready.build(Pipeline("checked"), use, found)
        missed = {str(problem.path[-1]) for problem in problems} & parameters.keys() - needed
        if not missed:
            return needed
        needed |= missed


def _parameter_lines(parameters: Mapping[str, Parameter], needed: set[str]) -> list[str]:
    lines = []
    for name, parameter in parameters.items():
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        text = f"{parameter.summary}{choices}"
        lines += [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
        lines += [f"{'' if name in needed else '# '}{name} = {_value(parameter)}", ""]
    return lines


def _value(parameter: Parameter) -> str:
    """A default as TOML has it, or an example."""
    if parameter.example is not None:
        return parameter.example
    default = parameter.default
    if default is None or default in ((), {}) or isinstance(default, Mapping):
        return f'"{parameter.choices[0]}"' if parameter.choices else _SAMPLES[parameter.kind]
    return json.dumps(list(default) if isinstance(default, tuple) else default)
