"""What the sink does about brokers that die, rows that are too large, and topics that are not there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.spark.errors import MissingTopicError
from odradek.spark.options import WriteOptions
from odradek.spark.write.delivery import deliver
from odradek.spark.write.encode import RowError
from odradek.spark.write.sender import WriteError
from odradek.spark.write.sink_state import Identity
from odradek.spark.write.writer import Columns, TaskWritten, write_rows
from odradek.testing import broker
from tests.process import BrokerProcess
from tests.spark.sink_tools import Row, read, sample, spooled

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class TaskDiesError(Exception):
    """A task ends in the middle of its work."""


def test_a_broker_that_is_killed_again_and_again_takes_every_row_once(tmp_path: Path) -> None:
    rows = sample(6_000, distinct=2_000)
    with BrokerProcess(tmp_path / "data") as process, Client(process.bootstrap, timeout_ms=60_000) as client:
        client.admin.create_topic("t", 3)
        spool = spooled(client, "t", rows)
        killers: list[threading.Thread] = []

        def kill(_: TopicPartition, index: int) -> None:
            """Let it die while the request with this batch, or the one before it, is under way."""
            if index in (5, 20, 40) and len(killers) < (5, 20, 40).index(index) + 1:
                killers.append(threading.Thread(target=die_and_rise))
                killers[-1].start()

        def die_and_rise() -> None:
            process.kill()
            process.start()

        spool.watch = kill
        assert client.call(deliver(client.cluster, Identity("s", 0, 0), spool)) == 6_000
        for killer in killers:
            killer.join()
        assert len(killers) == 3
        assert read(client, "t") == Counter(rows)


def test_a_broker_that_dies_in_a_replay_takes_every_row_once(tmp_path: Path) -> None:
    rows = sample(3_000, distinct=700)
    with BrokerProcess(tmp_path / "data") as process, Client(process.bootstrap, timeout_ms=60_000) as client:
        client.admin.create_topic("t", 3)
        spool = spooled(client, "t", rows)

        def give_up(_: TopicPartition, index: int) -> None:
            if index == 10:
                raise TaskDiesError

        spool.watch = give_up
        with pytest.raises(TaskDiesError):
            client.call(deliver(client.cluster, Identity("s", 0, 0), spool))
        before = sum(read(client, "t").values())
        again = spooled(client, "t", rows[::-1])
        seen: list[int] = []

        def kill(_: TopicPartition, index: int) -> None:
            seen.append(index)
            if len(seen) == 400:  # it has compared what is there and is sending the rest
                process.kill()
                rising.start()

        rising = threading.Thread(target=process.start)
        again.watch = kill
        sent = client.call(deliver(client.cluster, Identity("s", 0, 0), again))
        rising.join()
        assert len(seen) > 400 and 0 < before < 3_000
        assert read(client, "t") == Counter(rows)
        assert sent <= 3_000 - before


def test_a_broker_that_stays_away_is_given_up_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process, Client(process.bootstrap, timeout_ms=2_000) as client:
        client.admin.create_topic("t", 1)
        spool = spooled(client, "t", sample(100))

        def kill(_: TopicPartition, index: int) -> None:
            if index == 1:
                process.kill()

        spool.watch = kill
        with pytest.raises(WriteError, match=r"batch 0 of task 0 could not be written: .*cannot be reached"):
            client.call(deliver(client.cluster, Identity("s", 0, 0), spool))


def test_batches_that_are_too_large_for_the_topic_are_split(client: Client, new_name: Callable[[], str]) -> None:
    topic = new_name()
    client.admin.create_topic(topic, 1, {"max.message.bytes": "1000"})
    rows = sample(500)
    spool = spooled(client, topic, rows, batch_bytes=1_000_000)
    assert client.call(deliver(client.cluster, Identity(topic, 0, 0), spool)) == 500
    assert read(client, topic) == Counter(rows)


def test_a_row_that_is_too_large_for_the_topic_is_named(client: Client, new_name: Callable[[], str]) -> None:
    topic = new_name()
    client.admin.create_topic(topic, 1, {"max.message.bytes": "1000"})
    rows: list[Row] = [(None, b"small"), (None, b"x" * 2_000)]
    spool = spooled(client, topic, rows, batch_bytes=1_000_000)
    words = rf"partition 0 of topic {topic} is too large: as a record it takes 20\d\d bytes.*max.message.bytes"
    with pytest.raises(WriteError, match=words):
        client.call(deliver(client.cluster, Identity(topic, 0, 0), spool))


def options(bootstrap: str, topic: str | None, **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": bootstrap, **more}
    return WriteOptions.parse(given if topic is None else given | {"topic": topic})


def task(bootstrap: str, rows: pa.RecordBatch, topic: str | None, **more: str) -> TaskWritten:
    places = {name: rows.schema.get_field_index(name) for name in Columns._fields}
    columns = Columns(**{name: None if place < 0 else place for name, place in places.items()})  # type: ignore[arg-type]
    chosen = options(bootstrap, topic, **more)
    return write_rows(iter([rows.slice(0, 3), rows.slice(3)]), columns, chosen, Identity("s", 0, 0))


def test_a_topic_that_nobody_creates_is_named() -> None:
    expected = pytest.raises(MissingTopicError, match="topic nowhere does not exist")
    with broker({"auto.create.topics.enable": "false"}) as server, expected:
        task(server.bootstrap_servers, pa.record_batch({"value": [b"v"]}), "nowhere")


def test_a_topic_is_created_where_brokers_do_so(bootstrap: str, client: Client, new_name: Callable[[], str]) -> None:
    topic = new_name()
    assert task(bootstrap, pa.record_batch({"value": [b"v"]}), topic).sent == 1
    assert read(client, topic) == Counter([(None, b"v")])


def test_a_task_without_rows_needs_no_broker() -> None:
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert task("127.0.0.1:1", empty, "t") == TaskWritten(None, 0, 0)


def test_a_name_that_cannot_be_a_topic_is_refused(bootstrap: str) -> None:
    rows = pa.record_batch({"value": [b"v"], "topic": ["no such name!"]})
    with pytest.raises(WriteError, match="no such name!"):
        task(bootstrap, rows, None)


def test_a_time_before_1970_is_refused(bootstrap: str, new_name: Callable[[], str]) -> None:
    rows = pa.record_batch({"value": [b"v"], "timestamp": pa.array([-1_000], pa.timestamp("us", "UTC"))})
    with pytest.raises(RowError, match="before 1970"):
        task(bootstrap, rows, new_name())


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.label)
def test_other_clients_read_what_a_task_wrote(
    bootstrap: str, client: Client, new_name: Callable[[], str], codec: Codec
) -> None:
    topic = new_name()
    client.admin.create_topic(topic, 1)
    count = 500
    rows = pa.record_batch(
        {
            "key": pa.array([None if index % 3 == 0 else b"k%d" % index for index in range(count)], pa.binary()),
            "value": pa.array([None if index % 7 == 0 else b"v" * index for index in range(count)], pa.binary()),
            "headers": pa.array([[("a", b"1"), ("b", None)] if index % 2 else None for index in range(count)], HEADERS),
            "timestamp": pa.array([index * 1_000_000 + 999 for index in range(count)], pa.timestamp("us", "UTC")),
        }
    )
    task(bootstrap, rows, topic, **{"kafka.compression.type": codec.label})
    expected = [
        (
            index * 1_000,
            None if index % 3 == 0 else b"k%d" % index,
            None if index % 7 == 0 else b"v" * index,
            [("a", b"1"), ("b", None)] if index % 2 else [],
        )
        for index in range(count)
    ]
    assert by_confluent(bootstrap, topic, count) == expected
    assert by_kafka_python(bootstrap, topic, count) == expected


def by_confluent(bootstrap: str, topic: str, count: int) -> list[object]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "check.crcs": True}
    consumer = ConfluentConsumer(settings)
    try:
        consumer.subscribe([topic])
        found: list[object] = []
        while len(found) < count:
            messages = consumer.consume(count, 30)
            assert messages, "there is nothing more"
            found += [(item.timestamp()[1], item.key(), item.value(), item.headers() or []) for item in messages]
        return found
    finally:
        consumer.close()


def by_kafka_python(bootstrap: str, topic: str, count: int) -> list[object]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True)
    try:
        consumer.assign([KafkaTopicPartition(topic, 0)])
        found: list[object] = []
        while len(found) < count:
            batches = consumer.poll(30_000).values()
            assert batches, "there is nothing more"
            found += [(item.timestamp, item.key, item.value, list(item.headers)) for items in batches for item in items]
        return found
    finally:
        consumer.close()
