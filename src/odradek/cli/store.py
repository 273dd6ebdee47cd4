"""`odradek store`: looks into an object store: what lies there, and whether a channel's objects are whole."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek.cli.listing import counted, in_bytes, show, tell
from odradek.cli.terminal import CommandError, progress
from odradek.clock import SystemClock

if TYPE_CHECKING:
    from odradek.objects.stores import ObjectStore

EXIT_DAMAGED = 1
_SHOWN_MAX = 20
_ARCHIVE = "!archive"

_EXAMPLES = """\
examples:
  odradek store ls file:///srv/channels                what is there: channels, and topics with archived segments
  odradek store ls s3://bucket/prefix clicks           the objects of a channel
  odradek store verify s3://bucket/prefix clicks       reads every object and checks it
  odradek store expire s3://bucket/prefix clicks       deletes what is older than the channel's retention

Credentials and endpoints come from the environment, as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL do.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek store` takes."""
    parser.description = "Look into an object store; no broker is needed."
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("ls", help="list channels and archived topics, or the objects of a channel")
    listing.add_argument("url", metavar="URL")
    listing.add_argument("channel", metavar="CHANNEL", nargs="?")
    listing.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")
    listing.set_defaults(run=_list)
    verify = commands.add_parser("verify", help="read all objects of a channel and check them")
    verify.add_argument("url", metavar="URL")
    verify.add_argument("channel", metavar="CHANNEL")
    verify.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    verify.set_defaults(run=_verify)
    expire = commands.add_parser(
        "expire", help="delete what is older than a channel's retention; for one that no broker looks after"
    )
    expire.add_argument("url", metavar="URL")
    expire.add_argument("channel", metavar="CHANNEL")
    expire.set_defaults(run=_expire)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    status: int = args.run(args)
    return status


def _open(args: argparse.Namespace) -> ObjectStore:
    from odradek.objects.stores import open_store  # noqa: PLC0415 (takes longer to import than a short command to run)

    return open_store(args.url)


def _list(args: argparse.Namespace) -> int:
    store = _open(args)
    rows = _objects(store, args.channel) if args.channel is not None else _contents(store)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    found = list(rows)
    if not found:
        tell(f"there is nothing of Odradek's in {args.url}")
        return 0
    show(list(found[0]), [[str(value) for value in row.values()] for row in found])
    return 0


def _contents(store: ObjectStore) -> Iterator[dict[str, object]]:
    from odradek.objects.channels import list_channels, load_channel  # noqa: PLC0415

    for name in list_channels(store):
        spec = load_channel(store, name)
        yield {
            "name": name, "kind": "channel", "buckets": sum(1 for each in store.folders(f"{name}/") if each.isdigit()),
            "slice_ms": spec.slice_ms, "fifo": spec.fifo,
        }  # fmt: skip
    for name in store.folders(f"{_ARCHIVE}/"):
        yield {"name": name, "kind": "archived topic", "buckets": "", "slice_ms": "", "fifo": ""}


def _objects(store: ObjectStore, channel: str) -> Iterator[dict[str, object]]:
    from odradek.objects.channels import load_channel  # noqa: PLC0415
    from odradek.objects.keys import channel_prefix, parse_object_key  # noqa: PLC0415

    load_channel(store, channel)
    for info in store.list(channel_prefix(channel)):
        key = parse_object_key(info.key)
        if key is not None:
            yield {
                "object": info.key, "time": _time(key.start_ms), "publisher": key.publisher, "first": key.sequence,
                "bytes": info.size_bytes,
            }  # fmt: skip


def _verify(args: argparse.Namespace) -> int:
    from odradek.objects.channels import load_channel  # noqa: PLC0415
    from odradek.objects.verify import verify_channel  # noqa: PLC0415

    store = _open(args)
    spec = load_channel(store, args.channel)
    with progress(0, f"reading {args.channel}") as advance:
        found = verify_channel(store, spec, advance)
    if args.json:
        content = {
            "channel": args.channel, "objects": found.object_count, "messages": found.message_count,
            "bytes": found.size_bytes, "first_ms": found.first_ms, "last_ms": found.last_ms,
            "publishers": {name: {"runs": each.runs, "gaps": each.gaps} for name, each in found.publishers.items()},
            "problems": found.problems,
        }  # fmt: skip
        print(json.dumps(content))
        return EXIT_DAMAGED if found.problems else 0
    span = (
        ""
        if found.first_ms is None or found.last_ms is None
        else f", {_time(found.first_ms)} to {_time(found.last_ms)}"
    )
    print(
        f"{args.channel}: {counted(found.object_count, 'object')} with {counted(found.message_count, 'message')}, "
        f"{in_bytes(found.size_bytes)}{span}"
    )
    for name, publisher in found.publishers.items():
        first, last = publisher.runs[0][0], publisher.runs[-1][1]
        gaps = "".join(f", {low} to {high} are not there" for low, high in publisher.gaps[:_SHOWN_MAX])
        print(f"publisher {name}: sequences {first} to {last}{gaps}")
    for problem in found.problems[:_SHOWN_MAX]:
        print(f"problem: {problem}")
    if found.problems:
        tell(f"{counted(len(found.problems), 'problem')} found")
        return EXIT_DAMAGED
    print("all objects are whole")
    return 0


def _expire(args: argparse.Namespace) -> int:
    from odradek.objects.channels import load_channel  # noqa: PLC0415
    from odradek.objects.reader import expire_channel  # noqa: PLC0415

    store = _open(args)
    spec = load_channel(store, args.channel)
    if spec.retention_ms < 0:
        raise CommandError(f"channel {args.channel} keeps its messages for ever: it was made without a retention")
    count = expire_channel(store, spec, SystemClock().now_ms())
    print(f"deleted {counted(count, 'object')} of {args.channel}")
    return 0


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds")
