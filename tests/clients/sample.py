"""The records that every client sends and every client must see again, whoever sent them."""

from __future__ import annotations

from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP = 1_700_000_000_000


class Sample(NamedTuple):
    """A record as all clients can say it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None  # None: the client chose it


RICH = (
    Sample(b"k1", b"plain", timestamp=TIMESTAMP),
    Sample(None, b"no key", timestamp=TIMESTAMP + 1),
    Sample(b"k3", None, timestamp=TIMESTAMP + 2),
    Sample(b"k4", b"with headers", (("a", b"1"), ("a", b"2"), ("binary", b"\x00\xff")), TIMESTAMP + 3),
    Sample(b"", b"", timestamp=TIMESTAMP + 4),
    Sample(b"k6", bytes(range(256)) * 40, timestamp=TIMESTAMP + 5),
    *(Sample(b"many", b"%d" % number * 50, timestamp=TIMESTAMP + 6 + number) for number in range(200)),
)
"""What a library can send: all that the format has."""

SIMPLE = tuple(Sample(b"key%d" % number, b"value %d" % number, (("h", b"v"),)) for number in range(50))
"""What kcat can send: one set of headers for all, no timestamps of its own."""


def as_seen(sample: Sample, expected: Sample) -> Sample:
    """A record that was read, without the time if the sender did not choose it."""
    return sample if expected.timestamp is not None else sample._replace(timestamp=None)
