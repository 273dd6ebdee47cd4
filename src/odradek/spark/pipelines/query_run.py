"""One sink's query while it runs: its reports are taken, its failure is judged, and it is stopped after its batch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from odradek.spark.pipelines.failures import Failure
from odradek.spark.pipelines.progress import BatchReport, QueryStatus, read_progress

STOP_LOOK_SECONDS = 0.02
STOP_SECONDS_MAX = 60.0  # after that a batch under way is given up; it is done again next time
RESTARTS_MAX = 10  # without a batch in between
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
NOTHING_SEEN = ("", -1, "")


@dataclass(slots=True)
class QueryRun:
    """A query, and how often it has been started."""

    status: QueryStatus
    start: Callable[[], StreamingQuery]
    query: StreamingQuery | None = None
    failures: int = 0  # since the last batch
    restart_at: float | None = None
    _seen: tuple[str, int, str] = NOTHING_SEEN  # the last report: run, batch, time

    def begin(self) -> Failure | None:
        """Start it, or start it again."""
        self.restart_at = None
        try:
            self.query = self.start()
        except (PySparkException, Py4JError) as error:
            return Failure.of(error)
        self.status.query_id = str(self.query.id)
        self.status.state = "running"
        return None

    def reports(self) -> Iterator[BatchReport]:
        """What Spark has reported since the last time."""
        if self.query is None:
            return
        for document in _newer(self.query, self._seen):
            self._seen = _mark(document)
            report = read_progress(document)
            self.status.take(report)
            if report.is_work:
                self.failures, self.status.error = 0, None
            yield report

    def ended(self) -> Failure | None:
        """Why it has failed, if it has; one that came to its end is done."""
        assert self.query is not None
        error = self.query.exception()
        if error is None:
            self.status.state = "done"
            return None
        return Failure.of(error)

    def restart_later(self, failure: Failure, now: float) -> float | None:
        """Plan another start after a passing fault, and return the pause; None if there were enough of them."""
        self.failures += 1
        if not failure.passing or self.failures > RESTARTS_MAX or self._seen == NOTHING_SEEN:
            return None  # a broker that was never reached is more likely a wrong address
        pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2.0 ** (self.failures - 1))
        self.restart_at = now + pause
        self.status.state = "restarting"
        self.status.restarts += 1
        return pause

    def finish(self, give_up: Event) -> list[BatchReport]:
        """Stop it when the batch under way is done, or at once if it is to be given up; what it reported meanwhile."""
        query = self.query
        if query is None or self.status.state != "running":
            return []
        told = list(self.reports())  # of batches before the one under way
        known = len(told)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            told += self.reports()
            if len(told) > known or give_up.wait(STOP_LOOK_SECONDS):
                break
        was_active = query.isActive
        query.stop()
        told += self.reports()
        failure = None if was_active else self.ended()  # it may have ended by itself meanwhile
        if failure is not None:
            self.status.state, self.status.error = "failed", failure.message
        elif was_active:
            self.status.state = "stopped"
        return told


def _mark(document: dict[str, Any]) -> tuple[str, int, str]:
    return document["runId"], document["batchId"], document["timestamp"]


def _newer(query: StreamingQuery, seen: tuple[str, int, str]) -> list[dict[str, Any]]:
    """The reports behind the one that was seen last. Those of Java: PySpark copies them field by field."""
    last = query._jsq.lastProgress()
    if last is None:
        return []
    newest = json.loads(last.json())
    if _mark(newest) == seen:
        return []
    found: list[dict[str, Any]] = []
    for progress in reversed(query._jsq.recentProgress()):
        document = json.loads(progress.json())
        if _mark(document) == seen:
            break
        found.append(document)
    return found[::-1]
