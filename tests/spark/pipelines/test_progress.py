"""What is made of Spark's reports, its errors and the status file. No Spark is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from odradek.client.errors import BrokerUnavailableError
from odradek.model import TopicPartition
from odradek.spark.pipelines import PipelineError
from odradek.spark.pipelines.failures import Failure
from odradek.spark.pipelines.progress import QueryStatus, least, positions_of, read_progress
from odradek.spark.pipelines.status_file import (
    PipelineStatus,
    process_start,
    query_fields,
    read_status,
    write_status,
)

ORDERS = TopicPartition("orders", 0)

REPORT = {
    "id": "a", "runId": "b", "name": "revenue.results", "timestamp": "2026-01-31T12:00:00.000Z", "batchId": 7,
    "numInputRows": 30, "durationMs": {"addBatch": 400, "triggerExecution": 500},
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 1000}, {"numRowsTotal": 1, "memoryUsedBytes": 24}],
    "sources": [
        {
            "description": "odradek", "numInputRows": 20,
            "endOffset": {"orders": {"0": 120}, "$ids": {"orders": "x"}, "$from": {"orders": {"0": 1}}},
            "latestOffset": {"orders": {"0": 150, "1": 5}, "$ids": {"orders": "x"}},
        },
        {"description": "FileStreamSource", "numInputRows": 10, "endOffset": {"logOffset": 3}, "latestOffset": None},
        {"description": "odradek", "numInputRows": 0, "endOffset": {"orders": {"0": 110}}},
    ],
    "sink": {"numOutputRows": -1},
}  # fmt: skip


def test_a_report_is_read() -> None:
    report = read_progress(REPORT)
    assert (report.batch, report.rows, report.seconds, report.rows_per_second) == (7, 30, 0.5, 60.0)
    assert (report.state_rows, report.state_bytes, report.is_work) == (4, 1024, True)
    assert report.positions == {ORDERS: 110}, "the slower of two readers of the same partition"
    assert report.lag == 40, "a partition that has no position yet is not counted"


def test_a_report_without_work_moves_nothing() -> None:
    idle = read_progress({**REPORT, "durationMs": {"triggerExecution": 3, "latestOffset": 2}, "batchId": 8})
    status = QueryStatus("results")
    status.take(read_progress(REPORT))
    status.take(idle)
    assert (status.batches, status.rows, status.lag) == (1, 30, 40)
    assert status.last is not None and status.last.batch == 7


@pytest.mark.parametrize("offset", [None, "text", 3, {"logOffset": 5}, {"0": 17}, {}])
def test_other_sources_have_no_positions(offset: object) -> None:
    assert positions_of(offset) == {}


def test_the_slowest_counts() -> None:
    other = TopicPartition("orders", 1)
    assert least([{ORDERS: 5, other: 1}, {ORDERS: 3}, {}]) == {ORDERS: 3, other: 1}


# Spark's errors


SOURCE_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "client.py", line 1, in call
odradek.client.errors.BrokerUnavailableError: the broker at 127.0.0.1:9092 cannot be reached: refused. Is it running?

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "connection.py", line 84, in _started
    raise UnreachableError(
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST"""

FUNCTION_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 5.0 failed 1 times, most recent failure: Lost task 0.0 in stage 5.0 (TID 9): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "steps.py", line 3, in double
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "message", "passing"),
    [
        (
            SOURCE_FAILED.replace("{raised}", "odradek.spark.errors.UnreachableError: no Kafka broker answered"),
            "no Kafka broker answered",
            True,
        ),
        (
            SOURCE_FAILED.replace("{raised}", "odradek.spark.errors.DataLossError: topic orders is gone").replace(
                "BrokerUnavailableError", "UnknownTopicError"
            ),
            "topic orders is gone",
            False,
        ),
        ("odradek.client.errors.RequestError: committing: not there (COORDINATOR_NOT_AVAILABLE)", None, True),
        ("odradek.client.errors.RequestError: reading: not there (UNKNOWN_TOPIC_OR_PARTITION)", None, False),
        ("odradek.client.errors.RequestError: reading: it is so (TOPIC_AUTHORIZATION_FAILED)", None, False),
        (FUNCTION_FAILED, "ZeroDivisionError: division by zero", False),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. Did you mean one of the"
            " following? [`at`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]\n+- SubqueryAlias orders",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. Did you mean one of the"
            " following? [`at`] (line 1, position 7 of the query)",
            False,
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\n...",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. (line 1, pos 9)",
            False,
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:"
            " Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1"
            " executor driver): org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING] Malformed records."
            " SQLSTATE: 22023\n\tat org.apache",
            "[MALFORMED_RECORD_IN_PARSING] Malformed records.",
            False,
        ),
        ("java.lang.IllegalArgumentException: requirement failed: no", "requirement failed: no", False),
        (
            "An error occurred while calling o1.start.\n: org.apache.spark.SparkException: [X] no.\n\tat",
            "[X] no.",
            False,
        ),
        ("", "Spark gives no reason", False),
    ],
)
def test_an_error_of_spark_is_told_in_one_line(text: str, message: str | None, passing: bool) -> None:
    failure = Failure.of(RuntimeError(text))
    assert failure.passing is passing
    assert "\n" not in failure.message
    if message is not None:
        assert failure.message == message


def test_an_error_of_our_own_is_told_as_it_is() -> None:
    failure = Failure.of(BrokerUnavailableError("127.0.0.1:1", "refused"))
    assert failure.passing and failure.message.startswith("the broker at 127.0.0.1:1 cannot be reached")
    assert len(Failure.of(RuntimeError("x" * 5000)).message) < 1000


# The status file


def status_of(pid: int, process_started: int, **fields: object) -> PipelineStatus:
    made = PipelineStatus("revenue", "revenue.toml", "b:1", "once", "local[2]", pid, process_started, 1, 2)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_status_is_written_and_read(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    query = QueryStatus("results")
    query.take(read_progress(REPORT))
    other = QueryStatus("table")
    other.take(read_progress({**REPORT, "sources": REPORT["sources"][:1]}))  # type: ignore[index]
    started = process_start(os.getpid())
    assert started is not None
    written = status_of(os.getpid(), started, queries=[query_fields(query), query_fields(other)])
    write_status(tmp_path, written)
    assert read_status(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert written.positions() == {ORDERS: 110}
    assert written.is_alive and written.told_state == "running"


def test_a_runner_that_is_gone_does_not_run() -> None:
    started = process_start(os.getpid())
    assert started is not None
    another = status_of(os.getpid(), started + 1)
    assert not another.is_alive and another.told_state == "killed", "the number of the process belongs to another now"
    assert status_of(os.getpid(), started, state="done").told_state == "done"
    assert process_start(2**22 + 1) is None


def test_a_damaged_status_is_named(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    for text, message in (
        ("{", "is damaged: delete it"),
        ("[]", "written by another version"),
        (json.dumps({"format": 2}), "written by another version"),
        (json.dumps({"format": 1, "nonsense": 1}), "is damaged: delete it"),
    ):
        file.write_text(text)
        with pytest.raises(PipelineError, match=message):
            read_status(tmp_path)
