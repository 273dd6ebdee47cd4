"""Runs a pipeline: starts its queries, watches them, restarts those that met a passing fault, stops them in good order.

One thread looks at all queries several times a second. What it sees goes to the one who called (`Watcher`), to the
status file and, as offsets, to the broker.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from odradek.model import TopicPartition
from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.failures import Failure
from odradek.spark.pipelines.frames import Frames, isolated
from odradek.spark.pipelines.model import TopicSource
from odradek.spark.pipelines.observation import Observation
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.places import folder_of
from odradek.spark.pipelines.progress import BatchReport, QueryStatus, least
from odradek.spark.pipelines.queries import ShowRows, start_query
from odradek.spark.pipelines.query_run import RESTARTS_MAX, QueryRun
from odradek.spark.pipelines.status_file import PipelineStatus, process_start, query_fields, read_status, write_status

LOOK_SECONDS = 0.25
STATUS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Watcher:
    """Those who are told: of each batch of a sink, and of what happens to it."""

    on_batch: Callable[[QueryStatus, BatchReport], None]
    on_event: Callable[[str], None]
    show_rows: ShowRows


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    queries: list[QueryStatus]
    seconds: float = 0.0
    stopped: bool = False  # before all was processed
    failure: str | None = None
    failed_sink: str = ""


class Runner:
    """One run of a pipeline. `stop` ends it after the batches under way, `give_up` without waiting for them."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, file: str, *, follow: bool, watcher: Watcher) -> None:
        self.stop = Event()
        self.give_up = Event()
        self._spark = spark
        self._pipeline = pipeline
        self._file = file
        self._follow = follow
        self._watcher = watcher
        self._runs: list[QueryRun] = []

    def run(self) -> Outcome:
        """Run until all is processed (or, following, until it is told to stop), or until a query fails for good."""
        started = time.monotonic()
        with self._alone() as folder:
            self._runs = self._prepared()
            status = self._first_status()
            outcome = Outcome([run.status for run in self._runs])
            observation = Observation(self._pipeline.name)
            try:
                self._watch(status, folder, observation, outcome)
                status.state = "failed" if outcome.failure else "stopped" if outcome.stopped else "done"
            except BaseException as error:
                status.state, status.error = "failed", Failure.of(error).message
                raise
            finally:
                for run in self._runs:
                    self._tell(run, run.finish(self.give_up))
                self._observe(observation)
                observation.close()
                self._write(folder, status)
        outcome.seconds = time.monotonic() - started
        return outcome

    @contextmanager
    def _alone(self) -> Iterator[Path]:
        """Keep a second runner away from the same checkpoints."""
        folder = folder_of(self._pipeline.name)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = read_status(folder)
                who = f", as process {other.pid}" if other is not None and other.is_alive else ""
                raise PipelineError(
                    f"the pipeline {self._pipeline.name} is running already{who}: stop that one first, or give this one"
                    " another name"
                ) from None
            yield folder

    def _prepared(self) -> list[QueryRun]:
        frames = Frames(isolated(self._spark, self._pipeline), self._pipeline)
        frames.check(self._file)
        return [
            QueryRun(
                QueryStatus(sink.name),
                partial(
                    start_query,
                    self._pipeline,
                    sink,
                    frames.by_name[sink.source],
                    follow=self._follow,
                    show_rows=self._watcher.show_rows,
                ),
            )
            for sink in self._pipeline.sinks.values()
        ]

    def _watch(self, status: PipelineStatus, folder: Path, observation: Observation, outcome: Outcome) -> None:
        for run in self._runs:
            self._begin(run, outcome)
        written = 0.0
        while True:
            moved = [self._look(run, outcome) for run in self._runs]
            if any(moved):
                self._observe(observation)
            if any(moved) or time.monotonic() - written >= STATUS_SECONDS:
                self._write(folder, status)
                written = time.monotonic()
            if outcome.failure is not None or all(run.status.state == "done" for run in self._runs):
                status.error = outcome.failure
                return
            if self.stop.wait(LOOK_SECONDS):
                outcome.stopped = True
                return

    def _begin(self, run: QueryRun, outcome: Outcome) -> None:
        failure = run.begin()
        if failure is not None:
            self._failed(run, failure, outcome)

    def _look(self, run: QueryRun, outcome: Outcome) -> bool:
        """See what a query has done; whether anything is new."""
        if run.restart_at is not None:
            if time.monotonic() < run.restart_at:
                return False
            self._begin(run, outcome)
            return True
        if run.query is None or run.status.state != "running":
            return False
        is_active = run.query.isActive  # asked first: so all reports are there when it is not
        moved = self._tell(run, run.reports())
        if is_active:
            return moved
        failure = run.ended()
        if failure is not None:
            self._failed(run, failure, outcome)
        return True

    def _tell(self, run: QueryRun, reports: Iterable[BatchReport]) -> bool:
        """Pass reports on; whether there were any."""
        moved = False
        for report in reports:
            moved = True
            if report.is_work:
                self._watcher.on_batch(run.status, report)
        return moved

    def _failed(self, run: QueryRun, failure: Failure, outcome: Outcome) -> None:
        run.status.error = failure.message
        pause = run.restart_later(failure, time.monotonic()) if self._follow else None
        if pause is None:
            run.status.state = "failed"
            outcome.failure, outcome.failed_sink = failure.message, run.status.sink
            return
        self._watcher.on_event(
            f"{run.status.sink}: {failure.message}; trying again in {pause:.0f} s ({run.failures} of {RESTARTS_MAX})"
        )

    # What others are told

    def _first_status(self) -> PipelineStatus:
        now = time.time_ns() // 1_000_000
        return PipelineStatus(
            name=self._pipeline.name,
            file=self._file,
            bootstrap=self._pipeline.bootstrap,
            mode="follow" if self._follow else "once",
            master=str(self._spark.sparkContext.master),
            pid=os.getpid(),
            process_started=process_start(os.getpid()) or 0,
            started_ms=now,
            updated_ms=now,
        )

    def _write(self, folder: Path, status: PipelineStatus) -> None:
        status.updated_ms = time.time_ns() // 1_000_000
        status.queries = [query_fields(run.status) for run in self._runs]
        status.brokers = {
            topic: bootstrap
            for bootstrap, positions in self._positions().items()
            for topic in {key.topic for key in positions}
            if bootstrap != status.bootstrap
        }
        write_status(folder, status)

    def _observe(self, observation: Observation) -> None:
        observation.commit(self._positions())

    def _positions(self) -> dict[str, dict[TopicPartition, int]]:
        """How far the slowest query has come, by broker."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for key, offset in least(run.status.positions for run in self._runs).items():
            found.setdefault(self._bootstrap_of(key.topic), {})[key] = offset
        return found

    def _bootstrap_of(self, topic: str) -> str:
        """The broker from which a topic is read."""
        for source in self._pipeline.sources.values():
            if isinstance(source, TopicSource) and source.bootstrap is not None and source.reads(topic):
                return source.bootstrap
        return self._pipeline.bootstrap
