"""Katar's subscribe as a stream of server-sent events: each record an event, its id the position behind it.

Whoever loses the connection sends the last id back (`Last-Event-ID`, as the standard has it) and misses nothing. A
comment comes when nothing else does, so that neither side takes the other for dead, and with it the position: whoever
listens for what is new goes on where he began, also if he has not got a record yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from odradek.broker.katar_reading import Positions, Start
from odradek.edge.rest import katar_body as forms
from odradek.edge.rest.katar_leaders import Leaders, Reading
from odradek.edge.routing import RequestError

CONTENT_TYPE = "text/event-stream"
_HEARTBEAT_MS = 15_000
_HEARTBEAT = b": nothing new\nid: %b\n\n"
_LINE_END = re.compile(rb"\r\n|\r|\n")  # in JSON only between values: a stream ends its lines there


async def events(
    leaders: Leaders, reading: Reading, max_records: int, admit: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """What was read, and then what comes, for as long as somebody takes it and `admit` lets him: keys are revoked."""
    while True:
        yield b"".join(_events(reading)) or _HEARTBEAT % forms.position_text(reading.positions)
        starts = {place: Start("offset", offset) for place, offset in reading.positions.items()}
        try:
            reading = await leaders.read(starts, max_records, _HEARTBEAT_MS)
            await admit()
        except RequestError as error:
            detail = json.dumps({"status": error.status, "detail": error.detail}).encode()
            yield b"event: error\ndata: " + detail + b"\n\n"
            return


def _events(reading: Reading) -> list[bytes]:
    positions: Positions = dict(reading.positions)
    for place, offset, _ in reversed(reading.records):  # each is told as not read before its first record
        positions[place] = offset
    told = []
    for place, offset, data in reading.records:
        positions[place] = offset + 1
        lines = _LINE_END.sub(b"\ndata: ", data)
        told.append(b"event: record\nid: " + forms.position_text(positions) + b"\ndata: " + lines + b"\n\n")
    return told
