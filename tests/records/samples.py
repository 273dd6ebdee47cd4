"""What the tests of records share: Hypothesis strategies for records, and one batch of each kind."""

from hypothesis import strategies as st

from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.header import NO_TIMESTAMP, reseal
from odradek.records.record import Header, NewRecord

SIZE_MAX = 1 << 20
NOW_MS = 1_700_000_000_000

blobs = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.binary(min_size=60, max_size=140))
headers = st.lists(
    st.builds(Header, st.text(max_size=12), st.one_of(st.none(), st.binary(max_size=20))), max_size=4
).map(tuple)
timestamps = st.one_of(st.integers(NOW_MS, NOW_MS + 100), st.integers(0, 2**53))


def records_at(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[NewRecord]]:
    """Draw records of any form, with timestamps from the given strategy."""
    records = st.builds(NewRecord, value=blobs, key=blobs, timestamp=times, headers=headers)
    return st.lists(records, min_size=1, max_size=20)


new_records = records_at(st.one_of(timestamps, st.just(NO_TIMESTAMP)))
timed_records = records_at(timestamps)
codecs = st.sampled_from(list(Codec))

RECORDS = [
    NewRecord(b"plain"),
    NewRecord(b"v" * 200, b"key", NOW_MS, (Header("trace", b"\x00\x01"), Header("é", None), Header("", b""))),
    NewRecord(None, b"tombstone", NOW_MS + 5000),
    NewRecord(b"", b"", NOW_MS - 1),
]


def batch_of(codec: Codec) -> bytes:
    """Build the sample batch with a codec, as an idempotent producer would."""
    return bytes(
        build_batch(
            RECORDS, codec=codec, base_offset=1000, leader_epoch=3, producer_id=7, producer_epoch=1, base_sequence=40
        )
    )


def resealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with the CRC of what it holds now, so that a fault gets past that check."""
    changed = bytearray(batch)
    reseal(changed)
    return bytes(changed)


SAMPLES = {codec.label: batch_of(codec) for codec in Codec} | {
    "control": bytes(
        control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=1, coordinator_epoch=2, timestamp=NOW_MS)
    )
}
