"""The bodies of Katar's publish and subscribe, by msgspec: payloads are cut out of a request as they were sent.

msgspec takes a good part of a broker's start to import: this module is imported by the first request that needs it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from odradek.broker.katar_reading import Found, Positions, Start
from odradek.broker.value_writing import Written
from odradek.edge.routing import Page, RequestError
from odradek.model import TopicPartition

RECORDS_DEFAULT, RECORDS_MAX = 100, 10_000
WAIT_MS_MAX = 60_000
PAYLOADS_MAX = 10_000  # in one request, counted once for each topic: all others wait while they are looked at
_TOPICS_MAX = 100  # in one request
_OFFSET_MAX = 2**63 - 1
_JSON = "application/json"

_Body = TypeVar("_Body", bound=msgspec.Struct)


class _Publish(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    topics: list[str] | None = None
    payload: Raw = Raw()
    payloads: list[Raw] | None = None
    key: str | None = None
    partition: int | None = None


class _Subscribe(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    topics: list[str] | None = None
    offset: int | None = None
    timestamp: int | None = None
    position: dict[str, dict[int, int]] | None = None
    max: int = RECORDS_DEFAULT
    wait_ms: int = 0


class _Read(msgspec.Struct, forbid_unknown_fields=True):
    """What a broker asks of a leader in a client's place."""

    starts: dict[str, dict[int, Start]]
    max: int
    wait_ms: int


class _Header(msgspec.Struct, omit_defaults=True):
    key: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class _Record(msgspec.Struct, omit_defaults=True):
    topic: str
    partition: int
    base_offset: int
    offset: int
    true_offset: int
    timestamp: int
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    payload: Raw | str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    headers: list[_Header] | UnsetType = UNSET


class _Place(msgspec.Struct):
    """What must be known of a record that another broker has written out."""

    topic: str
    partition: int
    true_offset: int


class _Answer(msgspec.Struct):
    records: list[Raw]
    position: dict[str, dict[int, int]]


class _Stored(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int


class _Offsets(msgspec.Struct):
    offsets: list[_Stored]


# A number may come as a string, as everywhere in this house.
_publish = msgspec.json.Decoder(_Publish, strict=False)
_subscribe = msgspec.json.Decoder(_Subscribe, strict=False)
_read = msgspec.json.Decoder(_Read)
_answer = msgspec.json.Decoder(_Answer)
_offsets = msgspec.json.Decoder(_Offsets)
_place = msgspec.json.Decoder(_Place)
_position = msgspec.json.Decoder(dict[str, dict[int, int]])
_raw = msgspec.json.Decoder(Raw)
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")


class Publication(NamedTuple):
    """What is to be published where."""

    topics: list[str]
    values: list[bytes]
    key: bytes | None
    partition: int | None


class Subscription(NamedTuple):
    """What is to be read: all partitions of some topics, from one start or from a position."""

    topics: list[str]
    start: Start
    position: Mapping[str, Mapping[int, int]]
    max_records: int
    wait_ms: int


class Shown(NamedTuple):
    """A record written out."""

    place: TopicPartition
    offset: int
    data: bytes


# Requests.


def publication(body: bytes) -> Publication:
    """Read a request to publish."""
    asked = _decoded(_publish, body)
    if bool(asked.payload) == (asked.payloads is not None):
        raise RequestError(422, "send either payload, any JSON value, or payloads, a list of them")
    payloads = [asked.payload] if asked.payloads is None else asked.payloads
    if not payloads:
        raise RequestError(422, "payloads is empty")
    topics = _topics(asked.topic, asked.topics)
    if len(payloads) * len(topics) > PAYLOADS_MAX:
        raise RequestError(
            413, f"{len(payloads)} payloads for each of {len(topics)} topics: at most {PAYLOADS_MAX} at once are taken"
        )
    key = None if asked.key is None else asked.key.encode()
    return Publication(topics, [bytes(each) for each in payloads], key, asked.partition)


def subscription(body: bytes, last_event_id: str | None = None) -> Subscription:
    """Read a request to subscribe; what a stream told last counts more than where it was begun."""
    asked = _decoded(_subscribe, body)
    if sum(each is not None for each in (asked.offset, asked.timestamp, asked.position)) > 1:
        raise RequestError(
            422, "send one of offset, timestamp and position, or none of them for what comes from now on"
        )
    position = asked.position if not last_event_id else _event_position(last_event_id)
    start = Start("latest")
    if asked.offset is not None:
        start = Start("offset", _within("offset", asked.offset, 0, _OFFSET_MAX))
    elif asked.timestamp is not None:
        start = Start("timestamp", _within("timestamp", asked.timestamp, 0, _OFFSET_MAX))
    for offsets in (position or {}).values():
        for offset in offsets.values():
            _within("an offset of position", offset, 0, _OFFSET_MAX)
    if asked.topic is None and asked.topics is None and position:
        topics = _topics(None, list(position))
    else:
        topics = _topics(asked.topic, asked.topics)
    return Subscription(
        topics,
        start,
        position or {},
        _within("max", asked.max, 1, RECORDS_MAX),
        _within("wait_ms", asked.wait_ms, 0, WAIT_MS_MAX),
    )


def _event_position(text: str) -> dict[str, dict[int, int]]:
    try:
        return _position.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        raise RequestError(422, "the header last-event-id is not the id of an event of this stream") from None


def _decoded(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    try:
        body.decode()  # msgspec does not look into the strings of what it cuts out
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RequestError(422, f"the body is JSON, but not what is asked for: {error}") from None
    except msgspec.DecodeError as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is not JSON: the byte at {error.start} is not UTF-8") from None
    except RecursionError:
        raise RequestError(400, "the body is nested too deep") from None


def _topics(topic: str | None, topics: list[str] | None) -> list[str]:
    if (topic is None) == (topics is None):
        raise RequestError(422, "send either topic, a name, or topics, a list of names")
    names = [topic] if topic is not None else topics or []
    if not 1 <= len(names) <= _TOPICS_MAX or len(set(names)) < len(names):
        raise RequestError(422, f"topics must name 1 to {_TOPICS_MAX} topics, each once")
    return names


def _within(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise RequestError(422, f"{name} must be a whole number from {low} to {high}, not {value}")
    return value


# Answers.


def offsets_page(written: Iterable[Written]) -> Page:
    """Tell where values have gone. Written by hand: a model for each of a thousand would cost more than the append."""
    pieces = []
    for place, first, count, timestamp in written:
        before = b'{"topic":%b,"partition":%d,"offset":' % (_encode(place.topic), place.partition)
        behind = b',"timestamp":%d}' % timestamp
        offsets = (behind + b"," + before).join([b"%d" % offset for offset in range(first, first + count)])
        pieces.append(before + offsets + behind)
    return Page(b'{"offsets":[' + b",".join(pieces) + b"]}\n", _JSON)


def written_from(answer: bytes) -> Written:
    """Read what a leader says of values that it was sent."""
    stored = _offsets.decode(answer).offsets
    first = stored[0]
    return Written(TopicPartition(first.topic, first.partition), first.offset, len(stored), first.timestamp)


def records_page(records: Iterable[Shown], positions: Positions) -> Page:
    """Tell records, and where to go on."""
    shown = b",".join(record.data for record in records)
    return Page(b'{"records":[' + shown + b'],"position":' + position_text(positions) + b"}\n", _JSON)


def position_text(positions: Positions) -> bytes:
    """A position as clients send it back."""
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in positions.items():
        nested.setdefault(topic, {})[partition] = offset
    return _encode(nested)


def shown(found: Found) -> Shown:
    """Write a record out: JSON as it is, other text as a string, and bytes that are no text in base64."""
    record = found.record
    text = _Record(
        found.place.topic,
        found.place.partition,
        found.base_offset,
        record.offset - found.base_offset,
        record.offset,
        record.timestamp,
        **_named("key", record.key),
        **_payload(record.value),
    )
    if record.headers:
        text.headers = [_Header(name, **_named("value", value)) for name, value in record.headers]
    return Shown(found.place, record.offset, _encode(text))


def _named(name: str, content: bytes | None) -> dict[str, Any]:
    """Bytes as text under a name, or in base64 under another."""
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _payload(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"payload": _NULL}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(value).decode()}
    try:
        return {"payload": _raw.decode(value)}
    except (msgspec.MsgspecError, RecursionError):
        return {"payload": text}


# Between brokers.


def publish_body(place: TopicPartition, values: list[bytes], key: bytes | None) -> bytes:
    """The request for a partition's leader to publish."""
    asked = {"topic": place.topic, "partition": place.partition, "payloads": [Raw(value) for value in values]}
    if key is not None:
        asked["key"] = key.decode()
    return _encode(asked)


def read_body(starts: Mapping[TopicPartition, Start], max_records: int, wait_ms: int) -> bytes:
    """The request for a leader to read its partitions."""
    nested: dict[str, dict[int, Start]] = {}
    for (topic, partition), start in starts.items():
        nested.setdefault(topic, {})[partition] = start
    return _encode({"starts": nested, "max": max_records, "wait_ms": wait_ms})


def read_request(body: bytes) -> tuple[dict[TopicPartition, Start], int, int]:
    """What a broker asks this one to read."""
    asked = _decoded(_read, body)
    starts = {
        TopicPartition(topic, partition): start
        for topic, partitions in asked.starts.items()
        for partition, start in partitions.items()
    }
    return starts, asked.max, asked.wait_ms


def read_answer(answer: bytes) -> tuple[list[Shown], Positions]:
    """What a leader has read."""
    told = _answer.decode(answer)
    records = []
    for raw in told.records:
        place = _place.decode(raw)
        records.append(Shown(TopicPartition(place.topic, place.partition), place.true_offset, bytes(raw)))
    positions = {
        TopicPartition(topic, partition): offset
        for topic, partitions in told.position.items()
        for partition, offset in partitions.items()
    }
    return records, positions
