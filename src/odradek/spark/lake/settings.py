"""What a sink is told: checked once, before anything is read or written. Pure but for making a path absolute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from odradek.spark.lake.errors import LakeOptionError

Kind: TypeAlias = Literal["parquet", "delta", "iceberg"]
Mode: TypeAlias = Literal["append", "upsert"]

KINDS: tuple[Kind, ...] = ("parquet", "delta", "iceberg")
MODES: tuple[Mode, ...] = ("append", "upsert")
CODECS = ("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")
TARGET_BYTES = 128 << 20
CATALOG_PREFIX = "catalog."

_SINK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a sink, by their names; all may be written as text."""

    merge_schema: bool = False  # add columns that the table does not have; without it they are refused
    compression: str = "zstd"
    files_max: int = 0  # at most so many tasks write, each a file a partition; 0: as many as the batch has tasks
    compact_every: int = 0  # batches; 0: never by itself
    target_bytes: int = TARGET_BYTES  # of a file after compaction
    retain_hours: float = 24.0  # how long the files of older versions are kept; looked at when compacting
    order_by: tuple[str, ...] = ()  # upsert: of two rows with one key the greater in these columns stays
    deleted: str = ""  # upsert: a boolean column; true removes the row with that key. It is not stored
    table: str = ""  # iceberg: namespace.name in the catalog; default.<name of the folder> if empty
    catalog: Mapping[str, str] = field(default_factory=dict)  # iceberg: catalog.uri, catalog.type, ... of pyiceberg


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """All that a sink is told."""

    kind: Kind
    path: Path  # absolute
    sink_id: str
    partition_by: tuple[str, ...]
    mode: Mode
    keys: tuple[str, ...]
    options: SinkOptions


def parse_sink(
    kind: str,
    path: str | Path,
    sink_id: str,
    partition_by: Sequence[str],
    mode: str,
    keys: Sequence[str],
    options: Mapping[str, Any],
) -> SinkSettings:
    """Check what a sink is told, as a whole."""
    one_of("kind", kind, KINDS)
    one_of("mode", mode, MODES)
    if not _SINK_ID.fullmatch(sink_id):
        raise LakeOptionError(
            f"{sink_id!r} cannot be the id of a sink: it becomes part of file names, so it begins with a letter or a "
            "digit and goes on with letters, digits, '.', '_' and '-', at most 121 in all"
        )
    settings = SinkSettings(
        kind=cast(Kind, kind),
        path=local_path(path),
        sink_id=sink_id,
        partition_by=_texts("partition_by", partition_by),
        mode=cast(Mode, mode),
        keys=_texts("keys", keys),
        options=parse_options(options),
    )
    _check_mode(settings)
    return settings


def _check_mode(settings: SinkSettings) -> None:
    options = settings.options
    if settings.mode == "append":
        for name, given in (("keys", settings.keys), ("order_by", options.order_by), ("deleted", options.deleted)):
            if given:
                raise LakeOptionError(f"{name} is for mode 'upsert'; this sink appends")
        return
    if not settings.keys:
        raise LakeOptionError("mode 'upsert' needs keys: the columns that tell one row of the table from another")
    if not options.order_by:
        raise LakeOptionError(
            "mode 'upsert' needs the option order_by: the columns that say which of two rows with the same key is the "
            "later one, as in order_by = 'offset'"
        )
    if settings.partition_by:
        raise LakeOptionError("mode 'upsert' does not take partition_by: the table is rewritten as a whole")


def parse_options(given: Mapping[str, Any]) -> SinkOptions:
    """Read the options of a sink; one that nobody knows is refused."""
    known = {one.name: one for one in fields(SinkOptions) if one.name != "catalog"}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(CATALOG_PREFIX):
            values.setdefault("catalog", {})[name.removeprefix(CATALOG_PREFIX)] = str(value)
        elif name in known:
            values[name] = _converted(name, value, getattr(SinkOptions(), name))
        else:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)} and catalog.*"
            raise LakeOptionError(f"a lake sink has no option {name!r}{hint}")
    options = SinkOptions(**values)
    one_of("compression", options.compression, CODECS)
    return options


def _converted(name: str, value: Any, default: Any) -> Any:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[str(value).lower()]
        if isinstance(default, int | float):
            number = type(default)(value)
            if number < 0:
                raise ValueError
            return number
    except (KeyError, ValueError, TypeError):
        wanted = "true or false" if isinstance(default, bool) else "a number from 0 on"
        raise LakeOptionError(f"the option {name} is {wanted}, not {value!r}") from None
    if isinstance(default, tuple):
        return _texts(name, [part.strip() for part in value.split(",")] if isinstance(value, str) else value)
    return str(value)


def local_path(path: str | Path) -> Path:
    """Make a path absolute; a file:// address is one, anything else with a scheme is refused."""
    text = str(path)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if "://" in text or parts.scheme == "file":
        raise LakeOptionError(
            f"{text}: a lake sink writes to a folder of a file system that the driver and all executors have mounted "
            "(a path or file:///...). For an object store, mount it, or write with Spark's own writers and JARs"
        )
    return Path(text).expanduser().absolute()


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        near = get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise LakeOptionError(f"{name} is one of {', '.join(choices)}, not {value!r}{hint}")


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        given = (given,)
    if any(not isinstance(one, str) or not one for one in given):
        raise LakeOptionError(f"{name} is a list of column names, not {list(given)!r}")
    if len(set(given)) != len(given):
        raise LakeOptionError(f"{name} names a column twice: {', '.join(given)}")
    return tuple(given)
