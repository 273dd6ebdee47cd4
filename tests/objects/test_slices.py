"""Records into objects and back: nothing is changed, nothing is in the wrong slice, and damage is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.objects.errors import DamagedObjectError
from odradek.objects.keys import parse_object_key, publisher_hash, slice_start
from odradek.objects.slices import Message, SliceObject, cut, read_object, size_of
from odradek.objects.spec import ChannelSpec
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import Header

SPEC = ChannelSpec("orders", "id-1", slice_bytes=300)
PUBLISHER = publisher_hash("p")
NOW_MS = 1_700_000_000_000

bodies = st.none() | st.binary(max_size=120)
headers = st.lists(st.builds(Header, st.text(max_size=5), bodies), max_size=2).map(tuple)
rests = st.tuples(st.integers(1, 3), st.integers(NOW_MS, NOW_MS + 4_000) | st.just(-1), bodies, bodies, headers)


@st.composite
def flushes(draw: st.DrawFn) -> list[Message]:
    """Messages with ascending sequences and any times."""
    sequence, found = 0, []
    for step, timestamp, key, value, names in draw(st.lists(rests, max_size=40)):
        sequence += step
        found.append(Message(sequence, timestamp, key, value, names))
    return found


@given(messages=flushes(), compression=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]))
def test_what_is_cut_is_read_again(messages: list[Message], compression: str) -> None:
    spec = ChannelSpec("orders", "id-1", slice_bytes=300, compression=compression)
    objects = cut(spec, PUBLISHER, messages)
    read = [message for one in objects for message in read_object(one.data)]
    assert sorted(read, key=lambda each: each.sequence) == messages
    assert [one.first for one in objects] == sorted(one.first for one in objects)
    for one in objects:
        check_object(spec, one)


def check_object(spec: ChannelSpec, one: SliceObject) -> None:
    inside = read_object(one.data)
    assert (one.first, one.last, one.count) == (inside[0].sequence, inside[-1].sequence, len(inside))
    parsed = parse_object_key(one.key)
    assert parsed is not None and parsed.sequence == one.first and parsed.publisher == PUBLISHER
    assert {slice_start(spec, message.timestamp) for message in inside} == {parsed.start_ms}
    assert one.slice_end_ms == parsed.start_ms + spec.slice_ms
    assert len(inside) == 1 or sum(map(size_of, inside)) <= spec.slice_bytes


def test_records_of_two_slices_go_into_two_objects_with_gaps() -> None:
    messages = [Message(number, NOW_MS + number % 2 * 1_000, None, b"x") for number in range(10, 16)]
    even, odd = cut(ChannelSpec("orders", "i"), PUBLISHER, messages)
    assert [message.sequence for message in read_object(even.data)] == [10, 12, 14]
    assert [message.sequence for message in read_object(odd.data)] == [11, 13, 15]
    assert (even.first, odd.first) == (10, 11)


def test_an_object_is_batches_with_true_offsets() -> None:
    messages = [Message(5_000_000_000 + 7 * number, NOW_MS, b"k", b"v" * 100) for number in range(3)]
    (one,) = cut(ChannelSpec("orders", "i"), PUBLISHER, messages)
    ((at, header),) = iter_headers(one.data)
    assert (header.base_offset, header.last_offset, header.record_count) == (5_000_000_000, 5_000_000_014, 3)
    assert [record.offset for record in parse_batch(one.data, at, check_crc=True)] == [m.sequence for m in messages]


def test_sequences_too_far_apart_for_one_batch_take_two() -> None:
    messages = [Message(sequence, NOW_MS, None, b"x") for sequence in (0, 1, 2**31, 2**40)]
    (one,) = cut(ChannelSpec("orders", "i"), PUBLISHER, messages)
    assert read_object(one.data) == messages


def test_a_large_record_is_alone_and_whole() -> None:
    messages = [Message(number, NOW_MS, None, b"x" * (1_000 if number == 1 else 10)) for number in range(3)]
    assert [one.count for one in cut(SPEC, PUBLISHER, messages)] == [1, 1, 1]


def test_every_cut_and_every_changed_byte_is_seen() -> None:
    (one,) = cut(ChannelSpec("orders", "i"), PUBLISHER, [Message(1, NOW_MS, b"k", b"v")])
    for end in range(len(one.data)):
        with pytest.raises(DamagedObjectError, match="damaged"):
            read_object(one.data[:end])
    for at in range(16, len(one.data)):  # what is before are the offset, the length and the epoch of the batch
        changed = bytearray(one.data)
        changed[at] ^= 0x55
        with pytest.raises(DamagedObjectError, match="damaged"):
            read_object(bytes(changed))
