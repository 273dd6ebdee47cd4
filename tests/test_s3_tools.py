"""The tools with which stores are tested: the S3 server dies with who started it, the proxy counts what passes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counting import CountingProxy, Request, body_bytes, request_of
from tests.process import wait_until

START_AND_HANG = """
import pathlib, signal, sys
from tests.s3 import S3Server
server = S3Server(pathlib.Path(sys.argv[1])).start()
print(server.pid, *server.sockets(), flush=True)
signal.pause()
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def endpoint_of(server: socket.socket) -> str:
    """Where a socket listens."""
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def connect(proxy: CountingProxy) -> socket.socket:
    """Speak to a proxy by hand."""
    return socket.create_connection(("127.0.0.1", int(proxy.endpoint.rpartition(":")[2])))


@pytest.mark.xdist_group("s3")
def test_the_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", START_AND_HANG, str(tmp_path / "s3")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": "."}) as parent:
        assert parent.stdout is not None
        words = parent.stdout.readline().split()
        pid = int(words[0])
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), what="the end of the server")
    for path in words[1:]:
        Path(os.fsdecode(path)).unlink()


def test_requests_are_told_apart() -> None:
    listing = b"GET /bucket?list-type=2&prefix=a%2Fb%2F&start-after=a%2Fb%2Fc HTTP/1.1\r\nhost: x"
    assert request_of(listing) == Request("LIST", "a/b/")
    assert request_of(b"GET /bucket/a/%21late/b HTTP/1.1") == Request("GET", "a/!late/b")
    assert request_of(b"POST /bucket?delete HTTP/1.1\r\nhost: x") == Request("POST", "")


def test_the_length_of_a_body_is_found() -> None:
    assert body_bytes(b"PUT /b/k HTTP/1.1\r\nhost: x\r\nContent-Length: 12") == 12
    assert body_bytes(b"GET /b/k HTTP/1.1\r\nhost: x") == 0


def test_pipelined_requests_pass_byte_for_byte_and_are_counted() -> None:
    put = b"PUT /b/k HTTP/1.1\r\nHost: proxy\r\ncontent-length: 5\r\n\r\nab\r\nc"
    sent = put + b"GET /b/k HTTP/1.1\r\nHost: proxy\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as behind, CountingProxy(endpoint_of(behind)) as proxy:
        with connect(proxy) as client:
            server, _ = behind.accept()
            with server:
                for cut in range(0, len(sent), 7):
                    client.sendall(sent[cut : cut + 7])
                assert server.recv(len(sent), socket.MSG_WAITALL) == sent
                server.sendall(b"answer")
                assert client.recv(6, socket.MSG_WAITALL) == b"answer"
            assert client.recv(1) == b"", "when the server hangs up the client learns of it"
        assert proxy.requests() == [Request("PUT", "k"), Request("GET", "k")]
        assert proxy.counts() == {"PUT": 1, "GET": 1} and proxy.keys("GET") == ["k"]
        proxy.reset()
        assert proxy.requests() == []


def test_a_proxy_before_nothing_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        nobody = endpoint_of(reserved)
    with CountingProxy(nobody) as proxy, connect(proxy) as client:
        assert client.recv(1) == b""
