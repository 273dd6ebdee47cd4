"""A connection that speaks just enough HTTP/2 to load a gRPC server: many calls at once, and next to no work for each.

A gRPC client library takes as much of a core as the server does; then it is the load that is measured. Here a request
is written once, and of an answer only frames, status and messages are looked at. It keeps to the server's flow control
and answers its pings. The server is told not to compress headers, so that they need no table.
"""

from __future__ import annotations

import socket
import struct
from collections import deque

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 4, 5
CANCEL = 8
WINDOW_MAX = (1 << 31) - 1
WINDOW_FIRST = 65_535  # what the standard gives before anyone has said anything
FRAME_BYTES = 1 << 14
RECEIVE_BYTES = 1 << 18
CONNECT_SECONDS = 20.0


class CallError(Exception):
    """A call did not end as it should; the text says how."""


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """A frame."""
    return struct.pack(">IBI", len(body) << 8 | kind, flags, stream) + body


def grpc_message(body: bytes) -> bytes:
    """A message as gRPC puts it into the stream: not compressed, with its length."""
    return struct.pack(">BI", 0, len(body)) + body


def _text(name: bytes) -> bytes:
    assert len(name) < 127, "one byte says the length"
    return bytes([len(name)]) + name


def call_headers(path: str, authority: str) -> bytes:
    """The headers of a call: those of HPACK's static table by number, the others in full; none goes into a table."""
    content_type = b"\x0f\x10" + _text(b"application/grpc")
    trailers = b"\x00" + _text(b"te") + _text(b"trailers")
    return b"\x83\x86\x04" + _text(path.encode()) + b"\x01" + _text(authority.encode()) + content_type + trailers


class Call:
    """One call under way: what it still has to send, and what has arrived."""

    def __init__(self, stream: int, window: int) -> None:
        self.stream = stream
        self.window = window
        self.unsent: deque[bytes] = deque()  # messages, the first one perhaps without its beginning
        self.is_closing = False  # nothing more will be sent
        self.has_closed = False
        self.received = bytearray()

    def messages(self) -> list[bytes]:
        """Take the messages that are whole."""
        found, at, data = [], 0, self.received
        while len(data) - at >= 5:
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > len(data):
                break
            found.append(bytes(data[at + 5 : end]))
            at = end
        del data[:at]
        return found


class Connection:
    """A connection with some calls under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.calls: dict[int, Call] = {}
        self._authority = f"127.0.0.1:{port}"
        self._headers: dict[str, bytes] = {}
        self._next_stream = 1
        self._window = WINDOW_FIRST  # of the connection, for what we send
        self._stream_window = WINDOW_FIRST  # of a new stream
        self._frame_bytes = FRAME_BYTES
        self._taken = 0  # bytes of data for which the server has not got room again
        self._inbox = bytearray()
        settings = ((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX))
        body = b"".join(struct.pack(">HI", *setting) for setting in settings)
        room = struct.pack(">I", WINDOW_MAX - WINDOW_FIRST)
        self._outbox = bytearray(PREFACE + frame(SETTINGS, 0, 0, body) + frame(WINDOW_UPDATE, 0, 0, room))
        self._flush()
        self.socket.setblocking(False)

    # Calls

    def open(self, path: str) -> Call:
        """Begin a call."""
        if path not in self._headers:
            self._headers[path] = call_headers(path, self._authority)
        call = Call(self._next_stream, self._stream_window)
        self._next_stream += 2
        self.calls[call.stream] = call
        self._outbox += frame(HEADERS, END_HEADERS, call.stream, self._headers[path])
        return call

    def send(self, call: Call, message: bytes, *, is_last: bool) -> None:
        """Send a message of a call when the server has room for it."""
        call.unsent.append(message)
        call.is_closing |= is_last
        self._push(call)

    def close_sending(self, call: Call) -> None:
        """Say that nothing more comes."""
        call.is_closing = True
        self._push(call)

    def cancel(self, call: Call) -> None:
        """Have enough of a call."""
        self._outbox += frame(RST_STREAM, 0, call.stream, struct.pack(">I", CANCEL))
        del self.calls[call.stream]

    def _push(self, call: Call) -> None:
        """Put into frames what flow control allows."""
        while call.unsent:
            message = call.unsent[0]
            size = min(len(message), call.window, self._window, self._frame_bytes)
            if not size:
                return
            call.window -= size
            self._window -= size
            if size == len(message):
                call.unsent.popleft()
            else:
                call.unsent[0] = message[size:]
            call.has_closed = call.is_closing and not call.unsent
            flags = END_STREAM if call.has_closed else 0
            self._outbox += struct.pack(">IBI", size << 8 | DATA, flags, call.stream)
            self._outbox += message[:size] if size < len(message) else message
        if call.is_closing and not call.has_closed:
            call.has_closed = True
            self._outbox += frame(DATA, END_STREAM, call.stream, b"")

    # The socket

    def _flush(self) -> None:
        if self._outbox:
            try:
                sent = self.socket.send(self._outbox)
            except BlockingIOError:
                return
            del self._outbox[:sent]

    def write(self) -> bool:
        """Give the kernel what it takes; whether something is left."""
        self._flush()
        return bool(self._outbox)

    def read(self) -> list[Call]:
        """Take what is there; the calls that ended well by it."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise CallError("the server closed the connection")
        inbox = self._inbox
        inbox += data
        ended, at = [], 0
        while len(inbox) - at >= 9:
            head, flags, stream = struct.unpack_from(">IBI", inbox, at)
            end = at + 9 + (head >> 8)
            if end > len(inbox):
                break
            call = self._take(head & 0xFF, flags, stream, bytes(inbox[at + 9 : end]))
            if call is not None:
                ended.append(call)
            at = end
        del inbox[:at]
        return ended

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> Call | None:
        if kind == DATA:
            self._taken += len(body)
            if self._taken > WINDOW_MAX // 2:
                self._outbox += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._taken))
                self._taken = 0
            if stream in self.calls:
                self.calls[stream].received += body
        elif kind == HEADERS:
            return self._take_headers(flags, stream, body)
        elif kind == WINDOW_UPDATE:
            self._take_room(stream, int.from_bytes(body, "big"))
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(body)
        elif kind == PING and not flags & ACK:
            self._outbox += frame(PING, ACK, 0, body)
        elif kind == RST_STREAM and stream in self.calls:
            raise CallError(f"the server broke call {stream} with code {int.from_bytes(body, 'big')}")
        elif kind == GOAWAY:
            raise CallError(f"the server ends the connection: {body!r}")
        return None

    def _take_headers(self, flags: int, stream: int, body: bytes) -> Call | None:
        if not flags & END_STREAM or stream not in self.calls:
            return None
        if b"grpc-status\x010" not in body:
            raise CallError(f"call {stream} ended with {body!r}")
        return self.calls.pop(stream)

    def _take_room(self, stream: int, size: int) -> None:
        if stream in self.calls:
            self.calls[stream].window += size
            self._push(self.calls[stream])
        elif not stream:
            self._window += size
            for call in list(self.calls.values()):
                self._push(call)

    def _take_settings(self, body: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", body):
            if name == INITIAL_WINDOW_SIZE:
                for call in self.calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
            elif name == MAX_FRAME_SIZE:
                self._frame_bytes = value
        self._outbox += frame(SETTINGS, ACK, 0, b"")
        for call in list(self.calls.values()):
            self._push(call)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
