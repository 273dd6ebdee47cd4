"""A handful of Kafka requests by hand, for what a real client would blur: the first acknowledgement, one request at a
time, the cost of one Metadata answer. Fixed versions that every broker since 2.1 takes; not a client.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from bench.kafka_process import BenchError, Deadline
from odradek.records.build import build_batch
from odradek.records.record import NewRecord

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
_PRODUCE_VERSION, _METADATA_VERSION = 7, 4
_TIMEOUT_MS = 30_000
_RETRY_SECONDS = 0.002
_ACCEPT_SECONDS = 30.0
_CLIENT = "bench"


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A whole request, its length first. The correlation id is always one: answers come in order."""
    content = struct.pack(">hhi", api_key, version, 1) + _string(_CLIENT) + body
    return struct.pack(">i", len(content)) + content


def produce_frame(topic: str, partition: int, value: bytes) -> bytes:
    """One record in one batch for one partition, acks=all."""
    batch = build_batch([NewRecord(value=value, timestamp=int(time.time() * 1000))])
    body = struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1) + _string(topic)
    return frame(PRODUCE, _PRODUCE_VERSION, body + struct.pack(">iii", 1, partition, len(batch)) + bytes(batch))


def produce_answer(topic: str, partition: int) -> bytes:
    """What an answer to `produce_frame` begins with when the record was taken; without the length."""
    return struct.pack(">ii", 1, 1) + _string(topic) + struct.pack(">iih", 1, partition, 0)


def metadata_frame(topics: Sequence[str] | None, create: bool = False) -> bytes:
    """Ask for some topics, to be made if they are not there, or for all."""
    wanted = struct.pack(">i", -1 if topics is None else len(topics)) + b"".join(map(_string, topics or ()))
    return frame(METADATA, _METADATA_VERSION, wanted + bytes([create]))


def api_versions_frame() -> bytes:
    """Ask which requests the broker knows: the smallest question with an answer."""
    return frame(API_VERSIONS, 0, b"")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        """One integer of a struct code."""
        (value,) = struct.unpack_from(">" + code, self._data, self._at)
        self._at += struct.calcsize(">" + code)
        return int(value)

    def skip_string(self) -> None:
        """Go past a string, null or not."""
        size = self.number("h")
        self._at += max(0, size)

    def skip_ids(self) -> None:
        """Go past an array of node ids."""
        count = self.number("i")
        self._at += 4 * count


def partitions_led(answer: bytes) -> int:
    """How many partitions in a Metadata answer have a leader and no error."""
    reader = _Reader(answer)
    reader.number("i")  # correlation id
    reader.number("i")  # throttle time
    for _ in range(reader.number("i")):
        reader.number("i")
        reader.skip_string()
        reader.number("i")
        reader.skip_string()
    reader.skip_string()  # cluster id
    reader.number("i")  # controller
    led = 0
    for _ in range(reader.number("i")):
        topic_error = reader.number("h")
        reader.skip_string()
        reader.number("b")  # internal
        for _ in range(reader.number("i")):
            error = reader.number("h")
            reader.number("i")
            leader = reader.number("i")
            reader.skip_ids()
            reader.skip_ids()
            led += not topic_error and not error and leader >= 0
    return led


class Connection:
    """One blocking connection."""

    def __init__(self, port: int, timeout_seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def call(self, request: bytes) -> bytes:
        """Send a frame, give the answer's body with its header."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            data += chunk
        return bytes(data)


def produce_one(port: int, topic: str, alive: Callable[[], None], timeout_seconds: float) -> None:
    """Have one record acknowledged, with a topic made for it; try again, quickly, until then.

    `alive` is called between tries and raises when there is nobody to wait for.
    """
    deadline = Deadline(timeout_seconds, "waiting for the first acknowledged record")
    expected = produce_answer(topic, 0)
    while True:
        with contextlib.suppress(OSError), Connection(port, max(0.1, deadline.left())) as connection:
            while deadline.left():
                if partitions_led(connection.call(metadata_frame([topic], create=True))):
                    answer = connection.call(produce_frame(topic, 0, b"first"))
                    if answer.startswith(expected):
                        return
                alive()
                time.sleep(_RETRY_SECONDS)
        alive()
        deadline.check()
        time.sleep(_RETRY_SECONDS)


def produce_accepted(connection: Connection, request: bytes, expected: bytes) -> None:
    """Send a prepared record until it is taken: a partition may have a leader on paper before it has one."""
    deadline = Deadline(_ACCEPT_SECONDS, "waiting for a new partition to take a record")
    while not (answer := connection.call(request)).startswith(expected):
        if not deadline.left():
            code = int.from_bytes(answer[len(expected) - 2 : len(expected)], "big", signed=True)
            raise BenchError(f"the broker refuses a record with error code {code}")
        time.sleep(_RETRY_SECONDS)
