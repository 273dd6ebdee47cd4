"""The load of a fault test: idempotent producers and a group of consumers, all of what they see kept as a history.

A record's value is `producer sequence padding`. Producers wait for all in-sync replicas and try again for as long as a
test may last, so a delivery that fails is a finding too. Consumers commit by hand what they have noted down.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.fault.history import UNKNOWN_OFFSET, Acknowledged, Assigned, History, Place, Polled, Record

GROUP = "readers"
PADDING_BYTES_MAX = 400
DELIVERY_SECONDS_MAX = 300.0
COMMIT_EVERY = 25  # records
LIFE_SECONDS = (4.0, 15.0)  # of a consumer, from its joining to its leaving
AFTER_FAILURE_SECONDS = 15.0
POLL_SECONDS = 0.1
BURST_MAX = 20
Settings = dict[str, str | int | float | bool]


def now_ms() -> int:
    """The clock of the history."""
    return time.monotonic_ns() // 1_000_000


def client_settings(bootstrap: str) -> Settings:
    """Clients that find out soon that somebody does not answer: nothing tells them of a cut."""
    return {
        "bootstrap.servers": bootstrap,
        "socket.timeout.ms": 4_000,
        "socket.connection.setup.timeout.ms": 1_500,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 5_000,
        "log_level": 0,
    }


def encode(record: Record, padding: int) -> bytes:
    """The value of a record."""
    return b"%s %d %s" % (record.producer.encode(), record.sequence, b"x" * padding)


def decode(message: Message) -> tuple[Record, Place]:
    """Which record this is, and where it stands."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert isinstance(value, bytes) and partition is not None
    producer, sequence, _ = value.split(b" ", 2)
    place = Place(partition, UNKNOWN_OFFSET if offset is None or offset < 0 else offset)
    return Record(producer.decode(), int(sequence)), place


class Load:
    """Producers and consumers as threads; start and close it where the clients are."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, seed: int, producers: int, consumers: int, rate: int
    ) -> None:
        self.history = History()
        self.failures: Counter[str] = Counter()  # what no client may ever be told, and how often it was
        self.sent = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rate = rate  # records a second of one producer
        self._sending_ends, self._reading_ends = threading.Event(), threading.Event()
        self._senders = [self._thread(self._send, f"p{number}", seed + number) for number in range(producers)]
        self._readers = [self._thread(self._read, f"c{number}", seed + number) for number in range(consumers)]

    def _thread(self, target: Callable[[str, int], None], name: str, seed: int) -> threading.Thread:
        return threading.Thread(target=self._guard, args=(target, name, seed), name=f"load-{name}", daemon=True)

    def _guard(self, target: Callable[[str, int], None], name: str, seed: int) -> None:
        """No thread dies unheard."""
        try:
            target(name, seed)
        except Exception as error:  # whatever it is, the run has failed
            self.failures[f"{name}: {type(error).__name__}: {error}"] += 1

    def start(self) -> None:
        """Begin to send and to read."""
        for thread in self._senders + self._readers:
            thread.start()

    def finish(self, seconds: float) -> bool:
        """Send no more; wait until all is acknowledged and the group has seen all of it. Whether that came in time."""
        deadline = time.monotonic() + seconds
        self._sending_ends.set()
        for thread in self._senders:
            thread.join(max(0.0, deadline - time.monotonic()))
        pause = threading.Event()
        if self.failures:  # a producer is out of service: only what was acknowledged must still be read
            deadline = min(deadline, time.monotonic() + AFTER_FAILURE_SECONDS)
        while self._is_behind() and time.monotonic() < deadline:
            pause.wait(POLL_SECONDS)
        return not self._is_behind()

    def _is_behind(self) -> bool:
        if any(thread.is_alive() for thread in self._senders):
            return True
        seen = {event.record for event in list(self.history.consumed) if isinstance(event, Polled)}
        return any(event.record not in seen for event in list(self.history.acknowledged))

    def close(self) -> None:
        """End the threads."""
        self._sending_ends.set()
        self._reading_ends.set()
        for thread in self._senders + self._readers:
            if thread.is_alive():
                thread.join(30.0)

    # Producers

    def _send(self, name: str, seed: int) -> None:
        chance = random.Random(seed)
        producer = Producer(
            {
                **client_settings(self._bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "request.timeout.ms": 3_000,
                "message.timeout.ms": int(DELIVERY_SECONDS_MAX * 1000),
                "retry.backoff.max.ms": 300,
            }
        )
        sequence, begin = 0, time.monotonic()
        while not self._sending_ends.is_set():
            burst = chance.randint(1, BURST_MAX)
            for _ in range(burst):
                value = encode(Record(name, sequence), chance.randint(0, PADDING_BYTES_MAX))
                self._produce(producer, value, chance.randrange(self._partitions))
                sequence += 1
            self.sent += burst
            producer.poll(0)
            while (left := begin + sequence / self._rate - time.monotonic()) > 0 and not self._sending_ends.is_set():
                producer.poll(min(left, POLL_SECONDS))
        left_over = 1
        while left_over and not self._reading_ends.is_set():
            left_over = producer.flush(1.0)

    def _produce(self, producer: Producer, value: bytes, partition: int) -> None:
        while True:
            try:
                producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                return
            except BufferError:  # so much is under way that it must wait
                producer.poll(POLL_SECONDS)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[f"a record was not delivered: {error}"] += 1
            return
        record, place = decode(message)
        self.history.acknowledged.append(Acknowledged(now_ms(), record, place))

    # Consumers

    def _read(self, name: str, seed: int) -> None:
        """One life after another: a member that leaves and comes again keeps the group moving."""
        chance = random.Random(seed)
        life = 0
        while not self._reading_ends.is_set():
            life += 1
            self._live(f"{name}.{life}", chance.uniform(*LIFE_SECONDS))

    def _live(self, name: str, seconds: float) -> None:
        consumer = Consumer(
            {
                **client_settings(self._bootstrap),
                "group.id": GROUP,
                "client.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "on_commit": self._committed,
            }
        )

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.history.consumed.extend(Assigned(now_ms(), name, partition.partition) for partition in partitions)

        consumer.subscribe([self._topic], on_assign=assigned)
        count, until = 0, time.monotonic() + seconds
        try:
            while not self._reading_ends.is_set() and (time.monotonic() < until or self._sending_ends.is_set()):
                message = consumer.poll(POLL_SECONDS)
                error = message.error() if message is not None else None
                if message is None or error is not None:
                    self._heard(name, error)
                    continue
                self.history.consumed.append(Polled(now_ms(), name, *decode(message)))
                count += 1
                if count % COMMIT_EVERY == 0:
                    with contextlib.suppress(KafkaException):  # whoever comes next reads some records again
                        consumer.commit(asynchronous=True)
        finally:
            consumer.close()

    def _committed(self, _error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Faults may refuse a commit; but no broker may deny a partition from which the group was given records."""
        for place in places:
            if place.error is not None and place.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.failures[f"offsets of partition {place.partition} are not taken: {place.error}"] += 1

    def _heard(self, name: str, error: KafkaError | None) -> None:
        if error is not None and error.fatal():
            self.failures[f"consumer {name}: {error}"] += 1


def read_all(bootstrap: str, topic: str, partitions: int, seconds: float) -> dict[Place, Record]:
    """Every partition from its beginning to its end, as one who has just come would read it."""
    settings = {**client_settings(bootstrap), "group.id": "check", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "error"})
    found: dict[Place, Record] = {}
    ended: set[int] = set()
    told = "nothing"
    deadline = time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, (
                f"{len(ended)} of {partitions} partitions read to the end within {seconds:g} s, "
                f"{len(found)} records; the client was told {told}"
            )
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                record, place = decode(message)
                found[place] = record
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            else:
                told = str(error)
    finally:
        consumer.close()
    return found


def as_lines(history: History) -> Mapping[str, list[str]]:
    """The history as text, a file name and its lines."""
    consumed = [
        f"{event.at_ms} {event.consumer} assigned {event.partition}"
        if isinstance(event, Assigned)
        else f"{event.at_ms} {event.consumer} polled {event.place.partition} {event.place.offset} "
        f"{event.record.producer} {event.record.sequence}"
        for event in history.consumed
    ]
    return {
        "acknowledged.txt": [
            f"{at_ms} {record.producer} {record.sequence} {place.partition} {place.offset}"
            for at_ms, record, place in history.acknowledged
        ],
        "consumed.txt": consumed,
        "final.txt": [
            f"{place.partition} {place.offset} {record.producer} {record.sequence}"
            for place, record in sorted(history.final.items())
        ],
    }
