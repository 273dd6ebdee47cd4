"""`odradek pipeline status` and the lag of partitions, with a real broker and status files that a test has written."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from odradek.cli.pipeline_view import View
from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.spark.pipelines.lag import lags
from odradek.spark.pipelines.observation import Observation
from odradek.spark.pipelines.places import folder_of
from odradek.spark.pipelines.progress import BatchReport, QueryStatus
from odradek.spark.pipelines.status_file import PipelineStatus, process_start, query_fields, write_status
from tests.cli.commands import Cli, Process
from tests.process import wait_until
from tests.spark.conftest import Produce

BATCH = BatchReport(3, "2026-01-31T12:00:00.000Z", 120, 2.0, 7, 4096, is_work=True)


@pytest.fixture
def cli(
    bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Cli:
    """Commands in this process, with a home of their own."""
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("ODRADEK_BROKER", bootstrap)
    return Cli(capfdbinary, monkeypatch, bootstrap)


def leave_status(
    name: str, bootstrap: str, positions: dict[TopicPartition, int], state: str = "running", alive: bool = True
) -> None:
    """Write what a runner would."""
    query = QueryStatus("results", state="running", restarts=1)
    query.take(BATCH)
    query.positions = positions
    started = process_start(os.getpid()) or 0
    status = PipelineStatus(
        name, "x.toml", bootstrap, "follow", "local[2]", os.getpid(), started + (not alive), 0, 60_000, state
    )
    status.queries = [query_fields(query), query_fields(QueryStatus("idle"))]
    folder_of(name).mkdir(parents=True)
    write_status(folder_of(name), status)


def test_lag_is_told_in_records_and_seconds(client: Client, produce: Produce, new_name: Callable[[], str]) -> None:
    topic = new_name()
    now = int(time.time() * 1000)
    ages = (300, 200, 100, 50)
    produce(topic, [NewRecord(b"v", timestamp=now - age * 1000) for age in ages], partition=0, partitions=3)
    produce(topic, ["v"], partition=1)
    first, second, third = (TopicPartition(topic, index) for index in range(3))
    gone = TopicPartition(new_name(), 0)
    found = client.call(lags(client._inner, {first: 1, second: 1, third: 0, gone: 5, TopicPartition(topic, 9): 0}))
    assert (found[first].end, found[first].records) == (4, 3)
    assert found[first].seconds == pytest.approx(200, abs=30)
    assert (found[second].records, found[second].seconds) == (0, 0.0)
    assert (found[third].records, found[third].seconds) == (0, 0.0)
    assert found[gone].end is found[gone].records is found[gone].seconds is None
    assert found[TopicPartition(topic, 9)].end is None
    client.call(client.admin.inner.delete_records({first: 2}))
    found = client.call(lags(client._inner, {first: 1}))
    assert found[first].records == 2, "what is deleted cannot be read any more"
    assert found[first].seconds == pytest.approx(100, abs=30)


def test_offsets_are_committed_to_be_seen(client: Client, bootstrap: str, new_name: Callable[[], str]) -> None:
    group, topic = new_name(), new_name()
    client.admin.create_topic(topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    observation = Observation(group)
    observation.commit({"127.0.0.1:1": {first: 1}, bootstrap: {first: 3, second: 0}})

    def committed() -> dict[TopicPartition, int]:
        return {key: info.offset for key, info in client.admin.group_offsets(group).items()}

    wait_until(lambda: committed() == {first: 3, second: 0}, 20, "the commit")
    for offset in (4, 5, 6):
        observation.commit({bootstrap: {first: offset, second: 0}})
    observation.close()
    assert committed() == {first: 6, second: 0}, "the last one is committed before the end"


def test_a_pipeline_that_runs_is_shown_with_its_lag(
    cli: Cli, bootstrap: str, produce: Produce, new_name: Callable[[], str]
) -> None:
    name, topic = new_name(), new_name()
    produce(topic, ["a", "b", "c"])
    leave_status(name, bootstrap, {TopicPartition(topic, 0): 1})
    lines = cli.ok("pipeline", "status").lines
    assert lines[0].startswith(
        f"pipeline {name}: running as process {os.getpid()} since 1970-01-01T00:00:00Z, follow, lag 2"
    )
    assert lines[1] == (
        "results state=running (1 restart) batch=3 at=2026-01-31T12:00:00.000Z rows=120 rows/s=60 total=120"
        " state_rows=7 state_size=4.0 KiB"
    )
    assert lines[2].startswith("idle state=starting batch=- ")
    assert lines[3].startswith(f"{topic}-0 position=1 end=3 lag=2 seconds=")


def test_what_nobody_can_tell_is_not_told(cli: Cli, new_name: Callable[[], str]) -> None:
    name = new_name()
    leave_status(name, "127.0.0.1:1", {TopicPartition("orders", 0): 1}, alive=False)
    ran = cli.ok("pipeline", "status", name)
    assert ran.lines[0] == f"pipeline {name}: killed since 1970-01-01T00:01:00Z, follow"
    assert f"{name}: its lag is not known: no broker answers at 127.0.0.1:1" in ran.err
    told = json.loads(cli.ok("pipeline", "status", name, "--json").out)
    assert (told["running"], told["state"], told["lag"]) == (False, "killed", None)
    assert "no broker answers" in told["lag_problem"]
    assert f"did you mean '{name}'?" in cli.fails("pipeline", "status", f"{name}x")


def test_a_status_can_be_followed(cli: Cli, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = new_name()
    leave_status(name, bootstrap, {})
    with Process(["pipeline", "status", name, "--json", "--follow"], bootstrap) as process:
        process.read_until(b"}\n{")
        process.interrupt()
        assert process.end().status == 130


def test_progress_is_drawn_on_a_terminal() -> None:
    query = QueryStatus("results", lag=5)
    with View("revenue", draws=True) as view:
        drawn = io.StringIO()
        console = Console(file=drawn, width=100)
        console.print(view._frame())
        assert "revenue" in drawn.getvalue() and "starting" in drawn.getvalue()
        query.take(BATCH)
        view.on_batch(query, BATCH)
        view.on_event("results: [lost] its broker")
        console.print(view._frame())
    assert "batch 3" in drawn.getvalue()
    assert "120 rows" in drawn.getvalue() and "60 rows/s" in drawn.getvalue()
    assert "lag 5, state 7 rows 4.0 KiB" in drawn.getvalue()
