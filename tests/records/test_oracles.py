"""Our batches against those of kafka-python and aiokafka (its C extension and its Python code), both ways."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.header import check_batch
from odradek.records.parse import parse_batch
from odradek.records.record import Header, NewRecord, Record

from .oracles import AiokafkaControlRecord, aiokafka_records, kafka_python_records
from .samples import NOW_MS, SAMPLES, new_records, timed_records

BUILDERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
}
READERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
}
LEADER_EPOCHS = {"kafka-python": 0, "aiokafka": -1, "aiokafka in Python": -1}
ALL = sorted(BUILDERS)
# kafka-python needs a library of its own for the other codecs; aiokafka has them all from cramjam.
CODECS = [(name, codec) for name in ALL for codec in Codec if name != "kafka-python" or codec <= Codec.GZIP]

producers = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)


def their_batch(
    name: str, records: list[NewRecord], codec: Codec, transactional: bool, producer: tuple[int, int, int]
) -> bytes:
    builder: Any = BUILDERS[name](2, int(codec), int(transactional), *producer, 1 << 24)
    for offset, record in enumerate(records):
        headers = [(header.key, header.value) for header in record.headers]
        assert builder.append(offset, record.timestamp, record.key, record.value, headers) is not None
    return bytes(builder.build())


def their_records(name: str, batch: bytes | bytearray) -> list[Record]:
    reader: Any = READERS[name](bytes(batch))
    assert reader.validate_crc()
    return [
        Record(one.offset, one.timestamp, one.key, one.value, tuple(Header(*header) for header in one.headers))
        for one in reader
    ]


# Only records with a time, because aiokafka's C code takes -1 for "no record yet".
@pytest.mark.parametrize("name", ALL)
@given(records=timed_records, transactional=st.booleans(), producer=producers)
def test_uncompressed_bytes_are_the_same(
    name: str, records: list[NewRecord], transactional: bool, producer: tuple[int, int, int]
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    ours = build_batch(
        records,
        leader_epoch=LEADER_EPOCHS[name],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    assert ours == their_batch(name, records, Codec.NONE, transactional, producer)


@pytest.mark.parametrize(("name", "codec"), CODECS)
@given(records=timed_records, producer=producers)
def test_we_read_what_they_write(
    name: str, codec: Codec, records: list[NewRecord], producer: tuple[int, int, int]
) -> None:
    # A large and dull last record, because both of them send a batch as it is when compression does not pay.
    padded = [*records, NewRecord(bytes(3000), None, NOW_MS)]
    batch = their_batch(name, padded, codec, False, producer)
    header = check_batch(batch)
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert parse_batch(batch) == [
        Record(offset, record.timestamp, record.key, record.value, record.headers)
        for offset, record in enumerate(padded)
    ]


@pytest.mark.parametrize(("name", "codec"), CODECS)
@given(records=new_records, base_offset=st.integers(0, 2**60))
def test_they_read_what_we_write(name: str, codec: Codec, records: list[NewRecord], base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert their_records(name, batch) == parse_batch(batch)


@pytest.mark.parametrize("name", ALL)
@given(records=new_records, producer=producers, bits=st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_they_read_our_head_as_we_do(
    name: str, records: list[NewRecord], producer: tuple[int, int, int], bits: tuple[bool, bool, bool]
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    transactional, control, append_time = bits
    batch = build_batch(
        records,
        base_offset=12,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        log_append_time=append_time,
    )
    theirs: Any = READERS[name](bytes(batch))
    header = check_batch(batch)
    assert theirs.validate_crc()
    assert theirs.is_transactional == header.is_transactional == transactional
    assert theirs.is_control_batch == header.is_control == control
    assert theirs.timestamp_type == header.uses_log_append_time == append_time
    assert (theirs.first_timestamp, theirs.max_timestamp) == (header.base_timestamp, header.max_timestamp)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    assert (theirs.base_offset, theirs.next_offset) == (header.base_offset, header.next_offset)
    assert (theirs.crc, theirs.attributes, theirs.magic) == (header.crc, header.attributes, header.magic)


@pytest.mark.parametrize(("name", "codec"), CODECS)
def test_they_read_the_sample_with_several_blocks_of_each_codec(name: str, codec: Codec) -> None:
    batch = build_batch([NewRecord(b"It is not so easy to say " * 20)] * 1000, codec=codec)
    assert their_records(name, batch) == parse_batch(batch)
    assert their_records(name, SAMPLES[codec.label]) == parse_batch(SAMPLES[codec.label])


@pytest.mark.parametrize("kind", list(ControlType))
def test_they_read_our_markers(kind: ControlType) -> None:
    batch = bytes(control_batch(kind, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp=NOW_MS))
    (theirs,) = kafka_python_records.DefaultRecordBatch(batch)
    assert (theirs.commit, theirs.abort) == (kind is ControlType.COMMIT, kind is ControlType.ABORT)
    for name in ("aiokafka", "aiokafka in Python"):
        (record,) = their_records(name, batch)
        assert AiokafkaControlRecord.parse(record.key).type_ == kind
