"""Groups of real clients in real processes: members join, leave and crash, and every record is seen."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import EmbeddedBroker, broker
from tests.process import wait_until

ROOT = Path(__file__).parents[2]
PARTITIONS = 8
WAIT_SECONDS = 150.0


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": "50",
        "group.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with broker(settings) as embedded:
        yield embedded


class Member:
    """One member's process and what it has read."""

    def __init__(self, library: str, bootstrap: str, group: str, topic: str) -> None:
        command = [sys.executable, "-m", "tests.clients.member", library, bootstrap, group, topic]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.seen: list[int] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._complaints = threading.Thread(target=self._drain)
        self._complaints.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(int(line))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        self.complaints = self.process.stderr.read()

    def end(self, *, crash: bool = False) -> None:
        if crash:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        self._reader.join()
        self._complaints.join()
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


class Crowd:
    """A group's members over time, and a producer that numbers its records."""

    def __init__(self, library: str, bootstrap: str, group: str) -> None:
        self.library, self.bootstrap, self.group = library, bootstrap, group
        self.topic = f"{group}-topic"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in self.admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)]).values():
            made.result()
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.sent = 0

    def join(self, count: int) -> None:
        self.members += [Member(self.library, self.bootstrap, self.group, self.topic) for _ in range(count)]

    def lose(self, count: int, *, crash: bool) -> None:
        for _ in range(count):
            member = self.members.pop(0)
            member.end(crash=crash)
            self.gone.append(member)

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self.producer.produce(self.topic, str(number).encode(), partition=number % PARTITIONS)
        assert self.producer.flush(WAIT_SECONDS) == 0
        self.sent += count

    def seen(self) -> set[int]:
        return {number for member in (*self.members, *self.gone) for number in tuple(member.seen)}

    def wait_for_records(self) -> None:
        wait_until(lambda: self.seen() == set(range(self.sent)), WAIT_SECONDS, f"all of {self.sent} records")

    def wait_for_members(self) -> None:
        """Until the group is stable with exactly the members that live, and each partition has one owner."""
        wait_until(self._is_settled, WAIT_SECONDS, f"a stable group of {len(self.members)}")

    def _is_settled(self) -> bool:
        (described,) = self.admin.describe_consumer_groups([self.group]).values()
        group = described.result()
        owned = [tp.partition for member in group.members for tp in member.assignment.topic_partitions]
        is_shared = sorted(owned) == list(range(PARTITIONS))
        return group.state == ConsumerGroupState.STABLE and len(group.members) == len(self.members) and is_shared

    def close(self) -> None:
        self.lose(len(self.members), crash=True)


@pytest.fixture
def crowd(bootstrap: str, library: str, new_name: Callable[[str], str]) -> Iterator[Crowd]:
    made = Crowd(library, bootstrap, new_name(library))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("library", ["confluent-classic", "confluent-consumer", "kafka-python", "aiokafka"])
def test_every_record_is_seen_while_members_come_leave_and_crash(crowd: Crowd) -> None:
    crowd.join(1)
    crowd.send(100)
    crowd.wait_for_records()
    crowd.join(2)
    crowd.send(100)
    crowd.wait_for_members()
    crowd.lose(1, crash=True)
    crowd.send(100)
    crowd.join(1)
    crowd.wait_for_records()
    crowd.wait_for_members()
    crowd.lose(1, crash=False)
    crowd.send(100)
    crowd.wait_for_members()
    crowd.wait_for_records()


@pytest.mark.parametrize("library", ["confluent-classic", "confluent-consumer"])
def test_eight_members_share_eight_partitions_and_half_of_them_crash(crowd: Crowd) -> None:
    crowd.join(8)
    crowd.send(200)
    crowd.wait_for_members()
    crowd.lose(4, crash=True)
    crowd.send(200)
    crowd.wait_for_records()
    crowd.wait_for_members()
