"""A proxy on loopback before an S3 server that writes down every request: what a reader touched, and what it costs.

Bytes pass as they came, the Host header too (the signature covers it); only the heads of requests are looked at.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

PIECE_BYTES = 64 * 1024
HEAD_BYTES_MAX = 64 * 1024


class Request(NamedTuple):
    """One request: GET, PUT, HEAD, DELETE or POST of a key, or LIST of a prefix."""

    method: str
    key: str


class CountingProxy:
    """Listens on a port of its own and passes all on to `endpoint`; use `proxy.endpoint` in its place."""

    def __init__(self, endpoint: str) -> None:
        behind = urlsplit(endpoint)
        assert behind.hostname is not None and behind.port is not None
        self._behind = (behind.hostname, behind.port)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._threads: list[threading.Thread] = []
        self._sockets: set[socket.socket] = set()
        self._is_closed = self._is_silent = False
        self.unheard = 0  # answers, or pieces of them, that `silent` has kept back
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._run(self._accept)

    def requests(self) -> list[Request]:
        """All requests since the start or the last `reset`, in the order of their arrival."""
        with self._lock:
            return list(self._requests)

    def counts(self) -> Counter[str]:
        """How many requests of each method."""
        return Counter(request.method for request in self.requests())

    def keys(self, method: str) -> list[str]:
        """The keys (of a LIST: the prefixes) that requests of a method named."""
        return [request.key for request in self.requests() if request.method == method]

    def reset(self) -> None:
        """Forget the requests so far."""
        with self._lock:
            self._requests.clear()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Requests reach the server, its answers nobody; at the end all connections are cut."""
        self._is_silent = True
        try:
            yield
        finally:
            with self._lock:
                self._is_silent = False
                open_ones = list(self._sockets)
            for each in open_ones:
                _hang_up(each)

    def close(self) -> None:
        """Cut all connections and end."""
        with self._lock:
            self._is_closed = True
            open_ones, self._sockets = self._sockets, set()
        for each in (self._listener, *open_ones):
            _hang_up(each)
        for thread in self._threads:
            thread.join(10)
        for each in (self._listener, *open_ones):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, target: object, *given: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=given, name="counting proxy", daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._run(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._behind)
        except OSError:  # the server is away: so are we
            client.close()
            return
        with self._lock:
            if not self._is_closed:
                self._sockets |= {client, server}
        if client not in self._sockets:
            client.close()
            server.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._answer, args=(server, client), name="counting proxy", daemon=True)
        back.start()
        with suppress(OSError):
            self._forward(client, server)
        _hang_up(server)  # ends the copying, too
        back.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on requests until the client hangs up."""
        waiting = b""
        while True:
            while b"\r\n\r\n" not in waiting:
                piece = client.recv(PIECE_BYTES)
                if not piece:
                    return
                waiting += piece
                assert len(waiting) <= HEAD_BYTES_MAX + PIECE_BYTES
            head, _, rest = waiting.partition(b"\r\n\r\n")
            with self._lock:
                self._requests.append(request_of(head))
            server.sendall(head + b"\r\n\r\n")
            waiting = _pass_body(body_bytes(head), rest, client, server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass on answers, unread, until the server hangs up; then the client learns of it."""
        with suppress(OSError):
            while piece := server.recv(PIECE_BYTES):
                if self._is_silent:
                    self.unheard += 1
                else:
                    client.sendall(piece)
        _hang_up(client)


def request_of(head: bytes) -> Request:
    """Read the first line of a request in path style: /bucket/key?query."""
    method, target = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")[:2]
    url = urlsplit(target)
    key, query = unquote(url.path.removeprefix("/").partition("/")[2]), parse_qs(url.query, keep_blank_values=True)
    if method == "GET" and not key and "list-type" in query:
        return Request("LIST", query.get("prefix", [""])[0])
    return Request(method, key)


def body_bytes(head: bytes) -> int:
    """How long the body is that follows; S3 wants it said beforehand."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        assert name.lower() != b"transfer-encoding", "a chunked request is not for S3"
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _pass_body(size: int, begun: bytes, client: socket.socket, server: socket.socket) -> bytes:
    """Pass on so many bytes, `begun` first; return what came beyond them."""
    if begun[:size]:
        server.sendall(begun[:size])
    missing = size - len(begun)
    while missing > 0:
        piece = client.recv(min(missing, PIECE_BYTES))
        if not piece:
            raise ConnectionResetError
        server.sendall(piece)
        missing -= len(piece)
    return begun[size:]


def _hang_up(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
