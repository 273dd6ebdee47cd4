"""The load of `bench.rest`, a process of its own: one request in flight on each of some connections that stay open.

Sockets and epoll, no client library: the requests are written once, and of an answer only its status, its length and
its end are looked at. What it prints is a line of JSON: requests answered in the time, all requests answered, seconds,
and the CPU seconds that it took itself, which say whether it was the load or the server that was slow.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass

RECEIVE_BYTES = 1 << 18
ANSWER_SECONDS_MAX = 20.0
LENGTH = b"content-length: "
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Outcome:
    """What a load was answered."""

    requests: int  # in the time measured
    requests_in_all: int  # with those of the warm-up and those that were under way at the end
    seconds: float
    cpu_seconds: float  # of the load itself


class Client:
    """One connection with one request under way."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._received = b""
        self._missing_bytes = 0  # of an answer whose head is here

    def ask(self) -> None:
        """Send the request; the kernel may take it piece by piece."""
        self.socket.sendall(self._request)

    def is_answered(self) -> bool:
        """Take what is there of the answer; True when it is whole."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError(f"the server closed a connection; it had said {self._received[:300]!r}")
        if self._missing_bytes:
            self._missing_bytes -= len(data)
            return not self._missing_bytes
        received = self._received + data
        end = received.find(HEAD_END)
        if end < 0:
            self._received = received
            return False
        if not received.startswith(b"HTTP/1.1 20"):
            raise ConnectionError(f"the server refused: {received[:300]!r}")
        at = received.find(LENGTH, 0, end)
        body_bytes = 0 if at < 0 else int(received[at + len(LENGTH) : received.index(b"\r", at)])
        self._received = b""
        self._missing_bytes = end + len(HEAD_END) + body_bytes - len(received)
        return not self._missing_bytes


def load(port: int, request: bytes, connections: int, warm_seconds: float, seconds: float) -> Outcome:
    """Ask on all connections, again and again; count what is answered behind the warm-up."""
    clients = [Client(port, request) for _ in range(connections)]
    by_number = {client.socket.fileno(): client for client in clients}
    epoll = select.epoll()
    for number in by_number:
        epoll.register(number, select.EPOLLIN)
    for client in clients:
        client.ask()
    begin = time.perf_counter() + warm_seconds
    warm = total = 0
    cpu = 0.0
    waiting = len(clients)
    is_warm = False
    now = time.perf_counter()
    while waiting:
        events = epoll.poll(ANSWER_SECONDS_MAX)
        if not events:
            raise ConnectionError(f"no answer for {ANSWER_SECONDS_MAX:.0f} s")
        now = time.perf_counter()
        if not is_warm and now >= begin:
            is_warm, begin, warm, cpu = True, now, total, time.process_time()
        if is_warm and now >= begin + seconds:
            break
        for number, _ in events:
            client = by_number[number]
            if client.is_answered():
                total += 1
                client.ask()
    measured, cpu = total - warm, time.process_time() - cpu
    for client in clients:
        client.socket.settimeout(ANSWER_SECONDS_MAX)
        while not client.is_answered():
            pass
        total += 1
        client.socket.close()
    return Outcome(measured, total, now - begin, cpu)


def main() -> int:
    """Read the request, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--warm", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    request = sys.stdin.buffer.read()
    try:
        outcome = load(arguments.port, request, arguments.connections, arguments.warm, arguments.seconds)
    except OSError as error:
        print(f"bench.rest_load: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
