"""A member of a consumer group in a process of its own: prints what it reads, commits, ends on SIGTERM.

Run as `python -m tests.clients.member LIBRARY BOOTSTRAP GROUP TOPIC`. A line is the record's value.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import warnings

SESSION_MS = 2_000
_stop = threading.Event()


def _say(values: list[bytes]) -> None:
    sys.stdout.write("".join(f"{value.decode()}\n" for value in values))
    sys.stdout.flush()


def run_confluent(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not _stop.is_set():
        messages = [message for message in consumer.consume(100, 0.2) if message.error() is None]
        if messages:
            _say([message.value() or b"" for message in messages])
            try:
                consumer.commit(asynchronous=False)
            except Exception as error:  # a rebalance came between: others will read these again
                print(error, file=sys.stderr)
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
    )
    while not _stop.is_set():
        records = [record for batch in consumer.poll(200).values() for record in batch]
        if records:
            _say([record.value for record in records])
            try:
                consumer.commit()
            except Exception as error:
                print(error, file=sys.stderr)
    consumer.close()


def run_aiokafka(bootstrap: str, group: str, topic: str) -> None:
    asyncio.run(_aiokafka(bootstrap, group, topic))


async def _aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
    )
    await consumer.start()
    while not _stop.is_set():
        batches = await consumer.getmany(timeout_ms=200)
        records = [record for batch in batches.values() for record in batch]
        if records:
            _say([record.value for record in records])
            try:
                await consumer.commit()
            except Exception as error:
                print(error, file=sys.stderr)
    await consumer.stop()


def main() -> None:
    library, bootstrap, group, topic = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: _stop.set())
    warnings.simplefilter("ignore")
    match library:
        case "confluent-classic" | "confluent-consumer":
            run_confluent(bootstrap, group, topic, library.removeprefix("confluent-"))
        case "kafka-python":
            run_kafka_python(bootstrap, group, topic)
        case "aiokafka":
            run_aiokafka(bootstrap, group, topic)
        case _:
            raise SystemExit(f"there is no library {library!r}")


if __name__ == "__main__":
    main()
