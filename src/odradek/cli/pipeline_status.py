"""`odradek pipeline status`: what the runners have left in their status files, and the lag as the brokers see it."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odradek.cli.connect import connected_client, nearest
from odradek.cli.listing import counted, in_bytes, show, tell
from odradek.cli.pipeline import complaint
from odradek.cli.terminal import CommandError, escape, is_terminal
from odradek.client.address import parse_addresses
from odradek.client.errors import ClientError
from odradek.model import TopicPartition
from odradek.spark.pipelines import PipelineFileError, read_pipeline
from odradek.spark.pipelines.lag import PartitionLag, lags
from odradek.spark.pipelines.places import folder_of, home
from odradek.spark.pipelines.status_file import PipelineStatus, read_status

FOLLOW_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"

Lags = dict[TopicPartition, PartitionLag]


def status(args: argparse.Namespace) -> int:
    """Show one pipeline or all, once or again and again."""
    while True:
        found = _wanted(args.pipeline)
        if args.follow and is_terminal() and not args.json:
            print(_CLEAR, end="")
        for one in found:
            lag, problem = asyncio.run(_lags(one))
            if args.json:
                print(json.dumps(_json(one, lag, problem)), flush=True)
            else:
                _print(one, lag, problem)
        if not args.follow:
            return 0
        time.sleep(FOLLOW_SECONDS)


def _wanted(given: str | None) -> list[PipelineStatus]:
    names = _known()
    if given is None:
        if not names and is_terminal():
            tell("no pipeline has run here yet: 'odradek pipeline run FILE' runs one")
        return [found for name in names if (found := read_status(folder_of(name))) is not None]
    name = _name_of(given)
    found = read_status(folder_of(name))
    if found is None:
        hint = nearest(name, names) or f"'odradek pipeline run' keeps its status in {folder_of(name)}"
        raise CommandError(f"the pipeline {name} has not run here: {hint}")
    return [found]


def _known() -> list[str]:
    folder = home()
    return sorted(path.parent.name for path in folder.glob("*/status.json")) if folder.is_dir() else []


def _name_of(given: str) -> str:
    if not given.endswith((".toml", ".py")):
        return given
    try:
        return read_pipeline(Path(given)).name
    except PipelineFileError as error:
        raise complaint(error) from None


async def _lags(status: PipelineStatus) -> tuple[Lags, str | None]:
    """What the brokers say; or else why they say nothing."""
    by_broker: dict[str, dict[TopicPartition, int]] = {status.bootstrap: {}}
    for key, position in status.positions().items():
        by_broker.setdefault(status.brokers.get(key.topic, status.bootstrap), {})[key] = position
    found: Lags = {}
    for bootstrap, positions in by_broker.items():
        try:
            found |= await _asked(bootstrap, status.name, positions)
        except (CommandError, ClientError) as error:
            return found, str(error)
    return found, None


async def _asked(bootstrap: str, group: str, positions: dict[TopicPartition, int]) -> Lags:
    client = await connected_client(parse_addresses(bootstrap))
    try:
        committed = await client.admin.group_offsets(group)
        known = {key: info.offset for key, info in committed.items()} | positions
        return await lags(client, known)
    finally:
        await client.close()


# Both ways of showing it


def _total(lag: Lags) -> int:
    return sum(one.records or 0 for one in lag.values())


def _seconds(lag: Lags) -> float | None:
    known = [one.seconds for one in lag.values() if one.seconds is not None]
    return max(known) if known else None


def _json(status: PipelineStatus, lag: Lags, problem: str | None) -> dict[str, Any]:
    return {
        "pipeline": status.name,
        "state": status.told_state,
        "running": status.is_alive,
        "pid": status.pid,
        "mode": status.mode,
        "master": status.master,
        "file": status.file,
        "broker": status.bootstrap,
        "started": _time(status.started_ms),
        "updated": _time(status.updated_ms),
        "error": status.error,
        "queries": status.queries,
        "lag": None if problem else _total(lag),
        "lag_seconds": None if problem else _seconds(lag),
        "lag_problem": problem,
        "partitions": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "position": one.position,
                "end": one.end,
                "lag": one.records,
                "lag_seconds": None if one.seconds is None else round(one.seconds, 3),
            }
            for key, one in lag.items()
        ],
    }


def _print(status: PipelineStatus, lag: Lags, problem: str | None) -> None:
    since = status.started_ms if status.is_alive else status.updated_ms
    behind = "" if problem else f", lag {counted(_total(lag), 'record')}{_age(_seconds(lag))}"
    pid = f" as process {status.pid}" if status.is_alive else ""
    print(escape(f"pipeline {status.name}: {status.told_state}{pid} since {_time(since)}, {status.mode}{behind}"))
    if status.error:
        print(escape(f"error: {status.error}"))
    show(
        ("sink", "state", "batch", "at", "rows", "rows/s", "total", "state_rows", "state_size"),
        [_query_row(query) for query in status.queries],
    )
    if lag:
        show(
            ("partition", "position", "end", "lag", "seconds"),
            [
                (str(key), str(one.position), _or_dash(one.end), _or_dash(one.records), _or_dash(one.seconds, ".1f"))
                for key, one in lag.items()
            ],
        )
    if problem:
        tell(f"{status.name}: its lag is not known: {problem}")


def _query_row(query: dict[str, Any]) -> Sequence[str]:
    last = query.get("last_batch")
    state = query["state"] if not query["restarts"] else f"{query['state']} ({counted(query['restarts'], 'restart')})"
    if last is None:
        return (query["sink"], state, "-", "-", "-", "-", str(query["rows"]), "-", "-")
    return (
        query["sink"],
        state,
        str(last["batch"]),
        last["timestamp"],
        str(last["rows"]),
        f"{last['rows_per_second']:.0f}",
        str(query["rows"]),
        str(last["state_rows"]),
        in_bytes(last["state_bytes"]),
    )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _age(seconds: float | None) -> str:
    return "" if not seconds else f" ({seconds:.1f} s)"


def _or_dash(number: float | None, form: str = "") -> str:
    return "-" if number is None else format(number, form)
