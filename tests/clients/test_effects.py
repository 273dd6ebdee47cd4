"""What clients ask for takes effect: seeking by time, deleted records, changed settings, a producer that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from odradek.testing import broker
from tests.process import BrokerProcess, wait_until

WAIT_SECONDS = 30.0
HOUR_MS = 3_600_000
BASE_MS = 1_700_000_000_000


def made(bootstrap: str, topic: str, **configs: str) -> AdminClient:
    """Make a topic of one partition; in a setting's name `__` stands for a dot."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("__", "."): value for name, value in configs.items()}
    for result in admin.create_topics([NewTopic(topic, 1, 1, config=named)]).values():
        result.result(WAIT_SECONDS)
    return admin


def change(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for result in admin.incremental_alter_configs([resource]).values():
        result.result(WAIT_SECONDS)


def send(bootstrap: str, topic: str, values: list[bytes], **more: object) -> list[KafkaError]:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    failures: list[KafkaError] = []

    def hear(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        given = {name: each(number) if callable(each) else each for name, each in more.items()}
        producer.produce(topic, value, on_delivery=hear, **given)
    assert producer.flush(WAIT_SECONDS) == 0
    return failures


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "marks"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS)
        return low, high
    finally:
        consumer.close()


def test_three_libraries_find_offsets_by_time(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("by-time")
    made(bootstrap, topic)
    values = [b"%d" % number for number in range(24)]
    assert send(bootstrap, topic, values, timestamp=lambda number: BASE_MS + number * HOUR_MS) == []
    wanted = BASE_MS + 10 * HOUR_MS - 1
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "time"})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, wanted)], WAIT_SECONDS)
    (beyond,) = consumer.offsets_for_times([TopicPartition(topic, 0, BASE_MS + 99 * HOUR_MS)], WAIT_SECONDS)
    consumer.close()
    assert (found.offset, beyond.offset) == (10, -1)
    reader = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    where = kafka.TopicPartition(topic, 0)
    assert reader.offsets_for_times({where: wanted})[where].offset == 10
    reader.close()


async def _aio_offset(bootstrap: str, topic: str, timestamp: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        where = aiokafka.TopicPartition(topic, 0)
        found = await consumer.offsets_for_times({where: timestamp})
        offset: int = found[where].offset
        return offset
    finally:
        await consumer.stop()


def test_deleted_records_are_gone_for_readers(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("trimmed")
    admin = made(bootstrap, topic)
    assert send(bootstrap, topic, [b"%d" % number for number in range(50)]) == []
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 30)]).values()
    assert deleted.result(WAIT_SECONDS).low_watermark == 30
    assert watermarks(bootstrap, topic) == (30, 50)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "trim", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_SECONDS)
    consumer.close()
    assert message is not None and message.offset() == 30


def test_a_smaller_maximum_size_takes_effect(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("sizes")
    admin = made(bootstrap, topic)
    assert send(bootstrap, topic, [bytes(100_000)]) == []
    change(admin, topic, "max.message.bytes", "50000")
    (error,) = send(bootstrap, topic, [bytes(100_000)])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(bootstrap, topic, [bytes(10_000)]) == []


def test_a_keyless_record_is_refused_by_a_compacted_topic(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("compacted")
    made(bootstrap, topic, cleanup__policy="compact")
    (error,) = send(bootstrap, topic, [b"no key"])
    assert error.code() == KafkaError.INVALID_RECORD
    assert send(bootstrap, topic, [b"with a key"], key=b"k") == []


def test_the_broker_stamps_its_own_time_where_the_topic_says_so(bootstrap: str, new_name: Callable[[str], str]) -> None:
    topic = new_name("stamped")
    made(bootstrap, topic, message__timestamp__type="LogAppendTime")
    assert send(bootstrap, topic, [b"v"], timestamp=BASE_MS) == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stamp"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_SECONDS)
    consumer.close()
    assert message is not None
    kind, timestamp = message.timestamp()
    assert kind == 2 and timestamp > BASE_MS


def test_retention_and_compaction_work_in_the_background() -> None:
    settings = {"log.retention.check.interval.ms": "50", "log.cleaner.backoff.ms": "50"}
    with broker(settings) as embedded:
        bootstrap = embedded.bootstrap_servers
        made(bootstrap, "old", segment__bytes="2048", retention__bytes="4096")
        for _ in range(20):
            assert send(bootstrap, "old", [bytes(500)] * 4) == []
        wait_until(lambda: watermarks(bootstrap, "old")[0] > 0, WAIT_SECONDS, "retention")
        made(bootstrap, "latest", cleanup__policy="compact", segment__bytes="2048", min__cleanable__dirty__ratio="0.01")
        for _ in range(20):
            assert send(bootstrap, "latest", [bytes(200)] * 9, key=lambda number: b"k%d" % (number % 3)) == []
        wait_until(lambda: _count(bootstrap, "latest") < 100, WAIT_SECONDS, "compaction")


def _count(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    try:
        while True:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return count
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def test_an_idempotent_producer_goes_on_over_restarts_of_the_broker(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    producer = Producer(
        {
            "bootstrap.servers": process.bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    failures: list[KafkaError] = []
    for number in range(300):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
        if number in (100, 200):
            assert process.stop() == 0
            process.start()
    assert producer.flush(WAIT_SECONDS) == 0
    assert failures == []
    assert watermarks(process.bootstrap, "t") == (0, 300)
    assert process.stop() == 0


@pytest.mark.parametrize("minutes", [0, 5])
def test_aiokafka_finds_offsets_by_time(bootstrap: str, new_name: Callable[[str], str], minutes: int) -> None:
    topic = new_name("aio-time")
    made(bootstrap, topic)
    values = [b"%d" % number for number in range(10)]
    assert send(bootstrap, topic, values, timestamp=lambda number: BASE_MS + number * 60_000) == []
    assert asyncio.run(_aio_offset(bootstrap, topic, BASE_MS + minutes * 60_000)) == minutes
