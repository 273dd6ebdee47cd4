"""The quick check of a producer's batch: as many records as its head says, and each ends where the next begins.

What stands inside a record is not looked at; that is `validate`'s work, and costs ten times as much. Runs of records
of equal length, which is what most producers send, are checked by slices instead of one by one.
"""

from odradek.records.buffers import ReadBuffer
from odradek.records.compression import codec_from_id, decompress
from odradek.records.errors import BatchTooLargeError, InvalidRecordError
from odradek.records.header import HEADER_BYTES, BatchHeader
from odradek.records.parse import RECORD_BODY_BYTES_MIN
from odradek.records.varint import decode_varint

COUNT_MAX = 2**31 - 1
_RUN_MIN = 8  # shorter runs are not worth a slice
_SINGLE_STEPS = 64  # records walked one by one before a run is looked for again
_WINDOW_MIN = 256  # records that are looked at for a run; more after each that was a run throughout
_CODED_LENGTH_MIN = RECORD_BODY_BYTES_MIN << 1


def check_record_lengths(
    data: ReadBuffer, at: int, header: BatchHeader, size_max: int, count_max: int = COUNT_MAX
) -> int:
    """Follow the records' lengths through a batch, decompressed up to `size_max` bytes; raise what does not fit.

    Gives the size of the records when they are not compressed.
    """
    stored = memoryview(data)[at + HEADER_BYTES : at + header.size_bytes]
    codec = header.codec
    payload = bytes(stored) if codec == 0 else decompress(codec_from_id(codec), stored, size_max)
    if header.record_count * (1 + RECORD_BODY_BYTES_MIN) > len(payload):
        raise InvalidRecordError(f"the batch has {len(payload)} bytes for the {header.record_count} records it names")
    if header.record_count > count_max:
        raise BatchTooLargeError(f"{header.record_count} records at once; {count_max} are allowed here")
    try:
        end, count = _walk(payload, header.record_count)
    except IndexError:
        raise InvalidRecordError(f"the batch ends inside one of its {header.record_count} records") from None
    if count != header.record_count or end != len(payload):
        raise InvalidRecordError(
            f"the batch says that it holds {header.record_count} records; {count} end at byte {end} of {len(payload)}"
        )
    return end


def _walk(payload: bytes, count_max: int) -> tuple[int, int]:
    """Step over at most `count_max` records; say where that ended and how many there were."""
    at, count, size, window = 0, 0, len(payload), _WINDOW_MIN
    while count < count_max and at < size:
        start = at
        at = _step(payload, at, 1)
        count += 1
        run = _equal_run(payload, start, at - start, min(count_max - count, window))
        # What is looked at and does not fit is lost work: look far only where it has fitted so far.
        window = window * 2 if run == window else _WINDOW_MIN
        at += run * (at - start)
        count += run
        if run == 0:
            steps = min(_SINGLE_STEPS, count_max - count)
            at = _step(payload, at, steps)
            count += steps
    return at, count


def _step(payload: bytes, at: int, count: int) -> int:
    """Step over records one by one; IndexError if they end too early."""
    for _ in range(count):
        length = payload[at]  # as it is coded: twice the length, odd if negative
        if length >= 0x80:
            second = payload[at + 1]
            if second < 0x80:
                length += (second << 7) - 0x80
                at += 1
            else:
                plain, at = decode_varint(payload, at)
                length = plain << 1 if plain >= 0 else 1
                at -= 1
        if length & 1 or length < _CODED_LENGTH_MIN:
            raise InvalidRecordError(f"a record of the batch, at byte {at}, has an impossible length")
        at += (length >> 1) + 1
    return at


def _equal_run(payload: bytes, start: int, stride: int, limit: int) -> int:
    """How many whole records after the one at `start` begin with the same length as it does."""
    count = min(limit, (len(payload) - start) // stride - 1)
    if count < _RUN_MIN:
        return 0
    for column in range(start, start + 5):  # as far as a length can reach
        followers = payload[column + stride : column + stride * count + 1 : stride]
        count = count - len(followers.lstrip(payload[column : column + 1]))
        if payload[column] < 0x80:
            return count
    return 0
