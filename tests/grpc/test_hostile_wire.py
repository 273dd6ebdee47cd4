"""What is no gRPC, or HTTP/2 at its worst, on the port of gRPC: others are served meanwhile and afterwards."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from bench.grpc_http2 import (
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    frame,
)
from tests.grpc.doors import Doors, is_well
from tests.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("grpc-wire")

MIB = 1 << 20
HELLO = PREFACE + frame(SETTINGS, 0, 0, b"")
PATH = "/mykafka.Broker/BrokerInfo"
OPENING = call_headers(PATH, "127.0.0.1")


def connect(broker: BrokerProcess) -> socket.socket:
    host, _, port = broker.grpc.rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def send(broker: BrokerProcess, data: bytes) -> bytes:
    """Send it, end, and tell what was said until the broker hung up or had nothing more to say."""
    heard = b""
    with connect(broker) as client:
        with contextlib.suppress(OSError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while more := client.recv(65_536):
                heard += more
    return heard


@pytest.fixture(autouse=True)
def _others_are_served(broker: BrokerProcess, doors: Doors) -> Iterator[None]:
    before, said = broker.memory_bytes(), len(broker.log())
    yield
    assert is_well(doors)
    assert broker.memory_bytes() - before < 48 * MIB
    assert "Traceback" not in broker.log()[said:]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /mykafka.Broker/SendMessage HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        struct.pack(">ihhi", 10, 18, 0, 1) + b"\xff\xff",  # a client of Kafka
        PREFACE[:10],
        PREFACE + b"\xff" * 100,
        HELLO + b"\x00\x00\x04\x63\x00\x00\x00\x00\x01what",  # a kind of frame that does not exist
        HELLO + frame(DATA, 0, 1, b"data of a stream that was never opened"),
        HELLO + frame(HEADERS, END_HEADERS, 2, OPENING),  # clients have odd numbers
        HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff" * 50),
        HELLO + frame(HEADERS, END_HEADERS, 1, OPENING) + frame(DATA, 1, 1, b"\x01\xff\xff\xff\xff"),
        HELLO + frame(HEADERS, END_HEADERS, 1, OPENING) + frame(DATA, 1, 1, b"\x00\x00\x00\x00\x05abc"),
        HELLO + frame(HEADERS, END_HEADERS, 1, OPENING) + frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") * 2,
        HELLO + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",  # a frame of 16 MiB
    ],
    ids=range(15),
)
def test_what_is_no_grpc_is_turned_away(broker: BrokerProcess, data: bytes) -> None:
    send(broker, data)


def test_random_bytes_are_turned_away(broker: BrokerProcess) -> None:
    chance = random.Random(7)
    for _ in range(50):
        body = chance.randbytes(chance.randrange(1, 2_000))
        send(broker, chance.choice((b"", PREFACE, HELLO, HELLO + frame(HEADERS, END_HEADERS, 1, OPENING))) + body)


def test_a_client_that_wants_tls_is_told_no(broker: BrokerProcess) -> None:
    context = ssl.create_default_context()
    with connect(broker) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")


def test_headers_without_end_are_refused(broker: BrokerProcess) -> None:
    one = b"\x00\x04name\x7f\x81\x3f" + b"x" * 8_192  # literal; 127 and 8,065 more, in 7-bit groups
    many = b"".join(frame(9, 0, 1, one) for _ in range(500))  # CONTINUATION, never the last one
    send(broker, HELLO + frame(HEADERS, 0, 1, OPENING) + many)


def test_calls_that_are_reset_as_soon_as_they_begin_cost_little(broker: BrokerProcess) -> None:
    with connect(broker) as client, contextlib.suppress(OSError):
        client.sendall(HELLO)
        for first in range(1, 10_000, 200):
            client.sendall(
                b"".join(
                    frame(HEADERS, END_HEADERS, stream, OPENING) + frame(RST_STREAM, 0, stream, b"\x00\x00\x00\x08")
                    for stream in range(first, first + 200, 2)
                )
            )


def test_floods_of_pings_and_settings_end_the_connection_or_are_answered(broker: BrokerProcess) -> None:
    with connect(broker) as client, contextlib.suppress(OSError):
        client.settimeout(2)  # nobody reads the answers here: at some time nothing more is taken
        client.sendall(HELLO)
        for _ in range(200):
            client.sendall(
                frame(PING, 0, 0, b"12345678") * 100 + frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff") * 50
            )


def test_connections_that_say_nothing_do_not_keep_others_out(broker: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            client = stack.enter_context(connect(broker))
            client.sendall((b"", PREFACE[:5], HELLO, HELLO + frame(HEADERS, 0, 1, OPENING))[number % 4])
        with Doors(broker.grpc) as another:
            assert is_well(another)
