from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.framing import FRAME_BYTES_MAX, SHARED_BYTES, FrameError, FrameReader


def feed(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    """Give bytes to a reader as a socket would, at most `step` at a time."""
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        buffer = reader.buffer()
        count = min(step, len(buffer), len(data) - at)
        assert count > 0, "a buffer without room would look like the end of the connection"
        buffer[:count] = data[at : at + count]
        frames += [bytes(frame) for frame in reader.received(count)]
        at += count
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(st.lists(st.binary(min_size=4, max_size=300), max_size=8), st.integers(1, 200))
def test_frames_come_out_whole_however_the_bytes_are_cut(bodies: list[bytes], step: int) -> None:
    assert feed(FrameReader(), framed(*bodies), step) == bodies


@pytest.mark.parametrize("size", [SHARED_BYTES - 5, SHARED_BYTES - 4, SHARED_BYTES, SHARED_BYTES + 1, 3 * SHARED_BYTES])
@pytest.mark.parametrize("step", [SHARED_BYTES, 1_000])
def test_frames_around_the_size_of_the_shared_buffer_come_out_whole(size: int, step: int) -> None:
    bodies = [bytes(range(4)), bytes(range(256)) * (size // 256) + bytes(size % 256), b"last"]
    assert feed(FrameReader(), framed(*bodies), step) == bodies


def test_a_large_frame_is_received_into_its_own_buffer() -> None:
    reader = FrameReader()
    assert feed(reader, struct.pack(">i", 1_000_000), 4) == []
    assert len(reader.buffer()) == 1_000_000


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_length_that_no_broker_sends_is_refused_before_anything_is_allocated(length: int) -> None:
    with pytest.raises(FrameError, match=f"a frame of {length} bytes"):
        feed(FrameReader(), struct.pack(">i", length), 4)
