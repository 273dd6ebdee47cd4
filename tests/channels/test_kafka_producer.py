"""A channel is a topic, too: what a Kafka producer sends is soon in the store, as it is in the log."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from odradek.objects.reader import ChannelReader, ReadMessage
from odradek.objects.stores import open_store
from tests.channels.rama import create_channel, end, now_ms
from tests.process import BrokerProcess, wait_until
from tests.s3 import S3Server

CHANNEL = "orders"
COUNT = 500


def test_what_a_kafka_producer_sends_is_read_from_the_store(tmp_path: Path, s3: S3Server) -> None:
    url, start_ms = s3.new_url(), now_ms()
    broker = BrokerProcess(tmp_path / "data", http=True, environment=s3.environment).start()
    try:
        create_channel(broker.http_url, CHANNEL, url, {"channel.slice.ms": "200"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 5})
        for number in range(COUNT):
            producer.produce(
                CHANNEL,
                None if number % 10 == 3 else b"value %d" % number,
                key=b"%d" % number,
                headers=[("number", b"%d" % number)],
                timestamp=start_ms + number,
            )
        assert producer.flush(30) == 0
        reader = ChannelReader(open_store(url, s3.options), CHANNEL, start=start_ms)
        found: list[ReadMessage] = []

        def is_complete() -> bool:
            found.extend(reader.poll())
            return len(found) >= COUNT

        wait_until(is_complete, 10, "the records")
    finally:
        end(broker)
    assert sorted(message.sequence for message in found) == list(range(COUNT))
    for message in found:
        number = int(message.key or b"")
        assert message.value == (None if number % 10 == 3 else b"value %d" % number)
        assert message.headers == (("number", b"%d" % number),)
        assert message.timestamp == start_ms + number
