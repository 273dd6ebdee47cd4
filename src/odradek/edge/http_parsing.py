"""HTTP/1.1 on the wire (RFC 9112): heads of requests, bodies that come in chunks, heads of answers.

Nothing here touches a socket. What two readers of the same bytes could take differently is refused, so that nobody can
hide a request in another one: bare line feeds, folded headers, white space before a colon, two lengths, a length beside
chunks. A method that nobody knows is well formed; the routes refuse it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from odradek.edge.routing import Page, RequestError, Stream

HEAD_BYTES_MAX = 16 * 1024
CONTINUE = b"HTTP/1.1 100 \r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_CHUNK_LINE_BYTES_MAX = 1024  # of a chunk's size and what stands behind it, which nobody reads
_LINE_END, _HEAD_END = b"\r\n", b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELD = _TOKEN + rb":" + _VALUE
_HEAD = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.([01])((?:\r\n" + _FIELD + rb")*+)")
_TRAILERS = re.compile(rb"(?:" + _FIELD + rb"\r\n)++")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[\t ]*;" + _VALUE + rb")?+\r\n")
_OTHER_VERSION = re.compile(_TOKEN + rb" [\x21-\x7e]++ HTTP/(?!1\.[01])[0-9]\.[0-9]\s")
_EMPTY_LINES = re.compile(rb"(?:\r\n)++")
_BARE_LINE_FEED = re.compile(rb"(?:^|[^\r])\n")
_SPACE_BEFORE_COLON = re.compile(rb"\r\n(" + _TOKEN + rb")[\t ]+:")
_HOST = re.compile(r"[!$%&'()*+,.:;=\[\]_~0-9A-Za-z-]*+")
_LENGTH = re.compile(r"[0-9]{1,18}")
_ONCE = frozenset(("host", "content-length", "transfer-encoding"))  # headers that come once or not at all


class Head(NamedTuple):
    """What a request says of itself before its body."""

    method: str
    target: bytes
    headers: dict[str, str]  # by their names in lower case
    body_bytes: int  # -1: it comes in chunks
    knows_chunks: bool  # it is of HTTP/1.1
    is_last: bool  # on its connection
    awaits_continue: bool  # its client asks whether to send the body


class HeadReader:
    """Finds the heads in what a client sends."""

    def __init__(self) -> None:
        self._searched_bytes = 0  # of the buffer, that have no end of a head
        self._last = b""
        self._last_head: Head | None = None

    def take(self, buffer: bytearray) -> Head | None:
        """Take the next head out of the buffer; None if it is not all there."""
        if not self._searched_bytes and buffer[:1] == b"\r":  # empty lines before a request mean nothing
            if empty := _EMPTY_LINES.match(buffer):
                del buffer[: empty.end()]
            if buffer == b"\r":
                return None
        end = buffer.find(_HEAD_END, max(0, self._searched_bytes - 3))
        if end < 0 or end > HEAD_BYTES_MAX:
            self._check_part(buffer)
            self._searched_bytes = len(buffer)
            return None
        self._searched_bytes = 0
        data = bytes(buffer[:end])
        del buffer[: end + 4]
        if data != self._last or self._last_head is None:  # most clients say the same again and again
            self._last_head = parse_head(data)
            self._last = data
        return self._last_head

    def _check_part(self, buffer: bytearray) -> None:
        """Refuse at once what can become no head."""
        if len(buffer) > HEAD_BYTES_MAX:
            raise RequestError(431, f"the head of the request is larger than {HEAD_BYTES_MAX} bytes")
        if (buffer and buffer[0] <= 0x20) or _BARE_LINE_FEED.search(buffer, max(0, self._searched_bytes - 1)):
            raise _problem_of(bytes(buffer))


def parse_head(data: bytes) -> Head:
    """Read a head that came without the empty line at its end; 400, 501 or 505 if it is none that is understood."""
    match = _HEAD.fullmatch(data)
    if match is None:
        raise _problem_of(data)
    method, target, minor, lines = match.groups()
    headers: dict[str, str] = {}
    for line in lines.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name in _ONCE:
                raise RequestError(400, f"the header {name} comes twice")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    is_1_1 = minor == b"1"
    if is_1_1 and "host" not in headers:
        raise RequestError(400, "the header host is missing")
    if not _HOST.fullmatch(headers.get("host", "")):
        raise RequestError(400, "the header host is no name of a host: write NAME or NAME:PORT")
    return Head(
        method.decode("ascii"),
        target,
        headers,
        _body_bytes(headers, is_1_1),
        is_1_1,
        not is_1_1 or "close" in _listed(headers.get("connection", "")),
        is_1_1 and headers.get("expect", "").lower() == "100-continue",
    )


def _body_bytes(headers: dict[str, str], is_1_1: bool) -> int:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is None:
        if length is None:
            return 0
        if not _LENGTH.fullmatch(length):
            raise RequestError(400, "content-length is not a number of bytes")
        return int(length)
    if length is not None:
        raise RequestError(400, "the request has both a content-length and a transfer-encoding")
    if not is_1_1:
        raise RequestError(400, "a request of HTTP/1.0 has no transfer-encoding")
    if coding.lower() != "chunked":
        raise RequestError(501, "transfer-encoding must be chunked, and nothing else")
    return -1


def _listed(value: str) -> list[str]:
    return [piece.strip(" \t").lower() for piece in value.split(",")] if value else []


def _problem_of(data: bytes) -> RequestError:
    """Why this is no head."""
    if _BARE_LINE_FEED.search(data):
        return RequestError(400, "a line of the head ends in a line feed alone: end it in a carriage return, line feed")
    if space := _SPACE_BEFORE_COLON.search(data):
        name = space[1].decode("ascii")
        return RequestError(400, f"a header has white space before its colon: write {name}: VALUE")
    if b"\r\n " in data or b"\r\n\t" in data:
        return RequestError(400, "a header goes on in the next line, or has no name: write each in one line")
    if not _HEAD.fullmatch(data.partition(_LINE_END)[0]):
        if _OTHER_VERSION.match(data + b"\r\n"):
            return RequestError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        return RequestError(400, "the first line is no request of HTTP/1.1")
    return RequestError(400, "a header is malformed: write NAME: VALUE")


class ChunkReader:
    """Takes one body that comes in chunks out of a buffer."""

    def __init__(self) -> None:
        self._left_bytes = 0  # of a chunk, with the line end behind it; 0: the next thing is a chunk's size
        self._is_last = False  # the last chunk was here, trailers may follow

    def take(self, buffer: bytearray) -> bytes | None:
        """Take the next piece of the body; empty when more must come first, None when the body is whole."""
        while not self._is_last:
            if not self._left_bytes and not self._take_size(buffer):
                return b""
            if self._left_bytes > 2:  # the piece is empty if the buffer is
                piece = bytes(buffer[: self._left_bytes - 2])
                del buffer[: len(piece)]
                self._left_bytes -= len(piece)
                return piece
            if self._left_bytes:
                if len(buffer) < 2:
                    return b""
                if buffer[:2] != _LINE_END:
                    raise RequestError(400, "a chunk of the body is longer than it says")
                del buffer[:2]
                self._left_bytes = 0
        return None if self._take_trailers(buffer) else b""

    def _take_size(self, buffer: bytearray) -> bool:
        match = _CHUNK_LINE.match(buffer)
        if match is None:
            if len(buffer) > _CHUNK_LINE_BYTES_MAX or b"\n" in buffer:
                raise RequestError(400, "a chunk of the body does not begin with its size")
            return False
        if match.end() > _CHUNK_LINE_BYTES_MAX:
            raise RequestError(400, f"a chunk's size takes more than {_CHUNK_LINE_BYTES_MAX} bytes")
        size = int(match[1], 16)
        self._is_last = size == 0
        self._left_bytes = size + 2 if size else 0
        del buffer[: match.end()]
        return True

    def _take_trailers(self, buffer: bytearray) -> bool:
        if len(buffer) < 2:
            return False
        if buffer[:2] == _LINE_END:
            del buffer[:2]
            return True
        end = buffer.find(_HEAD_END)
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(buffer) > HEAD_BYTES_MAX:
                raise RequestError(431, f"the trailers of the request are larger than {HEAD_BYTES_MAX} bytes")
            return False
        if not _TRAILERS.fullmatch(bytes(buffer[: end + 2])):
            raise RequestError(400, "a trailer is malformed: write NAME: VALUE")
        del buffer[: end + 4]
        return True


def page_bytes(page: Page, *, with_body: bool, is_last: bool) -> bytes:
    """An answer as it is sent. ValueError if a header could be taken for two."""
    length = None if page.status == 204 else len(page.body)
    head = _head_of(page, length, is_last)
    return head + page.body if with_body else head


def stream_head(stream: Stream, *, in_chunks: bool, is_last: bool) -> bytes:
    """The head of an answer that comes piece by piece."""
    framing = (("transfer-encoding", "chunked"),) if in_chunks else ()
    return _head_of(stream._replace(headers=stream.headers + framing), None, is_last)


def _head_of(answer: Page | Stream, length: int | None, is_last: bool) -> bytes:
    head = _fixed_head(answer.status, answer.content_type)
    if answer.headers:
        lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        if lines.count("\n") != len(answer.headers) or lines.count("\r") != len(answer.headers):
            raise ValueError(f"a header of an answer has a line end in it: {answer.headers}")
        head += lines.encode("latin-1")
    if is_last:
        head += b"connection: close\r\n"
    return head + _LINE_END if length is None else b"%bcontent-length: %d\r\n\r\n" % (head, length)


@lru_cache(maxsize=256)
def _fixed_head(status: int, content_type: str) -> bytes:
    """The lines that are the same for every such answer; one without content has no type."""
    kind = "" if status == 204 else f"content-type: {content_type}\r\n"
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n{kind}".encode("latin-1")
