"""Hostile input on the Kafka door: the documented answer, a line in the log, and a good client served meanwhile.

The numbers are those of the list of hostile inputs that the broker must survive. Every test ends with a record that
goes in and out, and with the broker's memory near to what it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.header import HEADER_BYTES, reseal
from odradek.records.record import NewRecord
from odradek.records.varint import encode_varint
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_versions, create_topics, fetch, metadata, produce
from tests.edge.raw import RawClient, fetch_request, produce_code, produce_request
from tests.process import BrokerProcess, wait_until

MEMORY_MORE_MAX = 256 * 2**20
UNREAD_MEMORY_MAX = 400 * 2**20  # the bound and what is being read; 50 answers of 16 MiB would take 800
PER_ADDRESS = 60
SETTINGS = {
    "socket.frame.timeout.ms": "700",
    "socket.stall.timeout.ms": "1500",
    "max.connections.per.ip": str(PER_ADDRESS),
    "request.decompressed.max.bytes": "4MiB",
    "partitions.max": "12000",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC = "good"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("hostile") / "data"
    with BrokerProcess(directory, SETTINGS) as broker:
        with RawClient(broker.port) as client:
            client.ask(metadata.Request(topics=[metadata.RequestTopic(name=TOPIC)]), metadata.Response, 9)
        yield broker


@pytest.fixture
def broker(process: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker before and after: a good client is served on a connection of before, and on a new one."""
    before = process.memory_bytes()
    with RawClient(process.port) as good:
        serve_one_record(good)
        yield process
        serve_one_record(good)
    wait_until(lambda: _serves_newcomer(process.port), what="a place for a new client")
    assert process.memory_bytes() - before < MEMORY_MORE_MAX
    assert process.process.poll() is None


def _serves_newcomer(port: int) -> bool:
    try:
        with RawClient(port) as newcomer:
            serve_one_record(newcomer)
    except (OSError, AssertionError):
        return False
    return True


def serve_one_record(client: RawClient) -> None:
    batch = bytes(build_batch([NewRecord(b"good", timestamp=7)]))
    answer = client.ask(produce_request(TOPIC, batch), produce.Response, 9)
    assert isinstance(answer, produce.Response)
    where = answer.responses[0].partition_responses[0]
    assert where.error_code == 0
    fetched = client.ask(fetch_request(TOPIC, where.base_offset), fetch.Response, 12)
    assert isinstance(fetched, fetch.Response)
    assert bytes(fetched.responses[0].partitions[0].records or b"").endswith(b"good\0")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


def greeted(client: RawClient) -> RawClient:
    """A client that has sent one good request, so that larger frames are allowed."""
    client.ask(api_versions.Request(), api_versions.Response, 0)
    return client


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
def test_01_an_impossible_frame_length_ends_the_connection(client: RawClient, length: int) -> None:
    greeted(client).send(struct.pack(">i", length))
    assert client.is_closed_by_broker()


def test_02_a_large_first_request_ends_the_connection(client: RawClient) -> None:
    client.send(struct.pack(">i", 512 * 1024 + 1))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("length", [2**31 - 1, 2**30, 1000])
def test_03_an_array_longer_than_its_bytes_ends_the_connection(client: RawClient, length: int) -> None:
    client.send_frame(client.request_bytes(metadata.Request(), 1, body=struct.pack(">i", length)))
    assert client.is_closed_by_broker()


def test_04_millions_of_tagged_fields_end_the_connection(client: RawClient) -> None:
    million = b"\xc0\x84\x3d"  # 1,000,000 as a varint
    tags = million + b"".join(bytes((0x80 | tag & 0x7F, tag >> 7, 0)) for tag in range(128, 10_000))
    client.send_frame(client.request_bytes(metadata.Request(), 9, body=b"\x01\x01\x00" + tags))
    assert client.is_closed_by_broker()


def test_05_an_overlong_varint_ends_the_connection(client: RawClient) -> None:
    client.send_frame(client.request_bytes(metadata.Request(), 9, body=b"\xff" * 12))
    assert client.is_closed_by_broker()


def test_06_a_cut_frame_and_a_hang_up_is_one_line_in_the_log(broker: BrokerProcess, client: RawClient) -> None:
    client.send(struct.pack(">i", 100) + b"short")
    client.close()
    wait_until(lambda: "in the middle of a request" in broker.log(), what="a line in the log")


def test_07_a_request_that_trickles_is_cut_off_at_the_deadline(broker: BrokerProcess) -> None:
    with RawClient(broker.port, 0.2) as slow:
        slow.send(struct.pack(">i", 1000))

        def is_cut_off() -> bool:
            try:
                slow.send(b"x")
                return slow.socket.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(is_cut_off, 15.0, "the deadline")


def test_08_an_unknown_api_ends_the_connection(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 999, 0, 1, -1))
    assert client.is_closed_by_broker()


def test_09_api_versions_of_the_future_gets_version_0s_answer(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 18, 99, 77, -1))
    frame = client.read_frame()
    (correlation_id,) = struct.unpack_from(">i", frame)
    answer = api_versions.Response.decode(frame, 0, 4)
    assert (correlation_id, answer.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    assert any(api.api_key == 18 and api.max_version >= 3 for api in answer.api_keys)


def batch(*records: NewRecord, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(records or [NewRecord(b"v", timestamp=7)], codec=codec)


def test_11_a_bad_crc_is_corrupt(client: RawClient) -> None:
    bad = batch()
    bad[-1] ^= 1
    assert produce_code(client, TOPIC, bytes(bad)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [0, 2, 1000, 2**31 - 1])
def test_12_a_record_count_that_differs_is_invalid(client: RawClient, count: int) -> None:
    bad = batch()
    struct.pack_into(">i", bad, 57, count)
    struct.pack_into(">i", bad, 23, max(count - 1, 0))
    reseal(bad)
    assert produce_code(client, TOPIC, bytes(bad)) == ErrorCode.INVALID_RECORD


def test_12_a_negative_record_length_is_invalid(client: RawClient) -> None:
    bad = batch()
    length = bytearray()
    encode_varint(length, -5)
    bad[HEADER_BYTES : HEADER_BYTES + 1] = length
    reseal(bad)
    assert produce_code(client, TOPIC, bytes(bad)) == ErrorCode.INVALID_RECORD


def test_13_a_codec_that_does_not_exist_is_named(client: RawClient) -> None:
    bad = batch()
    struct.pack_into(">h", bad, 21, 7)
    reseal(bad)
    assert produce_code(client, TOPIC, bytes(bad)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_14_a_decompression_bomb_is_too_large(client: RawClient, codec: Codec) -> None:
    bomb = batch(NewRecord(bytes(20 * 2**20), timestamp=7), codec=codec)
    if len(bomb) > 2**20:
        pytest.skip(f"{codec.label} does not compress that far")
    assert produce_code(greeted(client), TOPIC, bytes(bomb)) == ErrorCode.MESSAGE_TOO_LARGE


def test_15_a_batch_over_the_maximum_is_too_large(client: RawClient) -> None:
    large = batch(NewRecord(bytes(2 * 2**20), timestamp=7))
    assert produce_code(greeted(client), TOPIC, bytes(large)) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", ["../x", "a\0b", ".", "..", "x" * 250, "line\nbreak", "\x1b[31mred", ""])
def test_16_a_bad_topic_name_is_invalid_and_escaped_in_the_log(
    broker: BrokerProcess, client: RawClient, name: str
) -> None:
    wanted = create_topics.RequestTopic(name=name, num_partitions=1, replication_factor=1)
    answer = client.ask(create_topics.Request(topics=[wanted]), create_topics.Response, 5)
    assert isinstance(answer, create_topics.Response)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = client.ask(metadata.Request(topics=[metadata.RequestTopic(name=name)]), metadata.Response, 9)
    assert isinstance(asked, metadata.Response)
    assert asked.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "\x1b" not in broker.log()


@pytest.mark.parametrize("count", [0, -2, 10**9])
def test_17_an_absurd_number_of_partitions_is_refused(client: RawClient, count: int) -> None:
    wanted = create_topics.RequestTopic(name="absurd", num_partitions=count, replication_factor=1)
    answer = client.ask(create_topics.Request(topics=[wanted]), create_topics.Response, 5)
    assert isinstance(answer, create_topics.Response)
    assert answer.topics[0].error_code == ErrorCode.INVALID_PARTITIONS


def sequenced(sequence: int, producer_id: int) -> bytes:
    record = NewRecord(b"s", timestamp=7)
    return bytes(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def test_20_a_gap_in_a_producers_sequence_is_refused_and_a_repetition_is_not(client: RawClient) -> None:
    assert produce_code(client, TOPIC, sequenced(0, 4242)) == 0
    assert produce_code(client, TOPIC, sequenced(2, 4242)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce_code(client, TOPIC, sequenced(0, 4242)) == 0
    assert produce_code(client, TOPIC, sequenced(1, 4242)) == 0


def test_21_a_control_batch_from_a_client_is_invalid(client: RawClient) -> None:
    marker = control_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=7)
    assert produce_code(client, TOPIC, bytes(marker)) == ErrorCode.INVALID_RECORD


def test_23_a_fetch_of_everything_from_ten_thousand_partitions_is_capped(client: RawClient) -> None:
    topics = [
        fetch.RequestTopic(
            topic=TOPIC if number == 0 else f"unknown-{number}",
            partitions=[
                fetch.RequestPartition(partition=index, fetch_offset=0, partition_max_bytes=2**31 - 1)
                for index in range(100)
            ],
        )
        for number in range(100)
    ]
    request = fetch.Request(max_wait_ms=0, min_bytes=2**31 - 1, max_bytes=2**31 - 1, topics=topics)
    answer = greeted(client).ask(request, fetch.Response, 12)
    assert isinstance(answer, fetch.Response)
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    assert len(partitions) == 10_000
    assert sum(len(partition.records or b"") for partition in partitions) <= 16 * 2**20 + 2**20


def test_24_clients_that_never_read_are_let_go_and_do_not_fill_the_memory(broker: BrokerProcess) -> None:
    before, peak = broker.memory_bytes(), 0
    with RawClient(broker.port) as filler:
        record = bytes(build_batch([NewRecord(bytes(900_000), timestamp=7)]))
        for _ in range(20):
            assert produce_code(greeted(filler), "large", record) in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            filler.ask(metadata.Request(topics=[metadata.RequestTopic(name="large")]), metadata.Response, 9)
    deaf = [RawClient(broker.port, 10.0) for _ in range(50)]
    try:
        asking = fetch_request("large", max_bytes=16 * 2**20)
        for client in deaf:
            for _ in range(50):
                client.send_frame(client.request_bytes(asking, 12))

        def are_let_go() -> bool:
            nonlocal peak
            peak = max(peak, broker.memory_bytes())
            return broker.log().count("has not read its answers") >= len(deaf)

        wait_until(are_let_go, 90.0, "the end of patience")
        assert peak - before < UNREAD_MEMORY_MAX
    finally:
        for client in deaf:
            client.close()


def test_25_connections_beyond_the_cap_of_an_address_are_closed(broker: BrokerProcess) -> None:
    flood = []
    try:
        for _ in range(PER_ADDRESS * 4):
            flood.append(RawClient(broker.port, 5.0))
        assert flood[-1].is_closed_by_broker()
        assert broker.log().count("refused") <= 5, "a flood must not fill the log"
    finally:
        for client in flood:
            client.close()


def test_announcing_large_requests_costs_no_memory(broker: BrokerProcess) -> None:
    before = broker.memory_bytes()
    liars = [greeted(RawClient(broker.port)) for _ in range(20)]
    try:
        for liar in liars:
            liar.send(struct.pack(">i", 100 * 2**20) + b"\0\0\0\x03")
        with RawClient(broker.port) as client:
            serve_one_record(client)
        assert broker.memory_bytes() - before < 64 * 2**20
    finally:
        for liar in liars:
            liar.close()


def test_fetches_that_wait_hold_no_records(broker: BrokerProcess) -> None:
    record = bytes(build_batch([NewRecord(bytes(900_000), timestamp=7)]))
    with RawClient(broker.port) as client:
        client.ask(metadata.Request(topics=[metadata.RequestTopic(name="waited-for")]), metadata.Response, 9)
        for _ in range(10):
            assert produce_code(greeted(client), "waited-for", record) == 0
    before = broker.memory_bytes()
    waiting = fetch_request("waited-for", max_bytes=16 * 2**20, max_wait_ms=60_000)
    waiting.min_bytes = 2**30
    clients = [RawClient(broker.port) for _ in range(PER_ADDRESS - 5)]
    try:
        for client in clients:
            client.send_frame(client.request_bytes(waiting, 12))
        with RawClient(broker.port) as client:
            serve_one_record(client)
        assert broker.memory_bytes() - before < 128 * 2**20
    finally:
        for client in clients:
            client.close()
    # Their places are free again at once, although the fetches could have waited for a minute.
    newcomers: list[RawClient] = []
    try:
        for _ in range(10):
            wait_until(lambda: _serves_newcomer(broker.port), 5.0, "a place for a newcomer")
            newcomers.append(RawClient(broker.port))
            greeted(newcomers[-1])
    finally:
        for client in newcomers:
            client.close()


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_many_small_records_of_two_lengths_do_not_hold_up_the_others(client: RawClient, codec: Codec) -> None:
    values = [b"" if number % 2 else b"x" for number in range(400_000)]
    batch = build_batch([NewRecord(value, timestamp=7) for value in values], codec=codec)
    assert produce_code(greeted(client), TOPIC, bytes(batch)) == 0


def test_a_request_may_not_decompress_to_more_than_its_allowance_in_many_batches(client: RawClient) -> None:
    batch = bytes(build_batch([NewRecord(bytes(3 * 2**20), timestamp=7)], codec=Codec.ZSTD))
    partitions = [produce.RequestPartition(index=0, records=batch) for _ in range(4)]
    topics = [produce.RequestTopic(name=TOPIC, partition_data=partitions)]
    answer = greeted(client).ask(produce.Request(acks=-1, timeout_ms=1000, topic_data=topics), produce.Response, 9)
    assert isinstance(answer, produce.Response)
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [0, *[ErrorCode.MESSAGE_TOO_LARGE] * 3]


def test_the_log_has_one_line_an_event(broker: BrokerProcess) -> None:
    for line in broker.log().splitlines():
        assert line[:2] == "20", f"not a line of its own: {line!r}"
