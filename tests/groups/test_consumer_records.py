"""Changes survive being stored, and look in the log as Kafka's own do."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.assignors import TopicIdPartition
from odradek.groups.consumer_records import decode, encode
from odradek.groups.consumer_types import (
    Change,
    Current,
    CurrentChange,
    EpochChange,
    MemberChange,
    MemberState,
    Subscription,
    TargetChange,
    TargetEpochChange,
    TopicFacts,
    TopicsChange,
)
from odradek.wire.errors import DecodeError

_TEXT = st.text(max_size=12)
_EPOCH = st.integers(-2, 2**31 - 1)
_IDS = st.binary(min_size=16, max_size=16)
_PARTITIONS = st.frozensets(st.builds(TopicIdPartition, st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 999)))
_SUBSCRIPTIONS = st.builds(
    Subscription,
    instance_id=st.none() | _TEXT,
    rack_id=st.none() | _TEXT,
    client_id=_TEXT,
    client_host=_TEXT,
    topic_names=st.lists(_TEXT).map(tuple),
    topic_regex=st.none() | _TEXT,
    rebalance_timeout_ms=_EPOCH,
    server_assignor=st.none() | _TEXT,
)
_CURRENTS = st.builds(
    Current,
    epoch=_EPOCH,
    previous_epoch=_EPOCH,
    state=st.sampled_from(MemberState),
    assigned=_PARTITIONS,
    revoking=_PARTITIONS,
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(EpochChange, st.none() | _EPOCH),
    st.builds(
        TopicsChange, st.none() | st.dictionaries(_TEXT, st.builds(TopicFacts, _IDS, _EPOCH, st.just(frozenset())))
    ),
    st.builds(MemberChange, _TEXT, st.none() | _SUBSCRIPTIONS),
    st.builds(TargetEpochChange, st.none() | _EPOCH),
    st.builds(TargetChange, _TEXT, st.none() | _PARTITIONS),
    st.builds(CurrentChange, _TEXT, st.none() | _CURRENTS),
)
TOPIC = bytes(range(16))


def is_removal(change: Change) -> bool:
    return astuple(change)[-1] is None


@given(group_id=_TEXT, change=CHANGES)
def test_a_change_comes_back_as_it_was_stored(group_id: str, change: Change) -> None:
    record = encode(group_id, change, 7)
    assert record.timestamp == 7
    assert record.key is not None
    assert decode(record.key, record.value) == change
    assert (record.value is None) == is_removal(change)


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        # The key: kind, then strings with two-byte lengths. The value: version, then KIP-482's compact forms.
        (EpochChange(9), b"\0\3\0\1g", b"\0\0\0\0\0\x09\0"),
        (
            TopicsChange({"t": TopicFacts(TOPIC, 3)}),
            b"\0\4\0\1g",
            b"\0\0\2" + TOPIC + b"\2t\0\0\0\3\1\0\0",
        ),
        (
            MemberChange(
                "m",
                Subscription(
                    instance_id=None,
                    rack_id="r",
                    client_id="c",
                    client_host="h",
                    topic_names=("t",),
                    topic_regex=None,
                    rebalance_timeout_ms=300_000,
                    server_assignor="range",
                ),
            ),
            b"\0\5\0\1g\0\1m",
            b"\0\0\0\2r\2c\2h\2\2t\0\0\x04\x93\xe0\x06range\0",
        ),
        (TargetEpochChange(2**24), b"\0\6\0\1g", b"\0\0\1\0\0\0\0"),
        (
            TargetChange("m", frozenset({TopicIdPartition(TOPIC, 1), TopicIdPartition(TOPIC, 0)})),
            b"\0\7\0\1g\0\1m",
            b"\0\0\2" + TOPIC + b"\3\0\0\0\0\0\0\0\1\0\0",
        ),
        (
            CurrentChange(
                "m",
                Current(
                    epoch=5,
                    previous_epoch=4,
                    state=MemberState.UNREVOKED_PARTITIONS,
                    revoking=frozenset({TopicIdPartition(TOPIC, 6)}),
                ),
            ),
            b"\0\x08\0\1g\0\1m",
            b"\0\0\0\0\0\5\0\0\0\4\1\1\2" + TOPIC + b"\2\0\0\0\6\0\0",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else type(value).__name__,
)
def test_the_bytes_are_kafkas(change: Change, key: bytes, value: bytes) -> None:
    record = encode("g", change, 0)
    assert (record.key, record.value) == (key, value)


@given(change=CHANGES.filter(lambda change: not is_removal(change)))
def test_a_record_cut_anywhere_is_an_error_and_nothing_worse(change: Change) -> None:
    record = encode("g", change, 0)
    assert record.key is not None
    assert record.value is not None
    for end in range(len(record.value)):
        with pytest.raises(DecodeError):
            decode(record.key, record.value[:end])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\2\0\1g", None),  # a classic group
        (b"\0\x10\0\1g", None),
        (b"\0\5\0\1g", None),  # no member
        (b"\0\3\0\1g", b"\0\1\0\0\0\x09\0"),  # a version to come
        (b"\0\x08\0\1g\0\1m", b"\0\0\0\0\0\5\0\0\0\4\x7f\1\1\0"),  # an unknown state
    ],
)
def test_what_is_no_change_of_a_consumer_group_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode(key, value)


def test_tagged_fields_that_newer_brokers_add_are_skipped() -> None:
    # Kafka 4.1 writes a hash of the subscribed topics as tag 0, and whoever comes next may write tag 9.
    hashed = b"\0\0\0\0\0\x09\2\0\x08abcdefgh\x09\1x"
    assert decode(b"\0\3\0\1g", hashed) == EpochChange(9)
