"""Publishers and readers for bench/channel.py: plain HTTP by hand, so that the load is not the bottleneck."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from bench.kafka_process import BenchError, Process
from odradek.objects import ChannelReader, ObjectStore

START_SECONDS_MAX = 30.0
POLL_MS = 500
WAIT_MS = 1_000
_READY = re.compile(r"odradek ready .* http=(?P<host>[0-9.]+):(?P<port>[0-9]+)")


class Door:
    """A broker's HTTP door."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port

    @classmethod
    def of(cls, process: Process) -> Self:
        """Wait until a broker says where it is."""
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            process.check()
            found = _READY.search(process.log.read_text(errors="replace"))
            if found is not None:
                return cls(found["host"], int(found["port"]))
            time.sleep(0.02)
        raise BenchError("the broker did not start")

    def connect(self) -> http.client.HTTPConnection:
        """A connection of one's own, without delay."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def make_channel(self, name: str) -> str:
        """Make a channel and register; the key."""
        connection = self.connect()
        ask(connection, "PUT", "/create_topic", {"topic": name})
        key: str = ask(connection, "POST", f"/register/{name}", {})["client_key"]
        connection.close()
        return key


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: object = None, key: str = "") -> Any:
    """One request; BenchError if it is refused."""
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, content, {"client_key": key} if key else {})
    response = connection.getresponse()
    answer = response.read()
    if response.status >= 300:
        raise BenchError(f"{method} {path}: {response.status} {answer[:300]!r}")
    return json.loads(answer) if answer else None


def publish_batches(
    door: Door, channel: str, key: str, size: int, batch: int, connections: int, seconds: float
) -> tuple[int, float]:
    """Publish batches over several connections for so long; how many messages were acknowledged, and the time."""
    counts = [0] * connections
    filler = "x" * max(size - len('{"_ts":1700000000000,"x":""}'), 0)
    began = time.monotonic()

    def run(number: int) -> None:
        connection = door.connect()
        while time.monotonic() < began + seconds:
            message = f'{{"_ts":{int(time.time() * 1_000)},"x":"{filler}"}}'
            ask(connection, "POST", f"/{channel}", f"[{','.join([message] * batch)}]".encode(), key)
            counts[number] += batch
        connection.close()

    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(run, range(connections)))
    return sum(counts), time.monotonic() - began


def publish_at_rate(door: Door, channel: str, key: str, rate: int, seconds: int) -> int:
    """Publish single messages that carry the time before their publish; how many."""
    gap = 1.0
    began = time.monotonic()

    def run(number: int) -> int:
        connection = door.connect()
        due = began + number * gap / rate
        sent = 0
        while due < began + seconds:
            time.sleep(max(due - time.monotonic(), 0.0))
            body = {"_ts": int(time.time() * 1_000), "sent": time.time()}
            ask(connection, "PUT", f"/{channel}", body, key)
            sent += 1
            due = max(due + gap, time.monotonic())
        connection.close()
        return sent

    with ThreadPoolExecutor(rate) as threads:
        return sum(threads.map(run, range(rate)))


def read_broker(door: Door, channel: str, key: str, latencies: list[float], stop: threading.Event) -> None:
    """Follow a channel through the broker."""
    connection = door.connect()
    timestamp, skip = int(time.time() * 1_000) - 60_000, 0
    while not stop.is_set():
        answer = ask(connection, "GET", f"/{channel}/{timestamp}?o={skip}&n=1000&wait_ms={WAIT_MS}", None, key)
        now = time.time()
        latencies += [now - message["sent"] for message in answer["messages"]]
        timestamp, skip = answer["next"]["timestamp"], answer["next"]["o"]
    connection.close()


def read_store(store: ObjectStore, channel: str, latencies: list[float], stop: threading.Event) -> None:
    """Follow a channel in the store, with no broker."""
    reader = ChannelReader(store, channel, start=int(time.time() * 1_000) - 60_000, poll_ms=POLL_MS)
    for message in reader.follow(stop):
        latencies.append(time.time() - json.loads(message.value or b"{}")["sent"])
