"""The link between HTTP doors: kept open, one request at a time, and honest about what may have happened."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import pytest

from odradek.client.http import HttpError, HttpLink
from tests.client.support import asynchronous, until

Answer = Callable[[bytes, bytes], Awaitable[bytes | None]]  # head and body of a request -> what to send; None: hang up


def page(content: object, status: str = "200 OK", extra: str = "") -> bytes:
    body = json.dumps(content).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body


async def echo(head: bytes, body: bytes) -> bytes:
    return page({"head": head.decode(), "body": json.loads(body) if body else None})


class Door:
    """A server that answers as it is told."""

    def __init__(self, answer: Answer = echo) -> None:
        self.answer = answer
        self.connections = 0
        self.requests = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                body = await reader.readexactly(int(length.split(b":")[1]))
                self.requests += 1
                answer = await self.answer(head, body)
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynchronous
async def test_json_goes_out_and_comes_back_with_our_headers() -> None:
    async with Door() as door:
        link = HttpLink(door.address, headers={"x-odradek-cluster": "c"})
        status, answer = await link.post("/kraft/v1/x", {"a": [1, "ü"]}, 5_000)
        assert status == 200
        assert answer["body"] == {"a": [1, "ü"]}
        assert answer["head"].startswith("POST /kraft/v1/x HTTP/1.1\r\n")
        assert "x-odradek-cluster: c" in answer["head"].lower()
        link.headers["x-odradek-cluster"] = "d"
        _, answer = await link.get("/page", 5_000)
        assert answer["head"].startswith("GET /page ")
        assert "x-odradek-cluster: d" in answer["head"].lower()
        await link.close()


@asynchronous
async def test_bytes_that_must_not_be_written_anew_stay_as_they_are() -> None:
    async def same(_head: bytes, body: bytes) -> bytes:
        return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async with Door(same) as door:
        link = HttpLink(door.address)
        assert await link.send("PUT", "/x", b'{"a" : 1.00}', 5_000) == (200, b'{"a" : 1.00}')
        assert await link.send("GET", "/x", b"", 5_000) == (200, b"")
        await link.close()


@asynchronous
async def test_one_connection_serves_many_requests_one_after_the_other() -> None:
    async with Door() as door:
        link = HttpLink(door.address)
        answers = await asyncio.gather(*(link.post("/x", {"n": n}, 5_000) for n in range(20)))
        assert [answer["body"]["n"] for _, answer in answers] == list(range(20))
        assert door.connections == link.connection_count == 1
        await link.close()


@asynchronous
async def test_a_status_is_an_answer_and_not_an_error() -> None:
    async def refuse(head: bytes, body: bytes) -> bytes:
        return page({"detail": "no"}, "421 Misdirected Request")

    async def nothing(head: bytes, body: bytes) -> bytes:
        return b"HTTP/1.1 204 No Content\r\n\r\n"

    async with Door(refuse) as door:
        link = HttpLink(door.address)
        assert await link.post("/x", {}, 5_000) == (421, {"detail": "no"})
        door.answer = nothing
        assert await link.post("/x", {}, 5_000) == (204, None)
        await link.close()


@asynchronous
async def test_nobody_at_the_address_means_the_request_was_never_sent() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    link = HttpLink(("127.0.0.1", port))
    with pytest.raises(HttpError, match=f"127.0.0.1:{port} cannot be reached: the connection was refused") as caught:
        await link.post("/x", {}, 5_000)
    assert caught.value.kind == "refused"
    with pytest.raises(HttpError, match="cannot be reached"):
        await HttpLink(("a" * 64, 1)).get("/x", 5_000)
    await link.close()


@asynchronous
async def test_an_answer_that_does_not_come_in_time_is_given_up_and_the_link_works_again() -> None:
    silence = asyncio.Event()

    async def silent(head: bytes, body: bytes) -> bytes:
        await silence.wait()
        return page("late")

    async with Door(silent) as door:
        link = HttpLink(door.address)
        with pytest.raises(HttpError, match="did not answer /x within 30 ms") as caught:
            await link.post("/x", {}, 30)
        assert caught.value.kind == "timeout"
        silence.set()
        door.answer = echo
        assert (await link.post("/y", {"n": 1}, 5_000))[1]["body"] == {"n": 1}
        await link.close()


@asynchronous
async def test_a_request_that_is_cancelled_does_not_leave_its_answer_to_the_next() -> None:
    release = asyncio.Event()

    async def slow(head: bytes, body: bytes) -> bytes:
        await release.wait()
        return page({"body": json.loads(body)})

    async with Door(slow) as door:
        link = HttpLink(door.address)
        first = asyncio.create_task(link.post("/x", {"n": 1}, 5_000))
        await until(lambda: door.requests == 1)
        first.cancel()
        following = asyncio.create_task(link.post("/x", {"n": 2}, 5_000))
        release.set()
        assert (await following)[1]["body"] == {"n": 2}
        await link.close()


@asynchronous
async def test_a_connection_that_breaks_under_a_request_is_told_and_made_anew() -> None:
    async def hang_up(head: bytes, body: bytes) -> None:
        return None

    lost: list[int] = []
    async with Door(hang_up) as door:
        link = HttpLink(door.address, on_lost=lambda: lost.append(1))
        with pytest.raises(HttpError, match="closed the connection") as caught:
            await link.post("/x", {}, 5_000)
        assert caught.value.kind == "broken"
        await until(lambda: lost == [1])
        door.answer = echo
        assert (await link.get("/x", 5_000))[0] == 200
        assert link.connection_count == 2
        await link.close()
        assert lost == [1]  # closing it ourselves is no loss


@asynchronous
async def test_the_loss_of_an_idle_connection_is_told() -> None:
    lost: list[int] = []
    async with Door() as door:
        link = HttpLink(door.address, on_lost=lambda: lost.append(1))
        await link.get("/x", 5_000)
        door.hang_up()
        await until(lambda: lost == [1])
        assert (await link.get("/x", 5_000))[0] == 200
        await link.close()


@asynchronous
async def test_an_answer_that_asks_to_close_is_honoured() -> None:
    async def last(head: bytes, body: bytes) -> bytes:
        return page("last", extra="connection: close\r\n")

    async with Door(last) as door:
        link = HttpLink(door.address)
        assert (await link.get("/x", 5_000))[1] == "last"
        assert (await link.get("/x", 5_000))[1] == "last"
        assert link.connection_count == 2
        await link.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-hello\r\n\r\n", "cannot be read"),
        (page("x" * 2_000), "longer than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{{{", "not JSON"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n" + b"[" * 900, "not JSON"),
    ],
)
def test_what_is_no_answer_of_ours_is_broken(answer: bytes, said: str) -> None:
    async def strange(head: bytes, body: bytes) -> bytes:
        return answer

    @asynchronous
    async def run() -> None:
        async with Door(strange) as door:
            link = HttpLink(door.address, answer_bytes_max=1_000)
            with pytest.raises(HttpError, match=said) as caught:
                await link.get("/x", 5_000)
            assert caught.value.kind == "broken"
            await link.close()

    run()


@asynchronous
async def test_an_answer_in_pieces_is_put_together_at_every_cut() -> None:
    whole = page({"text": "in pieces"})
    async with Door() as door:
        link = HttpLink(door.address)
        for cut in range(1, len(whole)):

            async def pieces(head: bytes, body: bytes, cut: int = cut) -> bytes:
                door._writers[-1].write(whole[:cut])
                await asyncio.wait_for(asyncio.shield(asyncio.get_running_loop().run_in_executor(None, int)), 5)
                return whole[cut:]

            door.answer = pieces
            assert await link.get("/x", 5_000) == (200, {"text": "in pieces"})
        await link.close()


@asynchronous
async def test_a_closed_link_sends_nothing() -> None:
    async with Door() as door:
        link = HttpLink(door.address)
        await link.close()
        with pytest.raises(HttpError, match="closed here"):
            await link.get("/x", 5_000)
        assert door.connections == 0
