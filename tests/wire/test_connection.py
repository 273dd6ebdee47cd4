"""Frames out of a stream of bytes, however it is cut: whole, byte by byte, at random; and nothing copied needlessly."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.connection import LENGTH_BYTES, FrameBuffer, frame_head
from odradek.wire.errors import DecodeError
from odradek.wire.headers import decode_response_header

BUFFER_BYTES = 32 * 1024
MAX = 1 << 20


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes) -> Iterator[bytes]:
    """Let bytes come as far as there is room, as a transport does; yield what becomes whole."""
    while data:
        room = buffer.writable()
        count = min(len(room), len(data))
        assert count, "a transport that is given no room takes the connection for lost"
        room[:count] = data[:count]
        data = data[count:]
        buffer.received(count)
        while (frame := buffer.next_frame()) is not None:
            yield bytes(frame)


def fed(pieces: Iterable[bytes], frame_bytes_max: int = MAX) -> tuple[list[bytes], FrameBuffer]:
    buffer = FrameBuffer(frame_bytes_max)
    return [frame for piece in pieces for frame in feed(buffer, piece)], buffer


FRAMES = [b"", b"a", b"four", bytes(range(256)), b"x" * 5000, b"", b"last"]


def test_a_stream_that_comes_whole_gives_its_frames() -> None:
    frames, buffer = fed([framed(*FRAMES)])
    assert frames == FRAMES
    assert buffer.is_empty


def test_a_stream_that_comes_byte_by_byte_gives_the_same() -> None:
    stream = framed(*FRAMES)
    frames, buffer = fed(stream[at : at + 1] for at in range(len(stream)))
    assert frames == FRAMES
    assert buffer.is_empty


def test_a_stream_that_is_cut_once_anywhere_gives_the_same() -> None:
    short = [b"", b"a", b"four", bytes(range(40)), b"last"]
    stream = framed(*short)
    for at in range(len(stream) + 1):
        frames, buffer = fed([stream[:at], stream[at:]])
        assert frames == short
        assert buffer.is_empty


@given(
    st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 3 * BUFFER_BYTES).map(bytes)), max_size=12),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
)
def test_a_stream_that_is_cut_at_random_gives_the_same(frames: list[bytes], sizes: list[int]) -> None:
    stream, at = framed(*frames), 0
    pieces: list[bytes] = []
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size
    found, buffer = fed(pieces)
    assert found == frames
    assert buffer.is_empty


@given(st.integers(0, 70_000), st.integers(0, 70_000), st.integers(1, 70_000))
def test_no_cut_is_too_near_to_the_end_of_the_buffer(first: int, second: int, cut: int) -> None:
    stream = framed(b"1" * first, b"2" * second, b"3")
    frames, buffer = fed([stream[:cut], stream[cut:]])
    assert frames == [b"1" * first, b"2" * second, b"3"]
    assert buffer.is_empty


def test_frames_that_arrive_whole_are_views_of_the_bytes_that_came() -> None:
    buffer = FrameBuffer(MAX)
    room = buffer.writable()
    stream = framed(b"one", b"two")
    room[: len(stream)] = stream
    buffer.received(len(stream))
    first, second = buffer.next_frame(), buffer.next_frame()
    assert first is not None and second is not None
    assert first.obj is second.obj is room.obj
    room[LENGTH_BYTES] = ord("O")
    assert bytes(first) == b"One", "the same memory"
    first[1:3] = b"NE"  # and a log may stamp it where it lies
    assert bytes(room[LENGTH_BYTES : LENGTH_BYTES + 3]) == b"ONE"


def test_a_frame_of_which_only_a_part_has_come_is_not_moved_while_there_is_room() -> None:
    buffer = FrameBuffer(MAX)
    before = buffer.writable().obj
    assert list(feed(buffer, framed(b"one") + framed(b"two")[:5])) == [b"one"]
    assert buffer.writable().obj is before
    assert list(feed(buffer, framed(b"two")[5:])) == [b"two"]


def test_a_large_frame_gets_memory_as_it_comes_and_leaves_it_for_the_next() -> None:
    size = 30 * BUFFER_BYTES
    buffer = FrameBuffer(MAX)
    list(feed(buffer, framed(bytes(size))[:100]))
    assert buffer.capacity_bytes < size / 4, "an announcement alone costs little"
    assert list(feed(buffer, framed(bytes(size))[100:])) == [bytes(size)]
    whole = buffer.writable().obj
    assert list(feed(buffer, framed(bytes(size)))) == [bytes(size)]
    assert buffer.writable().obj is whole


def test_a_very_large_buffer_goes_when_frames_are_small_again() -> None:
    size = 4 * 2**20
    buffer = FrameBuffer(size)
    assert [len(frame) for frame in feed(buffer, framed(bytes(size)))] == [size]
    assert list(feed(buffer, framed(b"small"))) == [b"small"]
    buffer.writable()
    assert buffer.capacity_bytes == BUFFER_BYTES


def test_a_large_frame_that_comes_in_small_pieces_is_moved_only_a_few_times() -> None:
    size, piece = 8 << 20, 16 << 10
    stream, buffer = framed(bytes(size)), FrameBuffer(size)
    held: set[int] = set()
    found: list[bytes] = []
    for at in range(0, len(stream), piece):
        found += feed(buffer, stream[at : at + piece])
        held.add(buffer.capacity_bytes)
    assert found == [bytes(size)]
    assert len(held) <= 8, "what has come must not be copied again with each piece"


@pytest.mark.parametrize("size", [BUFFER_BYTES - LENGTH_BYTES - 1, BUFFER_BYTES - LENGTH_BYTES, BUFFER_BYTES])
def test_frames_around_the_buffers_size_pass(size: int) -> None:
    for before in (0, 1, 3, 4, 5000):
        frames, buffer = fed([framed(bytes(before), bytes(size)), framed(b"after")])
        assert [len(frame) for frame in frames] == [before, size, 5]
        assert buffer.is_empty


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_is_not_allowed_is_refused_before_memory_is_taken(size: int) -> None:
    buffer = FrameBuffer(100)
    with pytest.raises(DecodeError, match=str(size)):
        list(feed(buffer, struct.pack(">i", size)))
    assert buffer.capacity_bytes == BUFFER_BYTES


def test_the_bound_includes_itself_and_can_be_raised() -> None:
    buffer = FrameBuffer(100)
    assert list(feed(buffer, framed(bytes(100)))) == [bytes(100)]
    buffer.allow(200)
    assert list(feed(buffer, framed(bytes(200)))) == [bytes(200)]
    with pytest.raises(DecodeError):
        list(feed(buffer, framed(bytes(201))))


def test_what_has_begun_is_not_empty() -> None:
    buffer = FrameBuffer(100)
    assert buffer.is_empty
    list(feed(buffer, framed(b"abc")[:2]))
    assert not buffer.is_empty
    list(feed(buffer, framed(b"abc")[2:]))
    assert buffer.is_empty


def test_a_resting_buffer_gives_its_memory_back_and_works_again() -> None:
    buffer = FrameBuffer(MAX)
    assert buffer.capacity_bytes == 0
    list(feed(buffer, framed(bytes(100_000))))
    assert buffer.capacity_bytes > 100_000
    buffer.rest()
    assert buffer.capacity_bytes == 0
    assert list(feed(buffer, framed(b"again"))) == [b"again"]
    assert buffer.capacity_bytes == BUFFER_BYTES


def test_a_buffer_with_a_part_of_a_frame_does_not_rest() -> None:
    buffer = FrameBuffer(MAX)
    list(feed(buffer, framed(b"abc")[:5]))
    buffer.rest()
    assert list(feed(buffer, framed(b"abc")[5:])) == [b"abc"]


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("body", [b"", b"body" * 1000])
def test_an_answers_head_says_how_long_it_is(flexible: bool, body: bytes) -> None:
    frames, _ = fed([frame_head(77, flexible, len(body)) + body])
    (frame,) = frames
    correlation_id, at = decode_response_header(frame, flexible)
    assert (correlation_id, frame[at:]) == (77, body)
