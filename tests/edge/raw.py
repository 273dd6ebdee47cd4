"""A client that can do wrong: a socket, frames of any kind, and answers read by hand."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from odradek.wire.api import response_header_version
from odradek.wire.headers import RequestHeader, decode_response_header, encode_request_header
from odradek.wire.messages import fetch, produce
from odradek.wire.schema import Message


class RawClient:
    """One connection to a broker."""

    def __init__(self, port: int, timeout_seconds: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._correlation_id = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def request_bytes(self, message: Message, version: int, *, body: bytes | None = None) -> bytes:
        """A request as a frame's content; with `body`, that instead of the message's own bytes."""
        self._correlation_id += 1
        header = RequestHeader(message.api_key, version, self._correlation_id, "raw")
        return encode_request_header(header) + (message.encode(version) if body is None else body)

    def ask(self, message: Message, answer: type[Message], version: int) -> Message:
        """Send a request and read its answer."""
        self.send_frame(self.request_bytes(message, version))
        return self.read_answer(answer, version)

    def read_answer(self, answer: type[Message], version: int) -> Message:
        frame = self.read_frame()
        flexible = response_header_version(answer.api_key, version) == 1
        correlation_id, at = decode_response_header(frame, flexible)
        assert correlation_id == self._correlation_id
        return answer.decode(memoryview(frame), version, at)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(min(count - len(data), 1 << 20))
            assert more, f"the broker closed the connection after {len(data)} of {count} bytes"
            data += more
        return data

    def is_closed_by_broker(self) -> bool:
        """Wait for the broker to hang up; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def produce_request(topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> produce.Request:
    """A request with one batch."""
    sent = produce.RequestPartition(index=partition, records=records)
    return produce.Request(
        acks=acks, timeout_ms=10_000, topic_data=[produce.RequestTopic(name=topic, partition_data=[sent])]
    )


def produce_code(client: RawClient, topic: str, records: bytes, version: int = 9) -> int:
    """Send one batch and say which error it met; 0 if none."""
    answer = client.ask(produce_request(topic, records), produce.Response, version)
    assert isinstance(answer, produce.Response)
    return answer.responses[0].partition_responses[0].error_code


def fetch_request(topic: str, offset: int = 0, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0) -> fetch.Request:
    """A request for one partition."""
    wanted = fetch.RequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return fetch.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[fetch.RequestTopic(topic=topic, partitions=[wanted])],
    )
