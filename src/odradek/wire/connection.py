"""Framing, without a socket: bytes come in at the end of a buffer, whole requests are seen in it where they lie.

A frame is a length of four bytes and as many bytes (Kafka's protocol guide, "Protocol primitives"). A frame is a view
of the buffer: it holds until the next call of `writable`. Only what there is of a cut frame is ever moved.
"""

from __future__ import annotations

import struct

from odradek.wire.errors import DecodeError

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iix")
LENGTH_BYTES = _LENGTH.size
_BUFFER_BYTES = 32 * 1024
_ROOM_MIN = 4 * 1024  # less than this at the buffer's end is not worth a read
_AT_ONCE_BYTES_MAX = 128 * 1024
_KEPT_BYTES_MAX = 2 * 1024 * 1024  # a larger buffer goes when frames have become smaller
_GROWTH = 4
_NOTHING = memoryview(bytearray())


class FrameBuffer:
    """The incoming half of a connection."""

    __slots__ = ("_begin", "_end", "_frame_bytes_max", "_needed", "_view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._view = _NOTHING
        self._begin = 0  # up to here frames were given out
        self._end = 0  # up to here bytes have come
        self._needed = 0  # what the last frames took with their lengths: the buffer need not be much larger

    def allow(self, frame_bytes_max: int) -> None:
        """Bound the frames that come from now on."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def is_empty(self) -> bool:
        """Whether no frame has begun."""
        return self._begin == self._end

    @property
    def capacity_bytes(self) -> int:
        """The memory that it holds."""
        return len(self._view)

    def writable(self) -> memoryview:
        """Where the next bytes go; every frame given out before is void."""
        capacity = len(self._view)
        if self._begin == self._end:
            self._begin = self._end = 0
            if capacity < _BUFFER_BYTES or capacity > max(_GROWTH * self._needed, _KEPT_BYTES_MAX):
                self._view = memoryview(bytearray(_BUFFER_BYTES))
        elif capacity == self._end or (self._begin and capacity - self._end < _ROOM_MIN):
            held = self._end - self._begin
            self._move(max(_BUFFER_BYTES, min(self._needed, _GROWTH * held)))
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Take note of bytes that were written there."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None; DecodeError for a length that is not allowed."""
        begin = self._begin + LENGTH_BYTES
        if begin > self._end:
            return None
        (size,) = _LENGTH.unpack_from(self._view, self._begin)
        if not 0 <= size <= self._frame_bytes_max:
            raise DecodeError(f"a frame of {size} bytes; at most {self._frame_bytes_max} are allowed here")
        end = begin + size
        self._needed = LENGTH_BYTES + size
        if end > self._end:
            if len(self._view) < min(end, _AT_ONCE_BYTES_MAX):
                # As much as was announced only if that is little; else `writable` gives more as it comes, since an
                # announcement alone must not cost memory.
                self._move(min(max(_BUFFER_BYTES, self._needed), _AT_ONCE_BYTES_MAX))
            return None
        self._begin = end
        return self._view[begin:end]

    def _move(self, capacity_bytes: int) -> None:
        """Bring the frame that is cut to the front of another buffer."""
        left = self._view[self._begin : self._end]
        view = memoryview(bytearray(capacity_bytes))
        view[: len(left)] = left
        self._view, self._begin, self._end = view, 0, len(left)

    def rest(self) -> None:
        """Give the memory back while nothing comes."""
        if self._begin == self._end:
            self._view, self._begin, self._end = _NOTHING, 0, 0


def frame_head(correlation_id: int, flexible: bool, body_bytes: int) -> bytes:
    """What stands before the body of an answer: its length, the request's number, and no tagged fields."""
    if flexible:
        return _FLEXIBLE_HEAD.pack(_FLEXIBLE_HEAD.size - LENGTH_BYTES + body_bytes, correlation_id)
    return _HEAD.pack(_HEAD.size - LENGTH_BYTES + body_bytes, correlation_id)
