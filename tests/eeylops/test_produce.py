"""Values stored by Eeylops' Produce and Publish on one broker: order, safety, bounds, and streams that go wrong."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import CALL_SECONDS, Asker, code
from tests.process import BrokerProcess, wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("produce") / "data", http=True, grpc=True) as process:
        yield process


@pytest.fixture
def asker(broker: BrokerProcess) -> Iterator[Asker]:
    with Asker(broker.grpc) as channel:
        yield channel


class Feed:
    """Requests of a stream that the test sends when it likes; iterated by a thread of gRPC's."""

    def __init__(self) -> None:
        self.taken = 0
        self._more: queue.Queue[pb.ProduceRequest | None] = queue.Queue()

    def send(self, topic: int, partition: int, *values: bytes) -> None:
        self._more.put(pb.ProduceRequest(topic_id=topic, partition_id=partition, values=values))

    def end(self) -> None:
        self._more.put(None)

    def __iter__(self) -> Iterator[pb.ProduceRequest]:
        while (request := self._more.get()) is not None:
            self.taken += 1
            yield request


# Produce


def test_values_stand_one_behind_the_other(asker: Asker) -> None:
    topic = asker.created("rows", 2)
    assert code(asker.produce(topic, 1, [b"a", b"", bytes(range(256))])) == "KNoError"
    assert code(asker.produce(topic, 1, [b"d"])) == "KNoError"
    assert asker.values(topic, 1) == [b"a", b"", bytes(range(256)), b"d"]
    assert asker.values(topic, 2) == []


def test_a_request_needs_a_value_and_a_partition(asker: Asker) -> None:
    topic = asker.created("needs", 2)
    assert code(asker.produce(topic, 1, [])) == "KErrInvalidArg"
    for partition in (0, 3, -1, -(1 << 31)):
        error = asker.produce(topic, partition, [b"x"])
        assert (code(error), error.leader_id) == ("KErrPartitionNotFound", -1)
    assert asker.values(topic, 1) == asker.values(topic, 2) == []


def test_a_value_that_is_too_large_is_refused_with_the_limit(asker: Asker) -> None:
    topic = asker.created("large")
    error = asker.produce(topic, 1, [b"small", bytes(2 * MIB)])
    assert code(error) == "KErrInvalidArg"
    assert "max.message.bytes = 10485" in error.error_msg
    assert asker.values(topic) == [], "all or nothing"
    assert code(asker.produce(topic, 1, [bytes(900_000)] * 5)) == "KNoError", "together they may be larger"
    assert asker.values(topic) == [bytes(900_000)] * 5


def test_more_values_than_a_request_may_have_are_refused(asker: Asker) -> None:
    topic = asker.created("numerous")
    error = asker.produce(topic, 1, [b""] * 65_537)
    assert code(error) == "KErrInvalidArg"
    assert "65536" in error.error_msg
    assert code(asker.produce(topic, 1, [b""] * 65_536)) == "KNoError"
    assert len(asker.values(topic)) == 65_536


def test_a_message_over_the_bound_is_refused_by_status(asker: Asker) -> None:
    topic = asker.created("bounded")
    with pytest.raises(grpc.RpcError) as refused:
        asker.produce(topic, 1, [bytes(64 * MIB)])
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert asker.values(topic) == []


def test_bytes_that_are_no_message_are_refused_by_status(asker: Asker) -> None:
    for method in ("Produce", "CreateTopic", "GetBroker"):
        call: Any = asker.channel.unary_unary(f"/eeylops.EeylopsService/{method}")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff\xff\xff", timeout=CALL_SECONDS)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_thousand_producers_at_once_lose_nothing(asker: Asker) -> None:
    topic = asker.created("crowd", 4)
    calls = []
    for number in range(1_000):
        values = [b"%d %d" % (number, each) for each in range(3)]
        asked = pb.ProduceRequest(topic_id=topic, partition_id=number % 4 + 1, values=values)
        calls.append(asker.stub.Produce.future(asked, timeout=CALL_SECONDS))
    assert {code(call.result().error) for call in calls} == {"KNoError"}
    for partition in range(4):
        found = asker.values(topic, partition + 1)
        firsts = [int(found[at].split()[0]) for at in range(0, len(found), 3)]
        assert sorted(firsts) == list(range(partition, 1_000, 4))
        assert found == [b"%d %d" % (number, each) for number in firsts for each in range(3)], "requests stay whole"


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process:
        with Asker(process.grpc) as asker:
            topic = asker.created("kept")
            assert code(asker.produce(topic, 1, [b"one", b"two"])) == "KNoError"
            error, stored = asker.publish((topic, 1, [b"%d" % number]) for number in range(1_000))
            assert (code(error), stored) == ("KNoError", 1_000)
        process.kill()
        process.start()
        with Asker(process.grpc) as asker:
            assert asker.values(topic) == [b"one", b"two", *(b"%d" % number for number in range(1_000))]


# Publish


def test_a_stream_keeps_the_order_of_each_partition(asker: Asker) -> None:
    topics = [asker.created("stream_a", 3), asker.created("stream_b", 1)]
    requests: list[tuple[int, int, Sequence[bytes]]] = []
    for number in range(2_000):
        requests.append((topics[0], number % 3 + 1, [b"%d" % number] * (number % 4 + 1)))
        requests.append((topics[1], 1, [b"b%d" % number]))
    error, stored = asker.publish(requests)
    assert (code(error), stored) == ("KNoError", 4_000)
    for partition in (1, 2, 3):
        mine = [values for topic, each, values in requests if (topic, each) == (topics[0], partition)]
        assert asker.values(topics[0], partition) == [value for values in mine for value in values]
    assert asker.values(topics[1]) == [b"b%d" % number for number in range(2_000)]


def test_a_stream_of_nothing_ends_well(asker: Asker) -> None:
    error, stored = asker.publish([])
    assert (code(error), stored) == ("KNoError", 0)


def test_the_first_failure_ends_a_stream_that_is_still_sent(asker: Asker) -> None:
    topic = asker.created("failing")
    feed = Feed()
    call = asker.stub.Publish.future(iter(feed), timeout=CALL_SECONDS)
    feed.send(topic, 1, b"one")
    feed.send(topic, 1, b"two")
    feed.send(topic, 2, b"there is no such partition")
    answer = call.result()  # the stream was not ended by its client
    feed.send(topic, 1, b"behind it")
    feed.end()
    assert code(answer.error) == "KErrPartitionNotFound"
    assert "(2 requests are stored)" in answer.error.error_msg
    assert dict(call.trailing_metadata())["odradek-stored"] == "2"
    assert asker.values(topic) == [b"one", b"two"]


def test_a_bad_value_in_the_middle_of_a_fast_stream_keeps_what_came_before(asker: Asker) -> None:
    topic = asker.created("spoilt", 2)
    requests: list[tuple[int, int, Sequence[bytes]]] = [(topic, n % 2 + 1, [b"%d" % n]) for n in range(500)]
    error, stored = asker.publish([*requests, (topic, 1, [bytes(2 * MIB)]), *requests])
    assert (code(error), stored) == ("KErrInvalidArg", 500)
    assert "max.message.bytes" in error.error_msg
    assert asker.values(topic, 1) == [b"%d" % number for number in range(0, 500, 2)]
    assert asker.values(topic, 2) == [b"%d" % number for number in range(1, 500, 2)]


def test_a_stream_that_breaks_leaves_what_was_stored(asker: Asker) -> None:
    topic = asker.created("broken")
    feed = Feed()
    call = asker.stub.Publish.future(iter(feed), timeout=CALL_SECONDS)
    feed.send(topic, 1, b"one")
    feed.send(topic, 1, b"two")
    wait_until(lambda: len(asker.values(topic)) == 2, 30, "both values")
    call.cancel()
    feed.end()
    assert code(asker.produce(topic, 1, [b"three"])) == "KNoError"
    assert asker.values(topic) == [b"one", b"two", b"three"]


def test_a_stream_meets_its_deadline(asker: Asker) -> None:
    topic = asker.created("late")
    feed = Feed()
    call = asker.stub.Publish.future(iter(feed), timeout=1.0)
    feed.send(topic, 1, b"in time")
    with pytest.raises(grpc.RpcError) as late:
        call.result()
    feed.end()
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: asker.values(topic) == [b"in time"], 30, "what was sent in time")


def test_garbage_in_a_stream_ends_it_by_status(asker: Asker) -> None:
    topic = asker.created("garbage")
    good = pb.ProduceRequest(topic_id=topic, partition_id=1, values=[b"good"]).SerializeToString()
    call: Any = asker.channel.stream_unary("/eeylops.EeylopsService/Publish")
    with pytest.raises(grpc.RpcError) as refused:
        call(iter([good, b"\xff\xff\xff\xff", good]), timeout=CALL_SECONDS)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    wait_until(lambda: asker.values(topic) == [b"good"], 30, "what came before")


def test_a_topic_is_removed_under_load_and_its_name_starts_anew(asker: Asker) -> None:
    topic = asker.created("doomed", 4)
    is_over = threading.Event()

    def load(partition: int) -> tuple[str, int]:
        def requests() -> Iterator[tuple[int, int, list[bytes]]]:
            while not is_over.is_set():
                yield topic, partition, [b"old"] * 50

        error, stored = asker.publish(requests())
        return code(error), stored

    def produce() -> str:
        while (ended := code(asker.produce(topic, 1, [b"old"]))) == "KNoError":
            pass
        return ended

    with ThreadPoolExecutor(6) as pool:
        try:
            streams = [pool.submit(load, partition) for partition in (1, 2, 3, 4)]
            single = pool.submit(produce)
            wait_until(lambda: all(asker.values(topic, partition) for partition in (1, 2, 3, 4)), 30, "load")
            assert code(asker.remove(topic)) == "KNoError"
            again = asker.created("doomed", 4)
            ends = [stream.result(CALL_SECONDS) for stream in streams]
            assert {ended for ended, _ in ends} == {"KErrTopicNotFound"}
            assert all(stored > 0 for _, stored in ends)
            assert single.result(CALL_SECONDS) == "KErrTopicNotFound"
        finally:
            is_over.set()
    assert again > topic
    for partition in (1, 2, 3, 4):
        assert asker.values(again, partition) == [], "what was for the old one is not in the new one"


def test_a_flood_is_stored_within_a_bound_of_memory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process, Asker(process.grpc) as asker:
        topic = asker.created("flood", 2)
        assert code(asker.produce(topic, 1, [bytes(MIB // 2)])) == "KNoError"
        before = process.memory_bytes()
        most = before
        done = threading.Event()

        def flood() -> tuple[pb.Error, int]:
            try:
                return asker.publish((topic, number % 2 + 1, [bytes(MIB // 2)]) for number in range(400))
            finally:
                done.set()

        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(flood)
            while not done.wait(0.05):
                most = max(most, process.memory_bytes())
            error, stored = flooding.result()
        assert (code(error), stored) == ("KNoError", 400)
        assert most - before < 64 * MIB, f"{(most - before) // MIB} MiB for a stream of 200 MiB"


def test_streams_that_stall_do_not_hold_up_a_broker_that_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process, Asker(process.grpc) as asker:
        topic = asker.created("stalled")
        feeds = [Feed() for _ in range(20)]
        calls = [asker.stub.Publish.future(iter(feed), timeout=CALL_SECONDS) for feed in feeds]
        for feed in feeds[:10]:
            feed.send(topic, 1, b"one")
        wait_until(lambda: len(asker.values(topic)) == 10, 30, "what was sent")
        assert process.stop() == 0
        ends = [call.result() for call in calls]
        for feed in feeds:
            feed.end()
        assert {code(end.error) for end in ends} == {"KErrNotLeader"}
        stored = [dict(call.trailing_metadata())["odradek-stored"] for call in calls]
        assert stored == ["1"] * 10 + ["0"] * 10
