"""What a channel is: its name, its grid of time and its rules, as `<channel>/!channel.json` holds them.

Readers without a broker learn them there. The grid (window and slice) is part of every object's key, so it stays as
it was when the channel was made; the other values may change.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from odradek.model import topic_name_problem
from odradek.records.compression import codec_from_name
from odradek.records.errors import UnsupportedCodecError

WINDOW_MS_MAX = 60_000  # a bucket is never longer than a minute: between buckets order holds
FORMAT = 1  # of the objects and their keys


@dataclass(frozen=True)
class ChannelSpec:
    """The rules of one channel."""

    name: str
    id: str  # the topic's id in hex, or random: tells a channel from an earlier one of the same name
    window_ms: int = 60_000  # the length of a bucket
    slice_ms: int = 1_000  # divides window_ms: the length of a slice, and how long a record may wait for its PUT
    slice_bytes: int = 64 * 1024 * 1024  # of an object before compression: a fuller slice becomes several objects
    grace_ms: int = 30_000  # how long after the end of a slice its readers still look into it
    fifo: bool = False
    retention_ms: int = -1  # -1: for ever
    compression: str = "zstd"

    def __post_init__(self) -> None:
        problem = topic_name_problem(self.name)
        if problem is not None:
            raise ValueError(f"channel {self.name!r}: {problem}")
        if not self.id:
            raise ValueError(f"channel {self.name}: it needs an id, which no other channel has")
        if not 1 <= self.window_ms <= WINDOW_MS_MAX:
            raise ValueError(
                f"channel {self.name}: the window is 1 to {WINDOW_MS_MAX} milliseconds long, not {self.window_ms}"
            )
        if not 1 <= self.slice_ms <= self.window_ms or self.window_ms % self.slice_ms:
            raise ValueError(
                f"channel {self.name}: a slice must divide the window of {self.window_ms} milliseconds"
                f" without a rest; {self.slice_ms} does not"
            )
        if self.slice_bytes < 1:
            raise ValueError(f"channel {self.name}: slice_bytes must be at least 1, not {self.slice_bytes}")
        if self.grace_ms < 0:
            raise ValueError(f"channel {self.name}: grace_ms cannot be negative, as {self.grace_ms} is")
        if self.retention_ms < -1:
            raise ValueError(f"channel {self.name}: retention_ms is -1 (for ever) or more, not {self.retention_ms}")
        try:
            codec_from_name(self.compression)
        except UnsupportedCodecError as error:
            raise ValueError(f"channel {self.name}: {error}") from None

    def to_json(self) -> bytes:
        """The spec as it is kept in the store."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ChannelSpec:
        """Read a spec; fields that a later version has added are left out."""
        try:
            read = json.loads(data)
        except ValueError:
            raise ValueError(f"a channel's spec must be JSON; this begins with {bytes(data[:40])!r}") from None
        if not isinstance(read, dict) or "name" not in read or "id" not in read:
            raise ValueError("a channel's spec must be a JSON object with a name and an id")
        if read.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"channel {read['name']!r} is of format {read['format']}, this version reads {FORMAT}:"
                " install a newer one"
            )
        values = {}
        for field in fields(cls):
            if field.name not in read:
                continue
            value = read[field.name]
            if type(value).__name__ != field.type:  # bool is no int here
                raise ValueError(f"a channel's {field.name} must be of the type {field.type}, not {value!r}")
            values[field.name] = value
        return cls(**values)
