"""Finds what the arguments of `odradek log` mean: partitions, however they keep their segments, or a file of one."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from odradek.cli.terminal import CommandError, escape
from odradek.disk.errors import DiskError
from odradek.disk.real import RealDisk
from odradek.log.backends.file_segment import INDEX, LOG, TIME_INDEX
from odradek.log.errors import LogError
from odradek.log.sources import Sources
from odradek.log.sources_open import open_file, open_sources
from odradek.log.verify import has_partition_files
from odradek.model import parse_partition_directory

EXIT_PROBLEM = 1
EXIT_USAGE = 2
OPEN_FILES_MAX = 16

_SEGMENT_NAME = re.compile(r"([0-9]{20})\.(log(\.cut-[0-9]+|\.cleaned)?|sqlite)")


class Partition(NamedTuple):
    """What one argument, or one name in a data directory, stands for."""

    name: str
    directory: str
    file: str | None = None  # only this one of its files
    is_one_of_many: bool = False  # found in a data directory

    def open(self, disk: RealDisk) -> Sources:
        """Its segments, to be read."""
        if self.file is None:
            return open_sources(disk, self.directory)
        match = _SEGMENT_NAME.fullmatch(Path(self.file).name)
        return open_file(disk, self.file, int(match[1]) if match else None)


def find(disk: RealDisk, text: str, *, files: bool) -> list[Partition]:
    """The partitions that an argument means."""
    expected = "a partition's directory such as ~/.odradek/orders-0, or a data directory such as ~/.odradek"
    path = Path(text)
    if path.is_file():
        if not files:
            raise CommandError(f"{text} is a file: name {expected}", EXIT_USAGE)
        if path.suffix in (INDEX, TIME_INDEX, ".snapshot"):
            raise CommandError(f"{text} is no log file: name the {LOG} file beside it", EXIT_USAGE)
        return [Partition(path.resolve().parent.name, str(path.parent), text)]
    if not path.is_dir():
        raise CommandError(f"there is no {text}: name {expected}", EXIT_USAGE)
    if has_partition_files(disk, text):
        return [Partition(path.resolve().name, str(path))]
    names = [parse_partition_directory(entry.name) for entry in disk.list(text) if entry.is_directory]
    found = sorted(name for name in names if name is not None and _is_partition(disk, str(path / str(name))))
    if not found:
        raise CommandError(
            f"there is no log in {text}: a partition's directory has files such as {0:020d}{LOG}, "
            "a data directory has directories such as orders-0",
            EXIT_USAGE,
        )
    return [Partition(str(name), str(path / str(name)), is_one_of_many=True) for name in found]


def _is_partition(disk: RealDisk, directory: str) -> bool:
    """Whether a directory with such a name is one; what cannot be looked into is named, and the others go on."""
    try:
        return has_partition_files(disk, directory)
    except DiskError as error:
        complain(str(error))
        return False


def bytes_of(disk: RealDisk, partitions: Sequence[Partition]) -> int:
    """The bytes that a progress bar counts."""
    total = 0
    for partition in partitions:
        with suppress(DiskError, LogError), closing(partition.open(disk)) as sources:  # whoever reads it says so
            total += sources.size_bytes
    return total


def complain(text: str) -> None:
    """Say on standard error what is not as it should be."""
    print(f"odradek: {escape(text)}", file=sys.stderr)
