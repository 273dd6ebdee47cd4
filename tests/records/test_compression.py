"""Tests of odradek.records.compression."""

import contextlib
import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.compression import (
    XERIAL_HEADER,
    Codec,
    codec_from_id,
    codec_from_name,
    compress,
    decompress,
)
from odradek.records.errors import BatchTooLargeError, CorruptBatchError, RecordError, UnsupportedCodecError

from .samples import SIZE_MAX, codecs

MIB = 1 << 20
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"It is not so easy to say what Odradek is. " * 5000  # several blocks of each codec


def test_codecs_have_kafkas_numbers_and_names() -> None:
    assert {codec.label: int(codec) for codec in Codec} == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert [codec_from_name(codec.label) for codec in Codec] == [codec_from_id(codec) for codec in Codec]


@pytest.mark.parametrize("number", [5, 6, 7, -1])
def test_an_unknown_codec_number_is_refused(number: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=str(number)):
        codec_from_id(number)


def test_an_unknown_codec_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedCodecError, match=r"brotli.*none, gzip, snappy, lz4, zstd"):
        codec_from_name("brotli")


@given(codecs, st.binary(max_size=300), st.sampled_from([bytes, bytearray, memoryview]))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, kind: Callable[[bytes], bytes]) -> None:
    assert decompress(codec, kind(compress(codec, kind(data))), SIZE_MAX) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_many_blocks_come_back(codec: Codec) -> None:
    assert decompress(codec, compress(codec, TEXT), SIZE_MAX) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_makes_it_smaller(codec: Codec) -> None:
    data = b"".join(b'{"n": %d, "odd": %d, "name": "spool"}' % (n * n, n % 7) for n in range(5000))
    low, high = compress(codec, data, level=1), compress(codec, data, level=9)
    assert len(high) < len(low) < len(data)
    assert decompress(codec, low, SIZE_MAX) == decompress(codec, high, SIZE_MAX) == data


def test_gzip_is_what_the_standard_library_reads_and_writes() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), SIZE_MAX) == TEXT


def test_lz4_has_independent_blocks_as_java_wants_them() -> None:
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:4] == bytes.fromhex("04224d18")
    version, independent = frame[4] >> 6, frame[4] >> 5 & 1
    assert (version, independent) == (1, 1)


def test_lz4_with_linked_blocks_and_checksum_is_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), SIZE_MAX) == TEXT


def test_snappy_is_written_in_xerials_framing() -> None:
    framed = compress(Codec.SNAPPY, b"abc")
    raw = bytes(cramjam.snappy.compress_raw(b"abc"))
    assert framed == b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), SIZE_MAX) == TEXT


def test_the_version_in_xerials_header_is_not_looked_at() -> None:
    swapped = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1) + compress(Codec.SNAPPY, TEXT)[16:]
    assert decompress(Codec.SNAPPY, swapped, SIZE_MAX) == TEXT


@pytest.mark.parametrize("length", [-1, 0, 4, 2**31 - 1])
def test_a_xerial_block_that_is_longer_than_the_bytes_left_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatchError, match="block at byte 20"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"abc", SIZE_MAX)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_cut_anywhere_is_corrupt(codec: Codec) -> None:
    whole = compress(codec, b"Odradek" * 20)
    # Xerial's framing has no end mark: cut between two blocks, it is a shorter stream. The record count tells.
    silent = {len(XERIAL_HEADER)} if codec is Codec.SNAPPY else set()
    for cut in set(range(len(whole))) - silent:
        with pytest.raises(CorruptBatchError):
            decompress(codec, whole[:cut], SIZE_MAX)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_behind_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(codec, compress(codec, b"Odradek" * 20) + b"\x00", SIZE_MAX)


def test_a_second_gzip_member_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="follow the end"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two"), SIZE_MAX)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [1, 100, 65_535, 65_536, 65_537, 300_000])
def test_the_cap_is_exact(codec: Codec, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, size)) == size
    with pytest.raises(BatchTooLargeError, match=f"beyond {size - 1} bytes"):
        decompress(codec, packed, size - 1)


def gzip_bomb() -> bytes:
    deflater = zlib.compressobj(1, zlib.DEFLATED, 31)
    head = deflater.compress(bytes(16 * MIB)) + deflater.flush(zlib.Z_FULL_FLUSH)
    chunk = deflater.compress(bytes(16 * MIB)) + deflater.flush(zlib.Z_FULL_FLUSH)
    return head + chunk * 63  # a full flush forgets the past, so that the chunk may be repeated


def lz4_bomb() -> bytes:
    frame = compress(Codec.LZ4, bytes(16 * MIB))
    return frame[:7] + frame[7:-4] * 64 + frame[-4:]  # head, blocks, end mark


def zstd_bomb() -> bytes:
    block = struct.pack("<I", (128 * 1024) << 3 | 1 << 1)[:3]  # "128 KiB of the byte that follows"
    return zstd_head(window_log=27) + (block + b"\x00") * 8191 + struct.pack("<I", 1)[:3]


def zstd_head(window_log: int) -> bytes:
    return bytes.fromhex("28b52ffd00") + bytes([(window_log - 10) << 3])


def snappy_bomb() -> bytes:
    blocks = compress(Codec.SNAPPY, bytes(16 * MIB))[len(XERIAL_HEADER) :]
    return XERIAL_HEADER + blocks * 64


def tiny_blocks_bomb() -> bytes:
    empty = struct.pack(">i", 1) + b"\x00"
    return XERIAL_HEADER + empty * 200_000 + snappy_bomb()[len(XERIAL_HEADER) :]


def raw_snappy_bomb() -> bytes:
    return bytes.fromhex("8080808004") + b"\x00A" + b"\xfe\x01\x00" * 1000  # "1 GiB follow", and they do not


def resident_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure peak memory")
@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (Codec.GZIP, gzip_bomb),
        (Codec.LZ4, lz4_bomb),
        (Codec.ZSTD, zstd_bomb),
        (Codec.SNAPPY, snappy_bomb),
        (Codec.SNAPPY, tiny_blocks_bomb),
        (Codec.SNAPPY, raw_snappy_bomb),
    ],
)
def test_a_bomb_of_a_gibibyte_stops_at_the_cap(codec: Codec, make: Callable[[], bytes]) -> None:
    bomb = make()
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest memory use so far
    before = resident_bytes("VmRSS")
    with pytest.raises(BatchTooLargeError):
        decompress(codec, bomb, MIB)
    assert resident_bytes("VmHWM") - before < 8 * MIB  # the cap, the bomb's own tail, and the codec's tables


def test_a_zstd_window_larger_than_the_cap_is_read_if_the_content_is_small() -> None:
    raw_block = struct.pack("<I", 7 << 3 | 1)[:3] + b"Odradek"
    assert decompress(Codec.ZSTD, zstd_head(window_log=27) + raw_block, 100) == b"Odradek"


def test_a_zstd_window_of_two_gibibytes_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="zstd"):
        decompress(Codec.ZSTD, zstd_head(window_log=31) + b"\x01\x00\x00", 100)


@given(codecs, st.binary(max_size=80), st.booleans(), st.integers(0, 100))
def test_any_bytes_decompress_or_raise_a_record_error(codec: Codec, data: bytes, headed: bool, size_max: int) -> None:
    magics = {Codec.GZIP: b"\x1f\x8b\x08\x00", Codec.SNAPPY: XERIAL_HEADER, Codec.LZ4: b"\x04\x22\x4d\x18"}
    head = magics.get(codec, b"\x28\xb5\x2f\xfd") if headed else b""
    with contextlib.suppress(RecordError):
        assert len(decompress(codec, head + data, size_max)) <= size_max


@given(codecs, st.binary(min_size=1, max_size=200), st.data())
def test_damaged_data_decompresses_or_raises_a_record_error(codec: Codec, plain: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, plain))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(RecordError):
        assert len(decompress(codec, packed, 1000)) <= 1000
