"""Messages of RAMA's door: JSON objects with a time in them, which the broker's clock must agree with.

They are looked at and never written anew. This module takes msgspec with it, which is slow to import, so the door
imports it when its first message comes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from odradek.edge.routing import RequestError
from odradek.records.record import NewRecord

MESSAGE_BYTES_MAX = 1 << 20
_LATE_MS = 5_000  # that a message may take from the check of its time to the log
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Stamped(msgspec.Struct):
    """What the door looks at in a message."""

    time: int | float = msgspec.field(name="_ts")


_STAMPED = msgspec.json.Decoder(_Stamped)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANYTHING = msgspec.json.Decoder(msgspec.Raw)


class Messages:
    """Reads messages, and holds their times against the broker's clock."""

    def __init__(self, now_ms: Callable[[], int], max_skew_ms: int) -> None:
        self._now_ms = now_ms
        self._max_skew_ms = max_skew_ms

    def one(self, body: bytes) -> NewRecord:
        """A message as a record, its value byte for byte."""
        if len(body) > MESSAGE_BYTES_MAX:
            raise RequestError(413, f"a message has at most {MESSAGE_BYTES_MAX} bytes, this one {len(body)}")
        timestamp, now_ms = _time_of(body), self._now_ms()
        if abs(timestamp - now_ms) > self._max_skew_ms:
            raise RequestError(
                422,
                f"_ts is {_shown(timestamp)}, and the broker's clock says {_shown(now_ms)}: more than "
                f"rama.max.skew.ms = {self._max_skew_ms} lies between; send the present time in ms since 1970, UTC",
            )
        return NewRecord(body, timestamp=timestamp)

    def many(self, body: bytes) -> list[NewRecord]:
        """The messages of a JSON array, each as it stands there."""
        try:
            found = _ARRAY.decode(body)
        except msgspec.ValidationError:
            raise RequestError(422, "the body is JSON, but not an array: send [{...}, ...]") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise _not_json(error) from None
        if not found:
            raise RequestError(422, "the array is empty: send [{...}, ...]")
        records: list[NewRecord] = []
        try:
            for message in found:
                records.append(self.one(bytes(message)))  # how many there are says which one is wrong
        except RequestError as error:
            raise RequestError(error.status, f"message {len(records)}: {error.detail}") from None
        return records

    def is_past(self, time_ms: int, grace_ms: int) -> bool:
        """Say whether messages from before this time are taken no longer, nor expected of Kafka producers."""
        return self._now_ms() > time_ms + max(self._max_skew_ms + _LATE_MS, grace_ms)

    def as_json(self, value: bytes | None) -> bytes:
        """A message as it stands in an answer: as it was sent, or as a string where a Kafka producer sent no JSON."""
        if value is None:
            return b"null"
        try:
            value.decode()
            _ANYTHING.decode(value)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            return json.dumps(value.decode("utf-8", "replace")).encode()
        return value


def _time_of(body: bytes) -> int:
    try:
        body.decode()  # msgspec does not look so closely at what it passes over
        return math.floor(_STAMPED.decode(body).time)
    except msgspec.ValidationError as error:
        if body.lstrip()[:1] != b"{":
            raise RequestError(422, "a message is a JSON object: send {...}") from None
        raise RequestError(
            422, f"a message carries its time as the number _ts, in ms since 1970, UTC: {error}"
        ) from None
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise _not_json(error) from None


def _not_json(error: Exception) -> RequestError:
    reason = "it is nested too deep" if isinstance(error, RecursionError) else error
    return RequestError(400, f"the body is not JSON: {reason}")


def _shown(time_ms: int) -> str:
    try:
        date = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{time_ms:.3g}" if abs(time_ms) < 10**300 else "beyond all measure"
    return f"{time_ms} ({date.removesuffix('+00:00')}Z)"
