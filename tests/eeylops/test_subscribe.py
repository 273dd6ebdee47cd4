"""Subscribe over a real channel: it follows the head, ends when it should, and bears readers of every kind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.consuming import SOON, Consumer, numbered, one_broker, told, values
from tests.process import BrokerProcess, wait_until

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Consumer]]:
    """A broker for all tests that leave it running."""
    with one_broker(tmp_path_factory.mktemp("subscribe")) as found:
        yield found


@pytest.fixture
def consumer(started: tuple[BrokerProcess, Consumer]) -> Consumer:
    """A channel to it."""
    return started[1]


def produce(consumer: Consumer, topic: int, first: int, end: int) -> None:
    assert consumer.produce(topic, 1, numbered(first, end)).error_code == pb.KNoError


def taken(stream: Iterator[pb.ConsumeResponse], count: int) -> list[bytes]:
    """So many values."""
    found: list[bytes] = []
    while len(found) < count:
        found += values(next(stream))
    return found


def test_a_stream_gives_what_is_there_and_then_what_comes(consumer: Consumer) -> None:
    topic = consumer.created("followed")
    produce(consumer, topic, 0, 250)
    stream = consumer.subscribe(topic)
    first = next(stream)
    assert (len(first.values), first.next_offset) == (100, 100)
    assert taken(stream, 150) == numbered(100, 250)
    for at in range(250, 260):
        produce(consumer, topic, at, at + 1)
        assert taken(stream, 1) == numbered(at, at + 1)
    stream.cancel()


def test_a_stream_by_time_ends_at_the_first_value_that_is_too_late(consumer: Consumer) -> None:
    topic = consumer.created("ranged")
    produce(consumer, topic, 0, 10)
    (first, *_) = consumer.consume(topic).values
    wait_until(lambda: time.time() * 1000 > first.timestamp + 1)
    produce(consumer, topic, 10, 20)
    late = consumer.consume(topic, start_offset=10).values[0].timestamp
    stream = consumer.subscribe(topic, start_offset=-1, start_timestamp=first.timestamp, end_timestamp=late)
    assert [value for answer in stream for value in values(answer)] == numbered(0, 10)


def test_a_stream_ends_when_its_time_has_come_although_nothing_does(consumer: Consumer) -> None:
    topic = consumer.created("timed")
    produce(consumer, topic, 0, 3)
    end = int(time.time() * 1000) + 1_500
    stream = consumer.subscribe(topic, end_timestamp=end)
    assert [value for answer in stream for value in values(answer)] == numbered(0, 3)
    assert time.time() * 1000 >= end


def test_a_deadline_ends_a_stream(consumer: Consumer) -> None:
    topic = consumer.created("deadlined")
    stream = consumer.stub.Subscribe(pb.ConsumeRequest(topic_id=topic, partition_id=1), timeout=0.3)
    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_removed_topic_ends_its_streams(consumer: Consumer) -> None:
    topic = consumer.created("removed")
    produce(consumer, topic, 0, 1)
    stream = consumer.subscribe(topic)
    assert taken(stream, 1) == [b"0"]
    assert consumer.remove(topic).error_code == pb.KNoError
    assert [told(answer) for answer in stream] == ["KErrTopicNotFound"]


def test_what_a_stream_has_given_is_committed_as_it_goes_on(consumer: Consumer) -> None:
    topic = consumer.created("committed")
    assert consumer.register("steady", topic) == "KNoError"
    produce(consumer, topic, 0, 100)
    stream = consumer.subscribe(topic, consumer_id="steady", auto_commit=True, batch_size=10)
    assert taken(stream, 100) == numbered(0, 100)
    wait_until(lambda: consumer.committed("steady", topic) == 100, SOON, "the last commit")
    produce(consumer, topic, 100, 101)
    assert taken(stream, 1) == [b"100"]
    wait_until(lambda: consumer.committed("steady", topic) == 101, SOON, "the next commit")
    stream.cancel()
    assert consumer.resume("steady", topic) == ([], 101)


def test_a_stream_that_commits_needs_a_registered_consumer(consumer: Consumer) -> None:
    topic = consumer.created("unregistered")
    (answer,) = consumer.subscribe(topic, consumer_id="nobody", auto_commit=True)
    assert told(answer) == "KErrConsumerNotRegistered"
    (answer,) = consumer.subscribe(topic, consumer_id="nobody", start_offset=-1, resume_from_last_committed_offset=True)
    assert told(answer) == "KErrConsumerNotRegistered"


def test_many_streams_of_one_partition_all_get_everything(consumer: Consumer) -> None:
    topic = consumer.created("shared")
    streams = [consumer.subscribe(topic, batch_size=1_000) for _ in range(20)]
    with ThreadPoolExecutor(20) as threads:
        reading = [threads.submit(taken, stream, 2_000) for stream in streams]
        for at in range(0, 2_000, 100):
            produce(consumer, topic, at, at + 100)
        assert [each.result(SOON) for each in reading] == [numbered(0, 2_000)] * 20
    for stream in streams:
        stream.cancel()


def cpu_seconds(broker: BrokerProcess) -> float:
    """What the broker has taken of its processors so far."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_thousand_idle_streams_cost_little_and_still_hear_of_what_comes(
    started: tuple[BrokerProcess, Consumer],
) -> None:
    broker, consumer = started
    busy, idle = consumer.created("busy"), consumer.created("idle")
    before = broker.memory_bytes()
    streams = [consumer.subscribe(idle) for _ in range(1_000)]
    produce(consumer, busy, 0, 100)
    assert consumer.read(busy)[1] == 100  # behind all that were asked for before, on the same connection
    assert broker.memory_bytes() - before < 150 * MIB
    used, began = cpu_seconds(broker), time.monotonic()
    wait_until(lambda: time.monotonic() > began + 1.0)
    assert cpu_seconds(broker) - used < 0.5
    produce(consumer, idle, 0, 1)
    assert [values(next(stream)) for stream in streams] == [[b"0"]] * 1_000
    for stream in streams:
        stream.cancel()
    wait_until(lambda: consumer.read(busy)[1] == 100, SOON, "a broker that goes on")


def test_readers_that_never_read_hold_little_of_the_brokers_memory(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = consumer.created("slow")
    for _ in range(64):
        assert consumer.produce(topic, 1, [bytes(10_000)] * 90).error_code == pb.KNoError
    before = broker.memory_bytes()
    opened = []
    for _ in range(8):  # 55 MiB for each, if nobody held them back
        slow = Consumer(broker.grpc)
        stream = slow.subscribe(topic, batch_size=10_000)
        next(stream)
        opened.append((slow, stream))
    assert len(consumer.read(topic, batch_size=5)[0]) == 5
    assert broker.memory_bytes() - before < 8 * 12 * MIB
    for slow, stream in opened:
        stream.cancel()
        slow.channel.close()


def test_a_reader_that_is_killed_leaves_the_broker_as_it_was(started: tuple[BrokerProcess, Consumer]) -> None:
    broker, consumer = started
    topic = consumer.created("killed")
    assert consumer.register("victim", topic) == "KNoError"
    produce(consumer, topic, 0, 10)
    command = [sys.executable, "-m", "tests.eeylops.consuming", broker.grpc, "victim", str(topic), "5"]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            while process.stdout.readline() != "9\n":
                pass
            process.kill()
        assert consumer.commit("victim", topic, 0) == "KNoError"
    assert consumer.read(topic) == (numbered(0, 10), 10)


def test_a_broker_that_stops_ends_its_streams_and_does_not_wait_for_them(tmp_path: Path) -> None:
    with one_broker(tmp_path) as (broker, consumer):
        topic = consumer.created("stopped")
        produce(consumer, topic, 0, 1)
        stream = consumer.subscribe(topic)
        assert taken(stream, 1) == [b"0"]
        ended: list[object] = []

        def read_on() -> None:
            try:
                ended.extend(told(answer) for answer in stream)
            except grpc.RpcError as error:
                ended.append(error.code())

        thread = threading.Thread(target=read_on)
        thread.start()
        assert broker.stop() == 0
        thread.join(SOON)
        assert ended in (["KErrNotLeader"], [grpc.StatusCode.UNAVAILABLE])
