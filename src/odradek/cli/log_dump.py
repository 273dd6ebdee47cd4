"""`odradek log dump`: writes the records or batches of partitions out, and names what cannot be shown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TextIO

from odradek.cli.log_find import EXIT_PROBLEM, OPEN_FILES_MAX, Partition, bytes_of, complain, find
from odradek.cli.log_show import json_batch, json_record, plain_batch, plain_record
from odradek.cli.terminal import escape, is_terminal, progress
from odradek.disk.errors import DiskError
from odradek.disk.real import RealDisk
from odradek.log.errors import LogError
from odradek.log.scan import Damage
from odradek.log.segment import Placed
from odradek.log.sources import BatchSource, Sources
from odradek.log.verify_segment import BATCH_BYTES_MAX
from odradek.model import Offset
from odradek.records.errors import CorruptBatchError, RecordError
from odradek.records.header import check_batch
from odradek.records.parse import parse_batch

_ADVANCE_BYTES = 1 << 20


class _Dump:
    """Writes partitions out. `is_sound` says at the end whether all of it could be shown."""

    def __init__(self, args: argparse.Namespace, disk: RealDisk, out: TextIO, advance: Callable[[int], None]) -> None:
        self.is_sound = True
        self._args = args
        self._first: Offset = args.first
        self._last: Offset | None = args.last
        self._left: int | None = None
        self._disk = disk
        self._out = out
        self._advance = advance

    def partition(self, partition: Partition) -> None:
        """Show one partition."""
        self._left = self._args.max
        if partition.is_one_of_many and not self._args.json and not self._args.batches:
            self._out.write(f"# {escape(partition.name)}\n")
        try:
            with closing(partition.open(self._disk)) as sources:
                self._sources(partition, sources)
        except (DiskError, LogError) as error:
            self.is_sound = False
            complain(str(error))

    def _sources(self, partition: Partition, sources: Sources) -> None:
        for base, following in zip(sources.bases, [*sources.bases[1:], None], strict=False):
            if self._left == 0 or (self._last is not None and (base or 0) > self._last):
                return
            if following is not None and following <= self._first:
                continue
            if self._args.batches and not self._args.json:
                self._out.write(f"# {escape(f'{partition.name}/{Path(sources.path(base)).name}')}\n")
            try:
                with closing(sources.open(base)) as source:
                    self._source(partition, source)
            except (DiskError, LogError) as error:
                self.is_sound = False
                complain(str(error))

    def _source(self, partition: Partition, source: BatchSource) -> None:
        reported = 0
        for found in source.survey(self._first, crc=not self._args.batches):
            if found.position - reported >= _ADVANCE_BYTES:
                self._advance(found.position - reported)
                reported = found.position
            if isinstance(found, Damage):
                self._tell(found, found.reason, source.size_bytes, is_last=source.following is None)
            elif found.header.last_offset < self._first:
                continue
            elif self._left == 0 or (self._last is not None and found.header.base_offset > self._last):
                break
            elif self._args.batches:
                self._batch(partition, found, source)
            else:
                self._records(partition, found, source)
        self._advance(source.size_bytes - reported)

    def _batch(self, partition: Partition, placed: Placed, source: BatchSource) -> None:
        position, header = placed
        try:
            check_batch(source.read(placed))
            crc_ok = True
        except CorruptBatchError:
            self.is_sound = crc_ok = False
        if self._args.json:
            self._out.write(json_batch(partition.name, source.path, position, header, crc_ok))
        else:
            self._out.write(plain_batch(position, header, crc_ok))
        if self._left is not None:
            self._left -= 1

    def _records(self, partition: Partition, placed: Placed, source: BatchSource) -> None:
        position, header = placed
        try:
            records = parse_batch(source.read(placed), size_max=BATCH_BYTES_MAX)
        except RecordError as error:
            self.is_sound = False
            complain(f"{source.path} byte {position}: the records of this batch cannot be read: {error}")
            return
        if header.base_offset < self._first or (self._last is not None and header.last_offset > self._last):
            last = header.last_offset if self._last is None else self._last
            records = [record for record in records if self._first <= record.offset <= last]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        lines: Iterable[str] = map(plain_record, records)
        if self._args.json:
            lines = (json_record(partition.name, header, record) for record in records)
        self._out.write("".join(lines))

    def _tell(self, damage: Damage, reason: str, size: int, *, is_last: bool) -> None:
        if damage.resumes is None and is_last and damage.position:
            text = f"stopped at byte {damage.position}, {size - damage.position} bytes before the end: {reason}"
            complain(f"{damage.path}: {text} (a batch that is being written, or a torn tail)")
            return
        self.is_sound = False
        behind = "the end" if damage.resumes is None else f"byte {damage.resumes.position}"
        complain(f"{damage.path} byte {damage.position}: {reason}; went on at {behind}")


def dump(args: argparse.Namespace) -> int:
    """Show what the arguments name."""
    disk = RealDisk(OPEN_FILES_MAX, read_only=True)
    partitions = [partition for text in args.directories for partition in find(disk, text, files=True)]
    # The bar's drawing takes over sys.stdout, so this one is kept; lines on a terminal are progress enough.
    out = sys.stdout
    bar: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda _: None)
    if not is_terminal(out) and is_terminal(sys.stderr):
        bar = progress(bytes_of(disk, partitions), "reading")
    with bar as advance:
        writer = _Dump(args, disk, out, advance)
        for partition in partitions:
            writer.partition(partition)
    return 0 if writer.is_sound else EXIT_PROBLEM
