"""Cuts what a broker sends into frames: four bytes of length, then so many bytes. Pure: no socket, no loop.

A large frame (a fetch's answer) gets a buffer of its own at once and is received into it, so that its records are
never copied; small ones are copied out of a shared buffer.
"""

from __future__ import annotations

import struct

FRAME_BYTES_MAX = 256 * 1024 * 1024
SHARED_BYTES = 64 * 1024
PREFIX_BYTES = 4

_LENGTH = struct.Struct(">i")


class FrameError(Exception):
    """What arrived cannot be an answer of a Kafka broker."""


class FrameReader:
    """Hands out the buffer to receive into, and the frames that are complete."""

    def __init__(self) -> None:
        self._shared = memoryview(bytearray(SHARED_BYTES))
        self._shared_end = 0  # less than 4 between two calls of received(): the start of a length
        self._frame: bytearray | None = None  # a frame under way whose length is known
        self._frame_view = memoryview(b"")
        self._frame_end = 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._frame is not None:
            return self._frame_view[self._frame_end :]
        return self._shared[self._shared_end :]

    def received(self, count: int) -> list[bytearray]:
        """Take note of `count` bytes in the buffer; return the frames that they complete."""
        frames: list[bytearray] = []
        if self._frame is not None:
            self._frame_end += count
            if self._frame_end == len(self._frame):
                frames.append(self._frame)
                self._frame = None
                self._frame_view = memoryview(b"")
            return frames
        end = self._shared_end + count
        at = 0
        while end - at >= PREFIX_BYTES:
            length = _length(self._shared, at)
            at += PREFIX_BYTES
            frame = bytearray(length)
            have = min(length, end - at)
            frame[:have] = self._shared[at : at + have]
            at += have
            if have < length:
                self._frame, self._frame_view, self._frame_end = frame, memoryview(frame), have
            else:
                frames.append(frame)
        self._shared[: end - at] = self._shared[at:end]
        self._shared_end = end - at
        return frames


def _length(data: memoryview, at: int) -> int:
    (length,) = _LENGTH.unpack_from(data, at)
    if not PREFIX_BYTES <= length <= FRAME_BYTES_MAX:
        raise FrameError(f"it sent a frame of {length} bytes, which no Kafka broker does")
    return int(length)
