"""NATS JetStream for the comparison: a driver over one plain socket, and the loads in its terms.

It speaks just enough of the protocol to publish with acknowledgements and to pull; answers are counted, not parsed,
so that Python costs little beside the server.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from bench.kafka_pace import Schedule
from bench.kafka_process import BenchError, Deadline

WINDOW = 4096  # records under way, unacknowledged
PULL = 1024  # two requests ahead of the largest records stay well below what the server queues for a client
LOAD_SECONDS = 180.0
_MARK = b"odradek-bench-record:"
_ACKNOWLEDGED = b'"seq":'
_RECV_BYTES = 1 << 18
_RETRY_SECONDS = 0.002


class NatsConnection:
    """One connection."""

    def __init__(self, port: int, timeout_seconds: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tail = b""
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1"}\r\nPING\r\n')
        self._until(b"PONG\r\n")
        self.socket.sendall(b"SUB answers 1\r\n")

    def __enter__(self) -> NatsConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def ask(self, subject: str, question: dict[str, Any]) -> None:
        """Ask JetStream's API; raise when it answers with an error."""
        self.socket.sendall(publication(subject, json.dumps(question).encode()))
        answer = self._until(b"}\r\n")
        if b'"error"' in answer:
            raise BenchError(f"NATS refused {subject}: {answer.decode(errors='replace')}")

    def count(self, what: bytes) -> int:
        """Receive once, and count how often a text occurs; one that is cut by the end counts the next time."""
        data = self.socket.recv(_RECV_BYTES)
        if not data:
            raise BenchError("NATS closed the connection")
        if b"PING\r\n" in data:
            self.socket.sendall(b"PONG\r\n")
        data = self._tail + data
        self._tail = data[1 - len(what) :]
        return data.count(what)

    def _until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            chunk = self.socket.recv(_RECV_BYTES)
            if not chunk:
                raise ConnectionResetError("NATS closed the connection")
            data += chunk
        return data


def publication(subject: str, payload: bytes) -> bytes:
    """One message that wants an answer."""
    return b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)


def record_of(size: int) -> bytes:
    """A payload of this size that can be counted."""
    return (_MARK + b"x" * size)[:size]


def create_stream(connection: NatsConnection, name: str) -> None:
    """A stream in files, for the subject of the same name."""
    wanted = {"name": name, "subjects": [name], "storage": "file", "retention": "limits", "num_replicas": 1}
    connection.ask(f"$JS.API.STREAM.CREATE.{name}", wanted)


def publish_one(port: int, stream: str, alive: Callable[[], None], timeout_seconds: float) -> None:
    """Have one record acknowledged, with a stream made for it; try again, quickly, until then."""
    deadline = Deadline(timeout_seconds, "waiting for the first acknowledged record")
    while True:
        with contextlib.suppress(OSError), NatsConnection(port, max(0.1, deadline.left())) as connection:
            create_stream(connection, stream)
            connection.socket.sendall(publication(stream, b"first"))
            if connection.count(_ACKNOWLEDGED):
                return
        alive()
        deadline.check()
        time.sleep(_RETRY_SECONDS)


def publish_many(port: int, stream: str, size: int, count: int) -> float:
    """Publish so many records with at most WINDOW under way; give the seconds until all are acknowledged."""
    message = publication(stream, record_of(size))
    group = max(1, min(64, 65536 // len(message)))
    deadline = Deadline(LOAD_SECONDS, f"publishing {count} records to NATS")
    with NatsConnection(port) as connection:
        create_stream(connection, stream)
        connection.socket.setblocking(False)
        pending = memoryview(b"")
        sent = acknowledged = 0
        begin = time.perf_counter()
        while acknowledged < count:
            if not pending and sent < count and sent - acknowledged < WINDOW:
                now = min(group, count - sent)
                pending = memoryview(message * now)
                sent += now
            readable, writable, _ = select.select(
                [connection.socket], [connection.socket] if pending else [], [], deadline.left()
            )
            deadline.check()
            if writable:
                pending = pending[connection.socket.send(pending) :]
            if readable:
                acknowledged += connection.count(_ACKNOWLEDGED)
        return time.perf_counter() - begin


def pull_many(port: int, stream: str, count: int) -> float:
    """Pull so many records from the start of a stream, two requests ahead; give the seconds."""
    deadline = Deadline(LOAD_SECONDS, f"pulling {count} records from NATS")
    with NatsConnection(port) as connection:
        wanted = {"durable_name": "bench", "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant"}
        connection.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.bench", {"stream_name": stream, "config": wanted})
        question = publication(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.bench", b'{"batch":%d}' % PULL)
        begin = time.perf_counter()
        asked = got = 0
        while got < count:
            while asked < min(count, got + 2 * PULL):
                connection.socket.sendall(question)
                asked += PULL
            connection.socket.settimeout(max(0.1, deadline.left()))
            got += connection.count(_MARK)
            deadline.check()
        return time.perf_counter() - begin


def paced_publishing(port: int, stream: str, size: int, schedule: Schedule) -> None:
    """Publish to a schedule over one connection; acknowledgements come in the order of publishing."""
    message = publication(stream, record_of(size))
    with NatsConnection(port) as connection:
        create_stream(connection, stream)

        def receive() -> None:
            try:
                while schedule.done_count < schedule.count:
                    for _ in range(connection.count(_ACKNOWLEDGED)):
                        schedule.acknowledge(schedule.done_count)
            except (OSError, BenchError) as error:
                print(f"  NATS: {error}", file=sys.stderr)

        receiver = threading.Thread(target=receive, name="nats-answers", daemon=True)
        receiver.start()
        schedule.run(lambda _number: connection.socket.sendall(message))
        receiver.join(1)
