"""The status of a pipeline as its runner leaves it for others to read: one JSON file, replaced as a whole.

A runner that was killed cannot say so: whether it runs is asked of the system, by its process id and start time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.model import TopicPartition
from odradek.spark.offsets import positions_from_json, positions_to_json
from odradek.spark.pipelines.errors import PipelineError
from odradek.spark.pipelines.progress import QueryStatus

FILE_NAME = "status.json"
FORMAT = 1


@dataclass(slots=True)
class PipelineStatus:
    """What a runner says of itself."""

    name: str
    file: str
    bootstrap: str
    mode: str  # once or follow
    master: str
    pid: int
    process_started: int  # by the system's count, so that another process with the same number is not taken for it
    started_ms: int
    updated_ms: int
    state: str = "running"  # running, done, stopped or failed
    error: str | None = None
    queries: list[dict[str, Any]] = field(default_factory=list)
    brokers: dict[str, str] = field(default_factory=dict)  # of topics that are read from another than `bootstrap`

    @property
    def is_alive(self) -> bool:
        """Whether the process that wrote it is still there."""
        return self.state == "running" and process_start(self.pid) == self.process_started

    @property
    def told_state(self) -> str:
        """The state, in which a runner that is gone without a word is `killed`."""
        return "killed" if self.state == "running" and not self.is_alive else self.state

    def positions(self) -> dict[TopicPartition, int]:
        """How far the slowest of the queries has come, by partition."""
        found: dict[TopicPartition, int] = {}
        for query in self.queries:
            for key, offset in positions_from_json(query.get("positions", {})).items():
                found[key] = min(offset, found.get(key, offset))
        return found


def query_fields(query: QueryStatus) -> dict[str, Any]:
    """A query as it stands in the file."""
    last = query.last
    return {
        "sink": query.sink,
        "state": query.state,
        "query_id": query.query_id,
        "batches": query.batches,
        "rows": query.rows,
        "restarts": query.restarts,
        "error": query.error,
        "lag": query.lag,
        "positions": positions_to_json(query.positions),
        "last_batch": None
        if last is None
        else {
            "batch": last.batch,
            "timestamp": last.timestamp,
            "rows": last.rows,
            "seconds": last.seconds,
            "rows_per_second": round(last.rows_per_second, 1),
            "state_rows": last.state_rows,
            "state_bytes": last.state_bytes,
        },
    }


def write_status(folder: Path, status: PipelineStatus) -> None:
    """Replace the file as a whole, so that nobody reads half of it."""
    document = {"format": FORMAT, **{name: getattr(status, name) for name in status.__slots__}}
    new = folder / f".{FILE_NAME}.{os.getpid()}"
    new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    new.replace(folder / FILE_NAME)


def read_status(folder: Path) -> PipelineStatus | None:
    """What the last runner of a pipeline said; None if there was none."""
    file = folder / FILE_NAME
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PipelineError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise PipelineError(f"{file} is damaged: delete it, the next run writes it anew") from None
    return _from_document(file, document)


def _from_document(file: Path, document: Any) -> PipelineStatus:
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise PipelineError(f"{file} was written by another version of Odradek: run the pipeline, or delete the file")
    try:
        return PipelineStatus(**{name: value for name, value in document.items() if name != "format"})
    except TypeError:
        raise PipelineError(f"{file} is damaged: delete it, the next run writes it anew") from None


def process_start(pid: int) -> int | None:
    """When a process was started, in the system's ticks; None if there is no such process (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _without_proc(pid)
    fields = text.rpartition(")")[2].split()  # the name of the program, before, may have spaces
    return None if fields[0] == "Z" else int(fields[19])


def _without_proc(pid: int) -> int | None:
    """Where there is no /proc (macOS), the number of the process must do."""
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0
