"""Streams that stall, break, never end or are never read: what was stored stays, and memory is bounded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from odradek.proto import eeylops_pb2 as ey
from odradek.proto import mykafka_pb2 as mk
from tests.grpc.doors import Doors, is_well
from tests.grpc.streamer import kill, start
from tests.process import BrokerProcess, wait_until

MIB = 1 << 20
SOON = 60.0
STREAM_BYTES = MIB
SETTINGS = {"max.grpc.stream.bytes": str(STREAM_BYTES)}

pytestmark = pytest.mark.xdist_group("grpc-streams")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that holds little for a stream."""
    with BrokerProcess(tmp_path_factory.mktemp("streams") / "data", SETTINGS, grpc=True) as running:
        yield running


class Feed:
    """Requests for a Publish stream as the test gives them."""

    def __init__(self, topic: int, partition: int = 1) -> None:
        self._queue: queue.Queue[ey.ProduceRequest | None] = queue.Queue()
        self._where: Any = {"topic_id": topic, "partition_id": partition}

    def __iter__(self) -> Iterator[ey.ProduceRequest]:
        return iter(self._queue.get, None)

    def send(self, *values: bytes, **where: int) -> None:
        self._queue.put(ey.ProduceRequest(values=values, **(self._where | where)))

    def end(self) -> None:
        self._queue.put(None)


def test_a_publish_stream_that_stalls_has_stored_what_it_sent(doors: Doors) -> None:
    topic = doors.create_topic("stalled")
    feed = Feed(topic)
    stream = doors.eeylops.Publish.future(iter(feed))
    feed.send(b"one", b"two")
    wait_until(lambda: doors.values(topic) == [b"one", b"two"], SOON, "what was sent")
    feed.send(b"three")
    wait_until(lambda: doors.values(topic) == [b"one", b"two", b"three"], SOON, "what was sent")
    assert not stream.done(), "the answer comes at the end"
    stream.cancel()
    feed.end()
    assert is_well(doors) and doors.values(topic) == [b"one", b"two", b"three"]


def test_a_stream_with_a_deadline_ends_at_it(doors: Doors) -> None:
    topic = doors.create_topic("deadline")
    feed = Feed(topic)
    feed.send(b"in time")
    stream = doors.eeylops.Publish.future(iter(feed), timeout=2)
    assert stream.exception(timeout=SOON).code() == grpc.StatusCode.DEADLINE_EXCEEDED
    feed.end()
    reading = doors.eeylops.Subscribe(ey.ConsumeRequest(topic_id=topic, partition_id=1), timeout=2)
    assert [value.value for value in next(reading).values] == [b"in time"]
    with pytest.raises(grpc.RpcError):
        next(reading)
    assert reading.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_first_bad_request_ends_a_publish_stream_and_those_before_it_stay(doors: Doors) -> None:
    topic = doors.create_topic("half")
    feed = Feed(topic)
    feed.send(b"one")
    feed.send(b"two", b"three")
    feed.send(b"nowhere", partition_id=9)
    feed.send(b"late")
    feed.end()
    error = doors.eeylops.Publish(iter(feed), timeout=SOON).error
    assert error.error_code == ey.KErrPartitionNotFound
    assert "2" in error.error_msg, f"it says how many requests are stored: {error.error_msg}"
    assert doors.values(topic) == [b"one", b"two", b"three"]


def test_garbage_in_the_middle_of_a_publish_stream_ends_it(doors: Doors) -> None:
    topic = doors.create_topic("garbage")
    good = ey.ProduceRequest(topic_id=topic, partition_id=1, values=[b"good"]).SerializeToString()
    publish: Any = doors.channel.stream_unary("/eeylops.EeylopsService/Publish")
    with pytest.raises(grpc.RpcError) as failure:
        publish(iter([good, b"\xff" * 20, good]), timeout=SOON)
    status: Any = failure.value
    assert status.code() == grpc.StatusCode.INVALID_ARGUMENT
    wait_until(lambda: doors.values(topic) in ([b"good"], []), SOON, "what came before")
    assert is_well(doors)


def test_a_publish_stream_without_a_request_is_no_error(doors: Doors) -> None:
    assert doors.eeylops.Publish(iter(()), timeout=SOON).error.error_code == ey.KNoError


def test_a_publisher_that_is_killed_leaves_whole_requests_in_order(doors: Doors) -> None:
    topic = doors.create_topic("killed")
    publisher = start("publish", doors.address, topic)
    kill(publisher)
    found: list[bytes] = []

    def is_quiet() -> bool:
        before = len(found)
        found[:] = doors.values(topic)
        return bool(found) and len(found) == before

    wait_until(is_quiet, SOON, "the last of what was sent")
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) % 100 == 0, "a request is stored whole or not at all"
    assert is_well(doors)


def test_calls_of_a_killed_client_are_given_to_others(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"max.grpc.calls": "12"}, grpc=True) as broker, Doors(broker.grpc) as doors:
        topic = doors.create_topic("crowded")
        doors.produce(topic, 1, [b"one"])
        reader = start("subscribe", broker.grpc, topic, streams=12)
        try:
            with pytest.raises(grpc.RpcError) as failure:
                doors.values(topic)
            status: Any = failure.value
            assert status.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        finally:
            kill(reader)

        def is_served() -> bool:
            try:
                return doors.values(topic) == [b"one"]
            except grpc.RpcError:
                return False

        wait_until(is_served, SOON, "room for others")
        assert is_well(doors)


def test_two_thousand_calls_at_once_are_answered_or_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"max.grpc.calls": "50"}, grpc=True) as broker, Doors(broker.grpc) as doors:
        doors.create_partition("storm")
        asked = mk.SendMessageRequest(topic="storm", payload=b"x")
        calls = [doors.mykafka.SendMessage.future(asked, timeout=SOON) for _ in range(2_000)]
        stored = refused = 0
        for call in calls:
            if call.exception(timeout=SOON) is None:
                assert call.result().error.code == mk.OK, call.result()
                stored += 1
            else:
                assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, call.details()
                refused += 1
        assert stored >= 50 and refused, (stored, refused)
        assert doors.offsets("storm", 0) == (0, stored - 1, stored - 1), "each is stored or refused, never both"


def test_a_burst_within_the_bound_is_served(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("burst", max_segment_size=MIB)
    asked = mk.SendMessageRequest(topic="burst", payload=b"x")
    calls = [doors.mykafka.SendMessage.future(asked, timeout=SOON) for _ in range(3_000)]  # max.grpc.calls is 4,096
    failed = {str(call.code()) for call in calls if call.exception(timeout=SOON) is not None}
    assert failed == set()
    assert sorted(call.result().offset for call in calls) == list(range(3_000))


def test_readers_that_never_read_cost_little(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("unread")
    values, requests, readers = [b"x" * 1_024] * 256, 192, 24  # 48 MiB, for each of them
    doors.publish(topic, 1, [values] * requests)
    before = broker.memory_bytes()
    with Doors(broker.grpc) as idle:
        asked = ey.ConsumeRequest(topic_id=topic, partition_id=1, batch_size=1_000)
        streams = [idle.eeylops.Subscribe(asked) for _ in range(readers)]
        for stream in streams:
            assert next(stream).error.error_code == ey.KNoError
        assert len(doors.streamed(topic, 1, len(values) * requests)) >= len(values) * requests, "others read on"
        grown = broker.memory_bytes() - before
        for stream in streams:
            stream.cancel()
    assert grown < readers * 5 * STREAM_BYTES, f"{grown / MIB:.0f} MiB for {readers} streams of 48 MiB"
    assert is_well(doors)


def test_publishers_that_are_quicker_than_the_disk_are_slowed_down(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("flood", 4)
    values, requests = [b"x" * 1_024] * 256, 128  # 32 MiB a stream
    before, peak, is_over = broker.memory_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.02):
            peak = max(peak, broker.memory_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda partition: doors.publish(topic, partition, [values] * requests), range(1, 5)))
    finally:
        is_over.set()
        watcher.join()
    assert peak - before < 64 * MIB, f"{(peak - before) / MIB:.0f} MiB for four streams of 32 MiB"
    assert [doors.offsets("flood", partition)[1] for partition in range(4)] == [len(values) * requests - 1] * 4


def test_a_subscriber_learns_that_its_topic_is_gone(doors: Doors) -> None:
    topic = doors.create_topic("vanishing")
    doors.produce(topic, 1, [b"one"])
    stream = doors.eeylops.Subscribe(ey.ConsumeRequest(topic_id=topic, partition_id=1), timeout=SOON)
    assert [value.value for value in next(stream).values] == [b"one"]
    doors.remove_topic(topic)
    answers = list(stream)
    assert [answer.error.error_code for answer in answers][-1:] == [ey.KErrTopicNotFound]


def test_open_streams_end_when_the_broker_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as broker, Doors(broker.grpc) as doors:
        topic = doors.create_topic("stopping")
        feed = Feed(topic)
        publishing = doors.eeylops.Publish.future(iter(feed))
        feed.send(b"stored")
        reading = doors.eeylops.Subscribe(ey.ConsumeRequest(topic_id=topic, partition_id=1))
        assert [value.value for value in next(reading).values] == [b"stored"]
        assert broker.stop() == 0
        ends = []
        try:
            ends = [answer.error.error_code for answer in reading]
        except grpc.RpcError as error:
            status: Any = error
            assert status.code() == grpc.StatusCode.UNAVAILABLE
        assert ends in ([], [ey.KErrNotLeader])
        ended = publishing.exception(timeout=SOON)
        assert ended is None or ended.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), ended
        feed.end()
        assert "Traceback" not in Path(broker.stderr.name).read_text(encoding="utf-8")
        broker.start()
        with Doors(broker.grpc) as again:
            assert again.values(topic) == [b"stored"]


def test_a_reader_that_never_reads_does_not_keep_a_broker_from_stopping_in_good_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as broker, Doors(broker.grpc) as doors:
        topic = doors.create_topic("unread")
        values, requests = [b"x" * 1_024] * 256, 96
        doors.publish(topic, 1, [values] * requests)
        stuck = doors.eeylops.Subscribe(ey.ConsumeRequest(topic_id=topic, partition_id=1, batch_size=1_000))
        assert next(stuck).error.error_code == ey.KNoError
        with Doors(broker.grpc) as others:  # when they have read all, the other is stuck
            assert len(others.streamed(topic, 1, len(values) * requests)) >= len(values) * requests
        assert broker.stop() == 0
        with pytest.raises(grpc.RpcError) as ended:
            list(stuck)
        status: Any = ended.value
        assert status.code() == grpc.StatusCode.UNAVAILABLE
        assert "Traceback" not in broker.log()
