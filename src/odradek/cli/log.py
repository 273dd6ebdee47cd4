"""`odradek log`: looks into a partition's files. `dump` shows records or batches, `verify` checks everything.

Both only read: no lock is taken, nothing is repaired, and a broker may be at work on the same files. `convert` moves a
partition into another kind of segments, while no broker runs. This module says what can be typed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from odradek.cli.log_convert import KINDS, convert
from odradek.cli.log_dump import dump
from odradek.cli.log_verify import verify

_DESCRIPTION = """\
Look into a partition's files, whichever segment.backend keeps them, or move them to another one. dump and verify
change nothing and take no lock: a broker may be running."""

_EXAMPLES = """\
examples:
  odradek log dump ~/.odradek/orders-0       the records, one a line
  odradek log verify ~/.odradek              check every partition of a data directory
  odradek log convert ~/.odradek/orders-0 --to sqlite

'odradek log dump --help', 'odradek log verify --help' and 'odradek log convert --help' say more.
"""

_DUMP_DESCRIPTION = """\
Show what is in a log. DIR is a partition's directory (orders-0), one .log or .sqlite file, or a data directory; then
every partition is shown, each behind a line '# NAME'.

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

_CONVERT_DESCRIPTION = """\
Move a partition into another kind of segments: file (Kafka's files), sqlite (one database a segment, which sqlite3
can query) or rocksdb (one database a partition). Every batch is copied as it is, with its offset, leader epoch and
producer, into a directory beside the old one; the copy is read again and compared byte for byte, and takes the old
one's name by one rename. A crash at any moment leaves one good partition under the name; the next start, of a broker
or of this command, clears away the rest.

No broker may run on the data directory: its lock is taken. The segments begin where they began, but none in sqlite or
rocksdb gets more than a million records. Other partitions and the topic's settings stay as they are: partitions that
are made later, here or on other brokers, follow the topic's segment.backend, so set that, too. Twice the partition's
room is needed on the disk while it runs.

The exit status is 0 if the partition is of that kind now, 1 if it could not be moved (it is then as it was), 2 if DIR
is no partition's directory or is in use."""

_CONVERT_EXAMPLES = """\
examples:
  odradek log convert ~/.odradek/orders-0 --to sqlite
  sqlite3 ~/.odradek/orders-0/00000000000000000000.sqlite 'SELECT offset, value FROM records LIMIT 5'
  odradek log convert ~/.odradek/orders-0 --to rocksdb --json
  odradek log convert ~/.odradek/orders-0 --to file       and back
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek log` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _dump_arguments(commands.add_parser("dump", help="show records or batches"))
    _verify_arguments(commands.add_parser("verify", help="check everything"))
    _convert_arguments(commands.add_parser("convert", help="move a partition into another kind of segments"))


def _dump_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DUMP_DESCRIPTION, _DUMP_EXAMPLES
    parser.set_defaults(action=dump)
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a partition's or data directory, or a file")
    parser.add_argument("--batches", action="store_true", help="one line a batch; '# FILE' before each file")
    parser.add_argument("--from", metavar="OFFSET", type=_number, default=0, dest="first", help="first offset to show")
    parser.add_argument("--to", metavar="OFFSET", type=_number, dest="last", help="last offset to show")
    parser.add_argument("--max", metavar="N", type=_number, help="at most so many records (or batches) of a partition")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _VERIFY_DESCRIPTION, _VERIFY_EXAMPLES
    parser.set_defaults(action=verify)
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a partition's directory, or a data directory")
    parser.add_argument("--shallow", action="store_true", help="do not decompress batches and read their records")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _CONVERT_DESCRIPTION, _CONVERT_EXAMPLES
    parser.set_defaults(action=convert)
    parser.add_argument("directory", metavar="DIR", help="a partition's directory, such as ~/.odradek/orders-0")
    parser.add_argument("--to", metavar="BACKEND", choices=KINDS, required=True, help="file, sqlite or rocksdb")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, for programs")


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return number


def run(args: argparse.Namespace) -> int:
    """Dump, verify or convert."""
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)
