"""The five codecs of a record batch: none, gzip, snappy, lz4, zstd.

Decompression is bounded: it stops at `size_max`, it does not inflate a bomb to see how large it is. What is
written can be read by the Java client and librdkafka: gzip as one member, snappy in xerial's framing
(snappy-java's SnappyOutputStream), lz4 as frames of independent blocks (KIP-57), zstd as plain frames (KIP-110).
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam

from odradek.records.buffers import ReadBuffer
from odradek.records.errors import BatchTooLargeError, CorruptBatchError, UnsupportedCodecError

GZIP_WINDOW_BITS = 31  # 15 for the largest window, 16 to ask zlib for gzip's header and trailer
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
XERIAL_BLOCK_BYTES = 32 * 1024
FIRST_GUESS_BYTES = 64 * 1024

_BLOCK_LENGTH = struct.Struct(">i")


class Codec(IntEnum):
    """The compression of a batch, as the lowest three bits of its attributes name it."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name that settings and people use."""
        return self.name.lower()


CODEC_MAX = int(max(Codec))
LZ4_LEVEL = 1  # cramjam's own default is the slow, thorough kind


def codec_from_id(number: int) -> Codec:
    """Return the codec of a batch's attribute bits."""
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCodecError(f"compression codec {number} does not exist: Kafka has 0 to 4") from None


def codec_from_name(name: str) -> Codec:
    """Return the codec that a person or a setting names."""
    for codec in Codec:
        if codec.label == name:
            return codec
    known = ", ".join(codec.label for codec in Codec)
    raise UnsupportedCodecError(f"compression codec {name!r} does not exist: choose one of {known}")


def compress(codec: Codec, data: ReadBuffer, level: int | None = None) -> bytes:
    """Compress the records of a batch; without a level the codec's own default holds, as Kafka's producers have it."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, GZIP_WINDOW_BITS)
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        level = LZ4_LEVEL if level is None else level
        # Java refuses blocks that depend on each other (KIP-57), and cramjam's plain compress() links them.
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # this one call takes nothing but bytes
        return bytes(compressor.finish())
    return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Codec, data: ReadBuffer, size_max: int) -> bytes:
    """Decompress the records of a batch, up to size_max bytes."""
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    if codec is Codec.GZIP:
        return _decompress_gzip(data, size_max)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    if codec is Codec.LZ4:
        return _decompress_into(codec, cramjam.lz4.decompress_into, data, size_max)
    return _decompress_into(codec, cramjam.zstd.decompress_into, data, size_max)


def _decompress_gzip(data: ReadBuffer, size_max: int) -> bytes:
    inflater = zlib.decompressobj(GZIP_WINDOW_BITS)
    try:
        # One byte more than allowed tells "exactly full" from "too large". It is also never 0, no bound to zlib.
        plain = inflater.decompress(data, size_max + 1)
    except zlib.error as error:
        raise CorruptBatchError(f"gzip data is damaged: {error}") from None
    if len(plain) > size_max:
        raise _too_large(Codec.GZIP, size_max)
    if not inflater.eof:
        raise CorruptBatchError("gzip data is cut off")
    # No client writes a second member, and following many tiny ones would cost quadratic time.
    if inflater.unused_data:
        raise CorruptBatchError(f"{len(inflater.unused_data)} bytes follow the end of the gzip data")
    return plain


def _decompress_into(
    codec: Codec, decompress_into: Callable[[ReadBuffer, bytearray], int], data: ReadBuffer, size_max: int
) -> bytes:
    """Decompress into a buffer of fixed size, the one call of cramjam that is bounded; retry with a larger one.

    A zstd frame may ask for a window of up to 128 MiB (the library's limit), but its pages are only touched as
    far as output is produced, which the buffer stops.
    """
    size = min(size_max, max(FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            length = decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            # Rust's own words for a writer that is full: std::io::ErrorKind::WriteZero out of write_all().
            if "failed to write whole buffer" not in str(error):
                raise CorruptBatchError(f"{codec.label} data is damaged: {error}") from None
            if size == size_max:
                raise _too_large(codec, size_max) from None
            size = min(size_max, 4 * size)
        else:
            return bytes(memoryview(buffer)[:length])


def _compress_xerial(data: ReadBuffer) -> bytes:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES])
        out += _BLOCK_LENGTH.pack(len(block))
        out += memoryview(block)
    return bytes(out)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    try:
        # Each block says its plain size first, so that a bomb is known before anything is decompressed.
        total = 0
        for block in _snappy_blocks(data):
            total += cramjam.snappy.decompress_raw_len(block)
            if total > size_max:
                raise _too_large(Codec.SNAPPY, size_max)
        plain = memoryview(bytearray(total))
        at = 0
        for block in _snappy_blocks(data):
            at += cramjam.snappy.decompress_raw_into(block, plain[at:])
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"snappy data is damaged: {error}") from None
    return bytes(plain)


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks of a xerial stream, or the data itself if it is none (some clients send it bare).

    The versions in xerial's header are not looked at, since some writers swap their bytes.
    """
    if data[:8] != XERIAL_MAGIC:
        yield data
        return
    if len(data) < len(XERIAL_HEADER):
        raise CorruptBatchError("snappy data is cut off inside xerial's header")
    at = len(XERIAL_HEADER)
    while at < len(data):
        start = at + _BLOCK_LENGTH.size
        if start > len(data):
            raise CorruptBatchError(f"snappy data is cut off inside the block length at byte {at}")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at = start + length
        if length <= 0 or at > len(data):
            raise CorruptBatchError(f"snappy block at byte {start} says {length} bytes, {len(data) - start} are left")
        yield data[start:at]


def _too_large(codec: Codec, size_max: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"{codec.label} data grows beyond {size_max} bytes, the most that is allowed here")
