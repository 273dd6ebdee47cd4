"""`odradek log`: looks into a partition's files. `dump` shows records or batches, `verify` checks everything.

Both only read: no lock is taken, nothing is repaired, and a broker may be at work on the same files. What is checked
stands in `odradek.log.verify`; this module finds the files and prints.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, TextIO

from odradek.cli.terminal import CommandError, escape, is_terminal, progress
from odradek.disk.errors import DiskError
from odradek.disk.interface import File
from odradek.disk.real import RealDisk
from odradek.log.backends.file_segment import INDEX, LOG, TIME_INDEX, segment_path
from odradek.log.index import IndexCache, OffsetIndex
from odradek.log.scan import Damage, survey
from odradek.log.segment import Placed
from odradek.log.verify import (
    BATCH_BYTES_MAX,
    Finding,
    Totals,
    has_partition_files,
    loose_check,
    segments_in,
    verify_partition,
)
from odradek.model import Offset, parse_partition_directory
from odradek.records.build import read_control
from odradek.records.compression import Codec
from odradek.records.errors import CorruptBatchError, RecordError
from odradek.records.header import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader, check_batch, read_header
from odradek.records.parse import parse_batch
from odradek.records.record import Record

_EXIT_PROBLEM = 1
_EXIT_USAGE = 2
_OPEN_FILES_MAX = 16
_ADVANCE_BYTES = 1 << 20
_HEADER_FIELDS = (
    "base_offset", "last_offset", "record_count", "size_bytes", "leader_epoch", "producer_id", "producer_epoch",
    "base_sequence", "base_timestamp", "max_timestamp",
)  # fmt: skip
_SEGMENT_NAME = re.compile(r"([0-9]{20})\.log(\.cut-[0-9]+|\.cleaned)?")
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_DESCRIPTION = "Look into a partition's files. Nothing is changed and no lock is taken: a broker may be running."

_EXAMPLES = """\
examples:
  odradek log dump ~/.odradek/orders-0       the records, one a line
  odradek log verify ~/.odradek              check every partition of a data directory

'odradek log dump --help' and 'odradek log verify --help' say more.
"""

_DUMP_DESCRIPTION = """\
Show what is in a log. DIR is a partition's directory (orders-0), one .log file, or a data directory; then every
partition is shown, each behind a line '# NAME'.

A line is: offset, key, payload, one space apart; the payload is the rest of the line. A null key or payload (a
tombstone) is '-', an empty one '""'. In a key, a space is '\\x20'. Backslashes are doubled; control characters and
bytes that are not UTF-8 are '\\n', '\\r', '\\t' or '\\xHH', a byte each. A key or payload that is exactly '-' or '""'
begins with an escape, too. Transaction markers are shown like other records; --json and --batches tell them apart.

With --json, each record is an object: partition, offset, timestamp (ms), key, value, headers ([{key, value}, ...]).
Text stands in "key" and "value"; bytes that are not UTF-8 stand in "key_base64" and "value_base64" instead. A
transaction marker has "control": "commit" or "abort".

Where a log ends inside a batch (one may just be written), dump stops and says so on standard error; the exit status
is 0. Damage elsewhere is named, too, and passed over; the exit status is then 1."""

_DUMP_EXAMPLES = """\
examples:
  odradek log dump ~/.odradek/orders-0
  odradek log dump ~/.odradek/orders-0 --from 1000 --max 20
  odradek log dump ~/.odradek/orders-0 --from 1000 --to 1999 --json | jq -r .value
  odradek log dump ~/.odradek/orders-0/00000000000000000000.log --batches
  odradek log dump ~/.odradek | head
"""

_VERIFY_DESCRIPTION = """\
Check partitions: every CRC, the order of offsets and batches, every record, the entries of both indexes, the leader
epochs, the recovery point and the log's state. DIR is a partition's directory (orders-0) or a data directory.

Each problem is a line: the file, the byte or the index entry (counted from 0), what is wrong and what it means.
A line that begins with 'note: ' is no damage: a tail that was not flushed when the last process died, or a leftover,
which the next start puts right. The exit status is 0 if there is no problem, 1 if there is one, 2 if there was
nothing to check. Beside a running broker, retention and compaction may remove a file while it is read: look again.

With --json, each line is an object with "type" problem, note or summary."""

_VERIFY_EXAMPLES = """\
examples:
  odradek log verify ~/.odradek/orders-0     one partition
  odradek log verify ~/.odradek              all of them
  odradek log verify --shallow ~/.odradek    CRCs and indexes, but not each record: several times faster
  odradek log verify --json ~/.odradek | jq 'select(.type == "problem")'
"""


# What is looked at.


class _LogFile(NamedTuple):
    """One file of batches."""

    path: str
    base: Offset | None  # None: a file under another name
    following: Offset | None  # the base of the next segment


class _Partition(NamedTuple):
    """Files that belong together."""

    name: str
    directory: str
    files: list[_LogFile]
    is_one_of_many: bool = False  # found in a data directory


def _find(disk: RealDisk, text: str, *, files: bool) -> list[_Partition]:
    """The partitions that an argument means."""
    expected = "a partition's directory such as ~/.odradek/orders-0, or a data directory such as ~/.odradek"
    path = Path(text)
    if path.is_file():
        if not files:
            raise CommandError(f"{text} is a file: name {expected}", _EXIT_USAGE)
        if path.suffix in (INDEX, TIME_INDEX, ".snapshot"):
            raise CommandError(f"{text} is no log file: name the {LOG} file beside it", _EXIT_USAGE)
        match = _SEGMENT_NAME.fullmatch(path.name)
        file = _LogFile(text, int(match[1]) if match else None, None)
        return [_Partition(path.resolve().parent.name, str(path.parent), [file])]
    if not path.is_dir():
        raise CommandError(f"there is no {text}: name {expected}", _EXIT_USAGE)
    if has_partition_files(disk, text):
        return [_partition(disk, path.resolve().name, str(path))]
    names = [parse_partition_directory(entry.name) for entry in disk.list(text) if entry.is_directory]
    found = sorted(name for name in names if name is not None and _is_partition(disk, str(path / str(name))))
    if not found:
        raise CommandError(
            f"there is no log in {text}: a partition's directory has files such as {0:020d}{LOG}, "
            "a data directory has directories such as orders-0",
            _EXIT_USAGE,
        )
    return [_partition(disk, str(name), str(path / str(name)), is_one_of_many=True) for name in found]


def _is_partition(disk: RealDisk, directory: str) -> bool:
    """Whether a directory with such a name is one; what cannot be looked into is named, and the others go on."""
    try:
        return has_partition_files(disk, directory)
    except DiskError as error:
        _complain(str(error))
        return False


def _partition(disk: RealDisk, name: str, directory: str, *, is_one_of_many: bool = False) -> _Partition:
    bases = segments_in(disk, directory)
    files = [
        _LogFile(segment_path(directory, base, LOG), base, following)
        for base, following in zip(bases, [*bases[1:], None], strict=False)
    ]
    return _Partition(name, directory, files, is_one_of_many)


def _size_of(log_file: _LogFile) -> int:
    try:
        return Path(log_file.path).stat().st_size
    except OSError:  # gone, perhaps; whoever reads it will say so
        return 0


def _bytes_of(partitions: Sequence[_Partition]) -> int:
    """The bytes that a progress bar counts."""
    return sum(_size_of(log_file) for partition in partitions for log_file in partition.files)


# How bytes are shown.


def _shown(data: bytes | None) -> str:
    """A payload on one line, safe for a terminal and without loss: see the help of `dump`."""
    if data is None:
        return "-"
    if data in (b"", b"-", b'""'):
        return {b"": '""', b"-": "\\x2d", b'""': '\\x22"'}[data]
    text = data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode())


def _plain_record(record: Record) -> str:
    return f"{record.offset} {_shown(record.key).replace(' ', chr(92) + 'x20')} {_shown(record.value)}\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """A field of an object: text under its name, other bytes under `name_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def _json_record(partition: str, header: BatchHeader, record: Record) -> str:
    fields: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    fields |= _json_bytes("key", record.key) | _json_bytes("value", record.value)
    fields["headers"] = [{"key": key, **_json_bytes("value", value)} for key, value in record.headers]
    if header.is_control:
        try:
            fields["control"] = read_control(record)[0].name.lower()
        except RecordError:
            fields["control"] = "unknown"
    return json.dumps(fields) + "\n"


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).label if header.codec in set(Codec) else f"unknown-{header.codec}"


def _flags(header: BatchHeader) -> dict[str, bool]:
    return {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.has_delete_horizon,
        "append_time": header.uses_log_append_time,
    }


def _plain_batch(position: int, header: BatchHeader, crc_ok: bool) -> str:
    producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    return (
        f"position={position} offsets={header.base_offset}..{header.last_offset} count={header.record_count}"
        f" size={header.size_bytes} codec={_codec(header)} epoch={header.leader_epoch}"
        f" producer={'-' if header.producer_id == NO_PRODUCER_ID else producer}"
        f" flags={','.join(name for name, is_set in _flags(header).items() if is_set) or '-'}"
        f" timestamps={header.base_timestamp}..{header.max_timestamp} crc={'ok' if crc_ok else 'BAD'}\n"
    )


def _json_batch(partition: str, path: str, position: int, header: BatchHeader, crc_ok: bool) -> str:
    fields: dict[str, object] = {"partition": partition, "file": path, "position": position}
    fields |= {name: getattr(header, name) for name in _HEADER_FIELDS}
    return json.dumps(fields | {"codec": _codec(header)} | _flags(header) | {"crc_ok": crc_ok}) + "\n"


# dump


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

    def partition(self, partition: _Partition) -> None:
        """Show one partition."""
        self._left = self._args.max
        if partition.is_one_of_many and not self._args.json and not self._args.batches:
            self._out.write(f"# {escape(partition.name)}\n")
        for log_file in partition.files:
            if self._left == 0 or (self._last is not None and (log_file.base or 0) > self._last):
                return
            if log_file.following is not None and log_file.following <= self._first:
                self._advance(_size_of(log_file))
                continue
            if self._args.batches and not self._args.json:
                self._out.write(f"# {escape(f'{partition.name}/{Path(log_file.path).name}')}\n")
            file = self._disk.open(log_file.path)
            try:
                self._file(partition, log_file, file)
            except DiskError as error:
                self.is_sound = False
                _complain(str(error))
            finally:
                file.close()

    def _file(self, partition: _Partition, log_file: _LogFile, file: File) -> None:
        size = file.size()
        start = reported = self._start(log_file, file, size)
        check = loose_check(log_file.base, log_file.following)
        for found in survey(file, start, size, check, log_file.base or 0, log_file.base, crc=not self._args.batches):
            if found.position - reported >= _ADVANCE_BYTES:
                self._advance(found.position - reported)
                reported = found.position
            if isinstance(found, Damage):
                self._tell(found, found.reason, size, is_last=log_file.following is None)
            elif found.header.last_offset < self._first:
                continue
            elif self._left == 0 or (self._last is not None and found.header.base_offset > self._last):
                break
            elif self._args.batches:
                self._batch(partition, found, file)
            else:
                self._records(partition, found, file)
        self._advance(size - reported)

    def _start(self, log_file: _LogFile, file: File, size: int) -> int:
        """Where to begin to read: what the index says, if that is true."""
        path = f"{log_file.path.removesuffix(LOG)}{INDEX}"
        if log_file.base is None or self._first <= log_file.base or not self._disk.exists(path):
            return 0
        index = OffsetIndex(self._disk, IndexCache(0), path, Path(path).stat().st_size)
        claim, position = index.floor(self._first - log_file.base) or (-1, 0)
        if claim < 0 or position + HEADER_BYTES > size:
            return 0
        header = read_header(file.read(HEADER_BYTES, position))
        return position if header.last_offset == log_file.base + claim else 0

    def _batch(self, partition: _Partition, placed: Placed, file: File) -> None:
        position, header = placed
        try:
            check_batch(file.read(header.size_bytes, position))
            crc_ok = True
        except CorruptBatchError:
            self.is_sound = crc_ok = False
        if self._args.json:
            self._out.write(_json_batch(partition.name, file.path, position, header, crc_ok))
        else:
            self._out.write(_plain_batch(position, header, crc_ok))
        if self._left is not None:
            self._left -= 1

    def _records(self, partition: _Partition, placed: Placed, file: File) -> None:
        position, header = placed
        try:
            records = parse_batch(file.read(header.size_bytes, position), size_max=BATCH_BYTES_MAX)
        except RecordError as error:
            self.is_sound = False
            _complain(f"{file.path} byte {position}: the records of this batch cannot be read: {error}")
            return
        if header.base_offset < self._first or (self._last is not None and header.last_offset > self._last):
            last = header.last_offset if self._last is None else self._last
            records = [record for record in records if self._first <= record.offset <= last]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        lines: Iterable[str] = map(_plain_record, records)
        if self._args.json:
            lines = (_json_record(partition.name, header, record) for record in records)
        self._out.write("".join(lines))

    def _tell(self, damage: Damage, reason: str, size: int, *, is_last: bool) -> None:
        if damage.resumes is None and is_last and damage.position:
            text = f"stopped at byte {damage.position}, {size - damage.position} bytes before the end: {reason}"
            _complain(f"{damage.path}: {text} (a batch that is being written, or a torn tail)")
            return
        self.is_sound = False
        behind = "the end" if damage.resumes is None else f"byte {damage.resumes.position}"
        _complain(f"{damage.path} byte {damage.position}: {reason}; went on at {behind}")


def _complain(text: str) -> None:
    print(f"odradek: {escape(text)}", file=sys.stderr)


def _dump(args: argparse.Namespace) -> int:
    disk = RealDisk(_OPEN_FILES_MAX, read_only=True)
    partitions = [partition for text in args.directories for partition in _find(disk, text, files=True)]
    # The bar's drawing takes over sys.stdout, so this one is kept; lines on a terminal are progress enough.
    out = sys.stdout
    bar: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda _: None)
    if not is_terminal(out):
        bar = progress(_bytes_of(partitions), "reading")
    with bar as advance:
        dump = _Dump(args, disk, out, advance)
        for partition in partitions:
            dump.partition(partition)
    return 0 if dump.is_sound else _EXIT_PROBLEM


# verify


def _verify(args: argparse.Namespace) -> int:
    disk = RealDisk(_OPEN_FILES_MAX, read_only=True)
    partitions = [partition for text in args.directories for partition in _find(disk, text, files=False)]
    totals, counts = Totals(), {"problem": 0, "note": 0}
    # On a terminal, lines go through the bar's drawing, which keeps them apart from it; else past it.
    out = None if is_terminal() else sys.stdout
    with progress(_bytes_of(partitions), "checking") as advance:
        for partition in partitions:
            for finding in verify_partition(disk, partition.directory, totals, shallow=args.shallow, advance=advance):
                counts[finding.kind] += 1
                print(_json_finding(finding) if args.json else _plain_finding(finding), file=out)
    if args.json:
        summary = {"type": "summary", **asdict(totals), "problems": counts["problem"], "notes": counts["note"]}
        print(json.dumps(summary))
    else:
        print(_summary(totals, counts["problem"]))
    return _EXIT_PROBLEM if counts["problem"] else 0


def _plain_finding(finding: Finding) -> str:
    note = "note: " if finding.kind == "note" else ""
    place = f" {finding.unit} {finding.at}" if finding.unit else ""
    return escape(f"{note}{finding.path}{place}: {finding.text}")


def _json_finding(finding: Finding) -> str:
    place = {finding.unit: finding.at} if finding.unit else {}
    return json.dumps({"type": finding.kind, "file": finding.path, **place, "text": finding.text})


def _summary(totals: Totals, problems: int) -> str:
    counted = (
        f"partitions {totals.partitions}, segments {totals.segments}, batches {totals.batches},"
        f" records {totals.records}, bytes {totals.size_bytes}"
    )
    return f"{counted}: {'all is well' if not problems else '1 problem' if problems == 1 else f'{problems} problems'}"


# What is typed.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek log` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    dump = commands.add_parser("dump", help="show records or batches")
    dump.description, dump.epilog = _DUMP_DESCRIPTION, _DUMP_EXAMPLES
    dump.set_defaults(action=_dump)
    dump.add_argument("directories", metavar="DIR", nargs="+", help="a partition's or data directory, or a .log file")
    dump.add_argument("--batches", action="store_true", help="one line a batch; '# FILE' before each file")
    dump.add_argument("--from", metavar="OFFSET", type=_number, default=0, dest="first", help="first offset to show")
    dump.add_argument("--to", metavar="OFFSET", type=_number, dest="last", help="last offset to show")
    dump.add_argument("--max", metavar="N", type=_number, help="at most so many records (or batches) of a partition")
    dump.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")
    verify = commands.add_parser("verify", help="check everything")
    verify.description, verify.epilog = _VERIFY_DESCRIPTION, _VERIFY_EXAMPLES
    verify.set_defaults(action=_verify)
    verify.add_argument("directories", metavar="DIR", nargs="+", help="a partition's directory, or a data directory")
    verify.add_argument("--shallow", action="store_true", help="do not decompress batches and read their records")
    verify.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return number


def run(args: argparse.Namespace) -> int:
    """Dump or verify."""
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)
