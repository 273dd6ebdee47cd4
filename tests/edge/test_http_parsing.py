"""Heads and chunks as RFC 9112 words them: cut anywhere they are read the same, and h11 agrees on what is accepted."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.edge.http_parsing import HEAD_BYTES_MAX, ChunkReader, Head, HeadReader, page_bytes, parse_head
from odradek.edge.routing import NO_CONTENT, Page, RequestError

HEAD = (
    b"POST /publish?x=1 HTTP/1.1\r\nHost: x:80\r\nclient_key:  abc \t\r\nAccept: a\r\naccept: b\r\n"
    b"Empty:\r\nName: \xa0caf\xe9\x85\r\nContent-Length: 12\r\n\r\n"
)
CHUNKED = b"3\r\nabc\r\n0a;name=value;x\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


def take_head(*pieces: bytes) -> tuple[Head, bytes]:
    reader, buffer = HeadReader(), bytearray()
    for piece in pieces:
        buffer += piece
        head = reader.take(buffer)
        if head is not None:
            return head, bytes(buffer)
    raise AssertionError("no head in this")


def take_body(*pieces: bytes) -> tuple[bytes, bytes]:
    reader, buffer, body = ChunkReader(), bytearray(), b""
    for piece in pieces:
        buffer += piece
        while (data := reader.take(buffer)) != b"":
            if data is None:
                return body, bytes(buffer)
            body += data
    raise AssertionError("no end of a body in this")


def test_a_head_is_read_the_same_wherever_it_is_cut() -> None:
    whole, rest = take_head(HEAD + b"next")
    assert rest == b"next"
    assert (whole.method, whole.target, whole.body_bytes) == ("POST", b"/publish?x=1", 12)
    assert (whole.knows_chunks, whole.is_last, whole.awaits_continue) == (True, False, False)
    assert whole.headers == {
        "host": "x:80",
        "client_key": "abc",
        "accept": "a, b",
        "empty": "",
        "name": "\xa0café\x85",
        "content-length": "12",
    }
    for at in range(1, len(HEAD)):
        assert take_head(HEAD[:at], HEAD[at:]) == (whole, b"")
    assert take_head(*(bytes((byte,)) for byte in HEAD)) == (whole, b"")
    for at in range(5):
        assert take_head((b"\r\n\r\n" + HEAD)[:at], (b"\r\n\r\n" + HEAD)[at:])[0] == whole, "empty lines mean nothing"


@pytest.mark.parametrize(
    ("lines", "is_last"),
    [
        ("HTTP/1.0", True),
        ("HTTP/1.0\r\nConnection: keep-alive", True),
        ("HTTP/1.1\r\nHost: x", False),
        ("HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, Close", True),
        ("HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close", True),
        ("HTTP/1.1\r\nHost: x\r\nConnection: closed", False),
    ],
)
def test_the_last_request_of_a_connection_says_so(lines: str, is_last: bool) -> None:
    assert parse_head(f"GET / {lines}".encode()).is_last is is_last


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("GET / HTTP/1.1\r\nHost: x\r\nclient_key : abc", 400, "write client_key: VALUE"),
        ("GET / HTTP/1.1\r\nHost: x\r\nclient_key\t: abc", 400, "white space before its colon"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded", 400, "each in one line"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\tA: b", 400, "each in one line"),
        ("GET / HTTP/1.1\r\nHost: x\nA: b", 400, "line feed alone"),
        ("GET / HTTP/1.1\nHost: x", 400, "line feed alone"),
        ("GET / HTTP/1.1\r\nHost: x\rA: b", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\n: b", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA b", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\x7f", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nNäme: b", 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y", 400, "host comes twice"),
        ("GET / HTTP/1.1\r\nA: b", 400, "host is missing"),
        ("GET / HTTP/1.1\r\nHost: a b", 400, "host is no name"),
        ("GET / HTTP/1.1\r\nHost: a/b", 400, "host is no name"),
        ("GET / HTTP/1.0\r\nHost: b@c", 400, "host is no name"),
        ("GET  / HTTP/1.1\r\nHost: x", 400, "first line"),
        ("GET / HTTP/1.1 \r\nHost: x", 400, "first line"),
        ("GET /a b HTTP/1.1\r\nHost: x", 400, "first line"),
        ("GET /\r\nHost: x", 400, "first line"),
        ("G@T / HTTP/1.1\r\nHost: x", 400, "first line"),
        ("GET / http/1.1\r\nHost: x", 400, "first line"),
        ("", 400, "first line"),
        ("GET / HTTP/2.0\r\nHost: x", 505, "HTTP/1.1"),
        ("GET / HTTP/1.2\r\nHost: x", 505, "HTTP/1.1"),
    ],
)
def test_a_head_that_two_could_read_differently_is_refused_with_the_reason(text: str, status: int, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_head(text.encode("latin-1"))
    assert (caught.value.status, told in caught.value.detail) == (status, True), caught.value.detail


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
        ("Content-Length: 3\r\nContent-Length: 4", 400),
        ("Content-Length: 3\r\ncontent-length: 3", 400),
        ("Content-Length: 3, 3", 400),
        ("Content-Length: +3", 400),
        ("Content-Length: -3", 400),
        ("Content-Length: 0x3", 400),
        ("Content-Length: 3_0", 400),
        ("Content-Length: \xb2", 400),
        ("Content-Length: ", 400),
        ("Content-Length: " + "9" * 19, 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked, chunked", 501),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, identity", 501),
        ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: \x0bchunked", 400),
        ("Transfer-Encoding : chunked", 400),
        ("Transfer-Encoding:", 501),
    ],
)
def test_a_body_whose_length_is_in_doubt_is_refused(headers: str, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        parse_head(f"POST / HTTP/1.1\r\nHost: x\r\n{headers}".encode("latin-1"))
    assert caught.value.status == status


def test_chunks_are_not_for_old_clients() -> None:
    with pytest.raises(RequestError, match=r"HTTP/1\.0"):
        parse_head(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked")
    assert parse_head(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked").body_bytes == -1


@pytest.mark.parametrize(
    ("part", "status"),
    [
        (b"\x16", 400),
        (b" GET", 400),
        (b"\r\n\r\r", 400),
        (b"\rGET", 400),
        (b"\n", 400),
        (b"GET / HTTP/1.1\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\n", 400),
        (b"x" * (HEAD_BYTES_MAX + 1), 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_can_become_no_head_is_refused_at_once(part: bytes, status: int) -> None:
    for pieces in ([part], [bytes((byte,)) for byte in part]):
        reader, buffer = HeadReader(), bytearray()
        with pytest.raises(RequestError) as caught:
            for piece in pieces:
                buffer += piece
                assert reader.take(buffer) is None
        assert caught.value.status == status


def test_chunks_are_read_the_same_wherever_they_are_cut() -> None:
    assert take_body(CHUNKED + b"next") == (b"abc0123456789", b"next")
    for at in range(1, len(CHUNKED)):
        assert take_body(CHUNKED[:at], CHUNKED[at:] + b"next") == (b"abc0123456789", b"next")
    assert take_body(*(bytes((byte,)) for byte in CHUNKED)) == (b"abc0123456789", b"")
    assert take_body(b"00\r\n\r\nnext") == (b"", b"next")


@pytest.mark.parametrize(
    "body",
    [
        b"\r\n", b"x\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b" 3\r\nabc\r\n", b"3\nabc\n", b"3 \r\nabc\r\n",
        b"3\r\nabcd\r\n", b"3\r\nabcde0\r\n\r\n", b"3\r\nabc\n0\n\n", b"3\r\nab\r\n\r\n",
        b"3;a\nb\r\nabc\r\n", b"3;a\rb\r\nabc\r\n",
        b"1" + b"0" * 15 + b"\r\n", b"3;" + b"x" * 2000, b"3;" + b"x" * 2000 + b"\r\nabc\r\n",
        b"0\r\nbad trailer\r\n\r\n", b"0\r\n folded: x\r\n\r\n", b"0\r\nA : x\r\n\r\n", b"0\r\nA: x\nB: y\r\n\r\n",
        b"0\r\n" + b"A: x\r\n" * 5000,
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_chunks_that_two_could_read_differently_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        take_body(body)
    assert caught.value.status in (400, 431)


_PIECES = st.sampled_from(
    [
        b"GET", b"POST", b" ", b"/", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\n", b"\r", b"\t", b":", b",", b"Host: x",
        b"Content-Length: 5", b"Content-Length", b"Transfer-Encoding: chunked", b"chunked", b"Connection: close",
        b"Expect: 100-continue", b"A: b", b"5", b"0", b"\0", b"\xff", b"\xa0",
    ]
)  # fmt: skip
_MUTATED = st.tuples(st.integers(0, 60), st.integers(0, 3), st.lists(_PIECES, max_size=4))


@given(st.lists(_MUTATED, max_size=3))
def test_h11_reads_every_accepted_head_the_same(mutations: list[tuple[int, int, list[bytes]]]) -> None:
    data = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nA: b"
    for at, cut, pieces in mutations:
        data = data[:at] + b"".join(pieces) + data[at + cut :]
    data = data.partition(b"\r\n\r\n")[0]
    try:
        head = parse_head(data)
    except RequestError:
        return
    oracle = h11.Connection(h11.SERVER)
    oracle.receive_data(data + b"\r\n\r\n")
    event = oracle.next_event()
    assert isinstance(event, h11.Request), "what h11 refuses is refused here"
    theirs: dict[str, str] = {}
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers):
        theirs[name] = f"{theirs[name]}, {value}" if name in theirs else value
    assert (head.method.encode(), head.target, head.headers) == (event.method, event.target, theirs)
    assert head.awaits_continue == oracle.they_are_waiting_for_100_continue
    following = oracle.next_event()
    assert isinstance(following, h11.EndOfMessage) == (head.body_bytes == 0)


def test_an_answer_is_written_as_one_that_h11_reads() -> None:
    page = Page(b"fine\n", "text/plain", 201, (("x-why", "because"),))
    assert page_bytes(page, with_body=True, is_last=True) == (
        b"HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nx-why: because\r\nconnection: close\r\n"
        b"content-length: 5\r\n\r\nfine\n"
    )
    assert page_bytes(page, with_body=False, is_last=False).endswith(b"content-length: 5\r\n\r\n")
    assert page_bytes(NO_CONTENT, with_body=True, is_last=False) == b"HTTP/1.1 204 No Content\r\n\r\n"
    for value in ("a\r\nb: c", "a\nb", "a\r"):
        with pytest.raises(ValueError, match="line end"):
            page_bytes(page._replace(headers=(("x", value),)), with_body=True, is_last=False)
