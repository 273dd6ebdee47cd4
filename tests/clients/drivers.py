"""One face for four clients: confluent-kafka, kafka-python, aiokafka and kcat send and read the same records."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from typing import Protocol

import aiokafka
import confluent_kafka
import kafka

from tests.clients.sample import RICH, SIMPLE, Sample

READ_SECONDS_MAX = 30.0


class Driver(Protocol):
    """A client."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def samples(self) -> Sequence[Sample]:
        """What it can send."""

    def send(self, bootstrap: str, topic: str, codec: str) -> None:
        """Send its samples to partition 0, and wait until they are acknowledged by all."""

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        """Read partition 0 from its start."""


class Confluent:
    """librdkafka by confluent-kafka."""

    name = "confluent-kafka"
    samples = RICH

    def send(self, bootstrap: str, topic: str, codec: str) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", "linger.ms": 20}
        )
        failures = []
        for sample in self.samples:
            producer.produce(
                topic,
                sample.value,
                sample.key,
                partition=0,
                headers=list(sample.headers),
                timestamp=sample.timestamp or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(READ_SECONDS_MAX) == 0
        assert failures == []

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Sample] = []
        try:
            while len(found) < count:
                message = consumer.poll(READ_SECONDS_MAX)
                assert message is not None and message.error() is None, f"{len(found)} of {count}: {message}"
                headers = tuple((name, value) for name, value in message.headers() or ())
                found.append(Sample(message.key(), message.value(), headers, message.timestamp()[1]))
        finally:
            consumer.close()
        return found


class KafkaPython:
    """kafka-python, written in Python alone."""

    name = "kafka-python"
    samples = RICH

    def send(self, bootstrap: str, topic: str, codec: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20
        )
        try:
            sent = [
                producer.send(
                    topic,
                    sample.value,
                    sample.key,
                    headers=list(sample.headers),
                    partition=0,
                    timestamp_ms=sample.timestamp,
                )
                for sample in self.samples
            ]
            for future in sent:
                future.get(READ_SECONDS_MAX)
        finally:
            producer.close()

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, consumer_timeout_ms=int(READ_SECONDS_MAX * 1000), group_id=None
        )
        found: list[Sample] = []
        try:
            where = kafka.TopicPartition(topic, 0)
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            for record in consumer:
                found.append(Sample(record.key, record.value, tuple(record.headers), record.timestamp))
                if len(found) == count:
                    break
        finally:
            consumer.close()
        return found


class AioKafka:
    """aiokafka, for asyncio."""

    name = "aiokafka"
    samples = RICH

    def send(self, bootstrap: str, topic: str, codec: str) -> None:
        asyncio.run(self._send(bootstrap, topic, codec))

    async def _send(self, bootstrap: str, topic: str, codec: str) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    sample.value,
                    sample.key,
                    partition=0,
                    timestamp_ms=sample.timestamp,
                    headers=list(sample.headers),
                )
                for sample in self.samples
            ]
            await asyncio.wait_for(asyncio.gather(*sent), READ_SECONDS_MAX)
        finally:
            await producer.stop()

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        return asyncio.run(self._read(bootstrap, topic, count))

    async def _read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        await consumer.start()
        found: list[Sample] = []
        try:
            where = aiokafka.TopicPartition(topic, 0)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            while len(found) < count:
                record = await asyncio.wait_for(consumer.getone(), READ_SECONDS_MAX)
                found.append(Sample(record.key, record.value, tuple(record.headers), record.timestamp))
        finally:
            await consumer.stop()
        return found


class Kcat:
    """kcat, the command, with Debian's older librdkafka."""

    name = "kcat"
    samples = SIMPLE

    def send(self, bootstrap: str, topic: str, codec: str) -> None:
        lines = b"".join(b"%b\t%b\n" % (sample.key or b"", sample.value or b"") for sample in self.samples)
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K", "\t", "-H", "h=v", "-z", codec]
        subprocess.run(
            [*command, "-X", "acks=all"], input=lines, check=True, timeout=READ_SECONDS_MAX, capture_output=True
        )

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sample]:
        # Bytes that are no text cannot be written as JSON: lengths and hexadecimal digits are not kcat's either, so
        # a format with rare separators carries them.
        form = r"%K\x1f%S\x1f%T\x1f%k\x1e%s\x1d%h\x1c"
        command = [
            "kcat",
            "-C",
            "-b",
            bootstrap,
            "-t",
            topic,
            "-p",
            "0",
            "-o",
            "beginning",
            "-c",
            str(count),
            "-e",
            "-q",
        ]
        ran = subprocess.run([*command, "-f", form], check=True, timeout=READ_SECONDS_MAX, capture_output=True)
        return _parse_kcat(ran.stdout)


def _parse_kcat(data: bytes) -> list[Sample]:
    """Read kcat's output: key length, value length and time say where the bytes end."""
    found = []
    at = 0
    while at < len(data):
        key_length, value_length, time, rest = data[at:].split(b"\x1f", 3)
        key_bytes, value_bytes = max(int(key_length), 0), max(int(value_length), 0)
        key, value = rest[:key_bytes], rest[key_bytes + 1 : key_bytes + 1 + value_bytes]
        headers_at = key_bytes + 1 + value_bytes + 1
        headers = rest[headers_at:].split(b"\x1c", 1)[0]
        at = len(data) - len(rest) + headers_at + len(headers) + 1
        found.append(
            Sample(
                None if int(key_length) < 0 else key,
                None if int(value_length) < 0 else value,
                tuple(_header(each) for each in headers.split(b",")) if headers else (),
                int(time),
            )
        )
    return found


def _header(text: bytes) -> tuple[str, bytes]:
    name, _, value = text.partition(b"=")
    return name.decode(), value


def has_kcat() -> bool:
    """Whether kcat is on this machine."""
    return shutil.which("kcat") is not None


DRIVERS: tuple[Driver, ...] = (Confluent(), KafkaPython(), AioKafka(), Kcat())
