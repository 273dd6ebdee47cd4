"""Topics whose segments live in sqlite or RocksDB, by every door: who reads and writes cannot tell where they are."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.grpc.doors import CALL_SECONDS, Doors
from tests.grpc.kafka import confluent_send, confluent_values
from tests.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("grpc-backends")

FILES = {"file": "*.log", "sqlite": "*.sqlite", "rocksdb": "segments.rocksdb"}
BACKENDS = tuple(FILES)


def create(broker: BrokerProcess, topic: str, backend: str) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic(topic, 2, 1, config={"segment.backend": backend, "segment.bytes": "16384"})
    admin.create_topics([wanted])[topic].result(CALL_SECONDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_doors_share_a_topic_whatever_holds_its_segments(broker: BrokerProcess, doors: Doors, backend: str) -> None:
    name = f"in_{backend}"
    create(broker, name, backend)
    topic = doors.topic(name).topic_id
    expected = [b"%d by eeylops" % number * 5 for number in range(1_000)]
    doors.publish(topic, 1, [expected[at : at + 40] for at in range(0, 1_000, 40)])
    expected.append(b"by mykafka")
    assert doors.send(name, 0, b"by mykafka") == 1_000
    packed = [b"%d by confluent" % number * 5 for number in range(200)]
    confluent_send(broker.bootstrap, name, packed, codec="zstd")
    expected += packed

    def check(at: Doors) -> None:
        assert at.values(topic) == expected
        assert at.streamed(topic, 1, len(expected)) == expected
        assert [at.get(name, 0, offset) for offset in range(0, 1_201, 100)] == expected[::100]
        assert at.offsets(name, 0) == (0, 1_200, 1_200)
        assert [value for _, value, _ in confluent_values(broker.bootstrap, name, len(expected))] == expected
        by_time = at.consume(topic, start_offset=-1, start_timestamp=1, batch_size=5)
        assert [value.value for value in by_time.values] == expected[:5]

    check(doors)
    assert list((broker.directory / f"{name}-0").glob(FILES[backend])), "or this shows nothing"
    broker.kill()
    broker.start()
    check(doors.wait())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_commit_and_a_time_range_do_not_depend_on_the_backend(
    broker: BrokerProcess, doors: Doors, backend: str
) -> None:
    name = f"ranges_{backend}"
    create(broker, name, backend)
    doors.wait()
    topic = doors.topic(name).topic_id
    doors.produce(topic, 2, [b"%d" % number for number in range(50)])
    (first,) = doors.consume(topic, 2, batch_size=1).values
    ended = doors.consume(
        topic, 2, start_offset=-1, start_timestamp=first.timestamp, end_timestamp=first.timestamp + 60_000
    )
    assert [value.offset for value in ended.values] == list(range(50))
    later = doors.consume(topic, 2, start_offset=-1, start_timestamp=first.timestamp + 60_000)
    assert not later.values and later.next_offset == 50
    doors.register("reader", topic, 2)
    doors.consume(topic, 2, consumer_id="reader", batch_size=20, auto_commit=True)
    assert doors.committed("reader", topic, 2) == 20
