"""`odradek log convert`: moves a partition into another kind of segments, and says what was done."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing, suppress
from pathlib import Path

from odradek.cli.log_find import EXIT_PROBLEM, EXIT_USAGE, OPEN_FILES_MAX
from odradek.cli.terminal import CommandError, escape, is_terminal, progress
from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.disk.errors import DiskError, LockedError
from odradek.disk.real import RealDisk
from odradek.log.convert import Converted
from odradek.log.convert import convert as convert_log
from odradek.log.errors import LogError
from odradek.log.index import IndexCache
from odradek.log.recovery import Shared
from odradek.log.sources_open import open_sources
from odradek.log.verify import has_partition_files
from odradek.model import parse_partition_directory

KINDS = ("file", "sqlite", "rocksdb")


def convert(args: argparse.Namespace) -> int:
    """Move the partition that the arguments name."""
    directory = _partition_directory(args.directory)
    settings = default_settings()
    store_config = settings.store_config()
    disk = RealDisk(store_config.log_open_files_max)
    shared = Shared(disk, SystemClock(), store_config, IndexCache(store_config.log_index_cache_bytes))
    try:
        with progress(_bytes_to_do(disk, directory), "converting") as advance:
            done = convert_log(shared, directory, args.to, settings.log_config(), advance)
    except LockedError as error:
        text = f"{args.directory} is in use: stop the broker that has its data directory, then convert ({error})"
        raise CommandError(text, EXIT_USAGE) from error
    except (DiskError, LogError) as error:
        raise CommandError(f"{args.directory} was not converted: {error}", EXIT_PROBLEM) from error
    print(_json(args.directory, done) if args.json else _plain(args.directory, done))
    return 0


def _partition_directory(text: str) -> str:
    """The whole path of a partition's directory."""
    path = Path(text)
    expected = "name a partition's directory such as ~/.odradek/orders-0"
    if not path.is_dir():
        raise CommandError(f"there is no directory {text}: {expected}", EXIT_USAGE)
    if path.is_symlink():
        raise CommandError(f"{text} is a link, which cannot change places with a directory: {expected}", EXIT_USAGE)
    resolved = path.resolve()
    if parse_partition_directory(resolved.name) is None:
        raise CommandError(f"{text} is not named like a partition (TOPIC-NUMBER): {expected}", EXIT_USAGE)
    if not has_partition_files(RealDisk(OPEN_FILES_MAX, read_only=True), str(resolved)):
        raise CommandError(f"there is no log in {text}: {expected}", EXIT_USAGE)
    return str(resolved)


def _bytes_to_do(disk: RealDisk, directory: str) -> int:
    """What the bar counts: each byte is copied, then compared."""
    if not is_terminal(sys.stderr):
        return 0
    with suppress(DiskError, LogError), closing(open_sources(disk, directory)) as sources:
        return 2 * sources.size_bytes
    return 0


def _plain(directory: str, done: Converted) -> str:
    if done.was == done.now:
        return escape(f"{directory} is kept in {done.now} already; nothing was done")
    counted = f"{_count(done.segments, 'segment')}, {_count(done.batches, 'batch')}, {_count(done.records, 'record')}"
    return escape(f"{directory}: {done.was} -> {done.now}, {counted}, {done.size_bytes} bytes, compared byte for byte")


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _json(directory: str, done: Converted) -> str:
    fields = done._asdict()
    return json.dumps({"directory": directory, "from": fields.pop("was"), "to": fields.pop("now"), **fields})
