"""Clients of a channel in tests: one that speaks HTTP as curl would, and threads of them that note what they are told.

A message is `{"id": ..., "_ts": now}`; ids are never used twice and a message is never sent again, so every id that
is found twice was doubled by the broker.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaError, TopicPartition

from odradek.objects.reader import ChannelReader
from odradek.objects.stores import open_store
from tests.process import BrokerProcess, wait_until
from tests.s3 import S3Server

ANSWER_SECONDS_MAX = 60.0
BATCH_MAX = 20


def now_ms() -> int:
    """The clock that the broker goes by, too."""
    return time.time_ns() // 1_000_000


class Rama:
    """One connection to a broker's HTTP door."""

    def __init__(self, url: str, client_key: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_SECONDS_MAX)
        self._headers = {} if client_key is None else {"client_key": client_key}

    def ask(self, method: str, path: str, content: object = None) -> tuple[int, Any]:
        """The answer's status, and its JSON."""
        body = None if content is None else json.dumps(content)
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create_channel(
    url: str, name: str, store: str, settings: Mapping[str, str] | None = None, *, fifo: bool = False
) -> str:
    """Make a channel and register with it; the client's key."""
    wanted = {"topic": name, "store": store, "fifo": fifo, "config": settings or {}}
    with Rama(url) as door:
        status, answer = door.ask("PUT", "/create_topic", wanted)
        assert status == 201, answer
        status, answer = door.ask("POST", f"/register/{name}")
        assert status == 201, answer
        key = answer["client_key"]
        assert isinstance(key, str)
        return key


def end(broker: BrokerProcess) -> None:
    """End a broker unless the test has done so."""
    if broker.process.poll() is None:
        broker.kill()


class Refusal(NamedTuple):
    """An answer that was no acknowledgement."""

    status: int
    text: str
    seconds: float  # from the request to the answer


class Ledger:
    """What publishers were told, over all their connections and all lives of the broker."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acknowledged: dict[str, int] = {}  # the offset of each id
        self.refusals: list[Refusal] = []
        self.unanswered: set[str] = set()
        self.in_flight = 0
        self._last = 0

    def new_ids(self, count: int) -> list[str]:
        with self.lock:
            self._last += count
            self.in_flight += 1
            return [f"m{number}" for number in range(self._last - count, self._last)]

    def note(self, ids: list[str], status: int, answer: Any, seconds: float) -> None:
        """Write down an answer."""
        with self.lock:
            self.in_flight -= 1
            if status not in (200, 201):
                self.refusals.append(Refusal(status, json.dumps(answer), seconds))
                self.unanswered.update(ids)
                return
            first = answer["offset"] if "offset" in answer else answer["offsets"][0]
            self.acknowledged.update(zip(ids, range(first, first + len(ids)), strict=True))

    def promises(self) -> dict[str, int]:
        """What is acknowledged now; more may be before it is looked for."""
        with self.lock:
            return dict(self.acknowledged)

    def wait_for(self, count: int) -> None:
        """Until so many more messages are acknowledged."""
        target = len(self.acknowledged) + count
        try:
            wait_until(lambda: len(self.acknowledged) >= target, 30, f"{count} acknowledgements")
        except AssertionError as error:
            raise AssertionError(
                f"{error}; {target - len(self.acknowledged)} are missing, {self.in_flight} requests wait, "
                f"{len(self.unanswered)} messages were not answered, refused: {self.refusals[-3:]}"
            ) from None

    def wait_until_all_wait(self, publishers: int) -> None:
        """Until every publisher has sent a message that is not answered, for half a second."""
        seen = -1, 0.0

        def is_still() -> bool:
            nonlocal seen
            done = len(self.acknowledged)
            if done != seen[0]:
                seen = done, time.monotonic()
            return self.in_flight == publishers and time.monotonic() - seen[1] > 0.5

        wait_until(is_still, 20, "silence")

    def note_silence(self, ids: list[str]) -> None:
        """Write down that a connection ended before the answer."""
        with self.lock:
            self.in_flight -= 1
            self.unanswered.update(ids)


class Publishers:
    """Threads that publish, alone and in batches, until they are stopped; those of one broker, until it is gone."""

    def __init__(
        self,
        url: str | Sequence[str],
        channel: str,
        key: str,
        ledger: Ledger,
        *,
        threads: int = 6,
        seed: int = 0,
        padding: int = 10,
    ) -> None:
        self._urls = [url] if isinstance(url, str) else list(url)
        self._channel, self._key, self._ledger = channel, key, ledger
        self._padding = "x" * padding
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(seed * 1_000 + number,), name=f"publisher {number}")
            for number in range(threads)
        ]

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not self._is_over.is_set():
                with Rama(chance.choice(self._urls), self._key) as door:
                    while not self._is_over.is_set() and self._publish(door, chance):
                        pass
                if len(self._urls) == 1:
                    return
                self._is_over.wait(0.05)
        except BaseException as error:
            self._errors.append(error)

    def _publish(self, door: Rama, chance: random.Random) -> bool:
        """Whether the broker answered."""
        count = 1 if chance.random() < 0.5 else chance.randint(2, BATCH_MAX)
        ids = self._ledger.new_ids(count)
        messages = [{"id": name, "_ts": now_ms(), "padding": self._padding} for name in ids]
        begin = time.monotonic()
        try:
            if count == 1:
                status, answer = door.ask("PUT", f"/{self._channel}", messages[0])
            else:
                status, answer = door.ask("POST", f"/{self._channel}", messages)
        except (OSError, http.client.HTTPException):
            self._ledger.note_silence(ids)
            return False
        self._ledger.note(ids, status, answer, time.monotonic() - begin)
        if status == 503:
            self._is_over.wait(0.05)
        return True

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS_MAX + 5)
        assert not any(thread.is_alive() for thread in self._threads)
        assert self._errors == []


def read_topic(bootstrap: str, topic: str) -> dict[int, bytes]:
    """Every record of partition 0 by its offset, as a Kafka client reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    try:
        while True:
            message = consumer.poll(30.0)
            assert message is not None, "the broker gave nothing for 30 s"
            error, offset, value = message.error(), message.offset(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            assert offset is not None and isinstance(value, bytes)
            found[offset] = value
    finally:
        consumer.close()


def read_store(s3: S3Server, url: str, channel: str, start_ms: int) -> dict[int, bytes]:
    """Every message of a channel by its sequence, read from the store alone; none may be there twice."""
    reader = ChannelReader(open_store(url, s3.options), channel, start=start_ms, end_ms=now_ms() + 60_000)
    found: dict[int, bytes] = {}
    for message in reader.iterate():
        assert message.sequence not in found, f"{message.sequence} is in the store twice: {message.object_key}"
        assert message.value is not None
        found[message.sequence] = message.value
    return found


def check_stored(acknowledged: Mapping[str, int], stored: Mapping[int, bytes]) -> None:
    """What was acknowledged is in the store, where it was promised to be, also while there is no broker."""
    ids = {offset: json.loads(value)["id"] for offset, value in stored.items()}
    lost = {name: (offset, ids.get(offset)) for name, offset in acknowledged.items() if ids.get(offset) != name}
    assert not lost, f"acknowledged, and not where it was promised to be: {lost}"


def check_promises(ledger: Ledger, stored: Mapping[int, bytes], topic: Mapping[int, bytes]) -> None:
    """What was acknowledged is where it was promised; nothing is doubled, and nothing is there that nobody sent."""
    assert stored == topic, "the store has what the topic has, once the broker has ended in good order"
    check_stored(ledger.acknowledged, stored)
    ids = [json.loads(value)["id"] for value in topic.values()]
    assert len(set(ids)) == len(ids), "a message is doubled"
    assert set(ids) <= ledger.acknowledged.keys() | ledger.unanswered
