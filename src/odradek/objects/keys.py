"""The names of a channel's objects, and what can be read from a name alone. Nothing here touches a store.

    orders/001700000000000/01000/9f86d081884c7d65-00000000000000000042
    channel / bucket       / slice / publisher - first sequence in the object

Numbers have leading zeros, so that names sort by time; `!` sorts before all digits and cannot be in a channel's name,
so what is not a slice (`!channel.json`, `!frontier`, `!late`, `!queue`) lies before them and is in nobody's way.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from odradek.objects.spec import ChannelSpec

TIME_MAX = 999_999_999_999_999  # fifteen digits: milliseconds until the year 33658
PUBLISHER_DIGITS = 16
MARK_SLACK_MS = 30_000  # the mark of a late object is in the store so long after the time in its name, at the latest

SPEC = "!channel.json"
FRONTIER = "!frontier"
LATE = "!late"
QUEUE = "!queue"

_OBJECT = re.compile(
    r"(?P<channel>[A-Za-z0-9._-]+)/(?P<bucket>[0-9]{15})/(?P<slice>[0-9]{5})"
    r"/(?P<publisher>[0-9a-f]{16})-(?P<sequence>[0-9]{20})"
)
_LATE = re.compile(r"[A-Za-z0-9._-]+/!late/(?P<put_ms>[0-9]{15})-[0-9a-f]{16}-[0-9]{20}")


class ObjectKey(NamedTuple):
    """The parts of the name of one object."""

    channel: str
    bucket: int  # milliseconds since 1970
    slice: int  # milliseconds inside the bucket
    publisher: str
    sequence: int

    @property
    def start_ms(self) -> int:
        """When the object's slice begins."""
        return self.bucket + self.slice

    def __str__(self) -> str:
        return object_key(self.channel, self.bucket, self.slice, self.publisher, self.sequence)


def publisher_hash(publisher_id: str) -> str:
    """The sixteen digits by which a publisher's objects are told from those of others."""
    return blake2b(publisher_id.encode(), digest_size=PUBLISHER_DIGITS // 2).hexdigest()


def slice_start(spec: ChannelSpec, timestamp: int) -> int:
    """When the slice of a record begins; a time outside of what a name can hold counts as the nearest one in it."""
    inside = min(max(timestamp, 0), TIME_MAX - spec.window_ms)
    return inside - inside % spec.window_ms % spec.slice_ms


def place(spec: ChannelSpec, timestamp: int) -> tuple[int, int]:
    """Bucket and slice of a record."""
    start = slice_start(spec, timestamp)
    return start - start % spec.window_ms, start % spec.window_ms


def object_key(channel: str, bucket: int, slice_: int, publisher: str, sequence: int) -> str:
    """The name of an object; `sequence` is the first one in it."""
    return f"{channel}/{bucket:015d}/{slice_:05d}/{publisher}-{sequence:020d}"


def parse_object_key(key: str) -> ObjectKey | None:
    """The parts of an object's name; None for what is no object of a slice."""
    match = _OBJECT.fullmatch(key)
    if match is None:
        return None
    channel, bucket, slice_, publisher, sequence = match.groups()
    return ObjectKey(channel, int(bucket), int(slice_), publisher, int(sequence))


def start_of(key: str) -> int:
    """When the slice of an object begins, by its name; 0 for what is no object's."""
    parsed = parse_object_key(key)
    return 0 if parsed is None else parsed.start_ms


def channel_prefix(channel: str) -> str:
    """What all names of a channel begin with."""
    return f"{channel}/"


def bucket_prefix(channel: str, bucket: int) -> str:
    """What all names in a bucket begin with."""
    return f"{channel}/{bucket:015d}/"


def before_slice(spec: ChannelSpec, timestamp: int) -> str:
    """A name that sorts before all objects in the slice of this time, and behind all objects before it."""
    bucket, slice_ = place(spec, timestamp)
    # Not the folder's own name: SeaweedFS, asked for what comes after a folder, leaves out all that is in it.
    return f"{spec.name}/{bucket:015d}/{slice_:05d}/!"


def spec_key(channel: str) -> str:
    """Where a channel's spec is."""
    return f"{channel}/{SPEC}"


def frontier_key(channel: str, publisher: str) -> str:
    """Where a publisher's checkpoint is."""
    return f"{channel}/{FRONTIER}/{publisher}"


def late_prefix(channel: str) -> str:
    """What all marks of late objects begin with."""
    return f"{channel}/{LATE}/"


def late_key(channel: str, put_ms: int, publisher: str, sequence: int) -> str:
    """The mark of an object that comes later than its readers look; its body is the object's key."""
    return f"{channel}/{LATE}/{put_ms:015d}-{publisher}-{sequence:020d}"


def before_late(channel: str, put_ms: int) -> str:
    """A name that sorts before all marks of this time or a later one."""
    return f"{channel}/{LATE}/{max(put_ms, 0):015d}"


def late_put_ms(key: str) -> int | None:
    """When a mark was made; None for what is no mark."""
    match = _LATE.fullmatch(key)
    return None if match is None else int(match["put_ms"])


def queue_prefix(channel: str, group: str) -> str:
    """What all leases of a group of competing readers begin with."""
    return f"{channel}/{QUEUE}/{group}/"
