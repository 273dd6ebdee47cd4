"""The leader is killed with SIGKILL under load: nothing that was acknowledged is lost, and clients go on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from odradek.proto import eeylops_pb2 as ey
from odradek.proto import mykafka_pb2 as mk
from tests.grpc.three import NODES, SOON, TRY_SECONDS, Three, three_brokers
from tests.process import wait_until

pytestmark = [pytest.mark.xdist_group("grpc-killed"), pytest.mark.timeout(600)]

SENDERS = 8
SOME = 150  # acknowledgements before the kill, and again after it
REQUESTS, VALUES = 5, 40  # of a Publish stream
ENOUGH = 5 * REQUESTS * VALUES
LONG = 120.0


class Load:
    """Threads that do one thing again and again until they are told to stop; the first failure is kept."""

    def __init__(self, count: int, step: Callable[[int, int], None]) -> None:
        self._is_over = threading.Event()
        self.failures: list[BaseException] = []
        self._step = step
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def _run(self, number: int) -> None:
        try:
            for turn in itertools.count():
                if self._is_over.is_set():
                    return
                self._step(number, turn)
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(LONG)
        assert self.failures == []


def kill_leader(three: Three, name: str) -> int:
    """End the leader of the first partition at the worst moment: it has what no other broker has; who it was."""
    leader = three.leader(three.doors[1].topic(name).topic_id)
    others = [broker for node, broker in three.cluster.brokers.items() if node != leader]
    for broker in others:
        broker.pause()

    def is_alone() -> bool:
        _, commit, last = three.doors[leader].offsets(name, 0)
        return last > commit

    wait_until(is_alone, LONG, "messages that only the leader has")
    three.cluster.kill([leader])
    for broker in others:
        broker.resume()
    return leader


def test_no_message_that_mykafka_acknowledged_is_lost_with_the_leader(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as three:
        three.doors[1].create_partition("sends", 0, max_segment_size=64 << 10)
        topic = three.doors[1].topic("sends").topic_id
        promised: dict[int, bytes] = {}  # by offset
        doubled: list[int] = []

        def send(number: int, turn: int) -> None:
            payload = b"%d/%d" % (number, turn)
            asked = mk.SendMessageRequest(topic="sends", partition=0, payload=payload)
            if not (up := three.cluster.running()):  # the leader is dead, and the others have not been woken yet
                return
            node = up[number % len(up)]  # any of them will do
            try:
                answer = three.doors[node].mykafka.SendMessage(asked, timeout=TRY_SECONDS)
            except grpc.RpcError:  # it was killed, or it took too long: not acknowledged
                return
            if answer.error.code == mk.OK:
                if answer.offset in promised:
                    doubled.append(answer.offset)
                promised[answer.offset] = payload

        with Load(SENDERS, send) as load:
            wait_until(lambda: len(promised) >= SOME or load.failures, LONG, "some messages")
            killed = kill_leader(three, "sends")
            before = len(promised)
            wait_until(lambda: len(promised) >= before + SOME or load.failures, LONG, "more of them")
            three.cluster.restart([killed])
        assert doubled == []
        stored = dict(three.values(topic))
        lost = {offset: payload for offset, payload in promised.items() if stored.get(offset) != payload}
        assert lost == {}
        for doors in three.doors.values():
            some = sorted(promised)[:: len(promised) // 20]
            assert [doors.wait().get("sends", 0, offset) for offset in some] == [promised[offset] for offset in some]


def test_no_value_of_a_confirmed_stream_is_lost_and_readers_go_on_without_a_gap(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as three:
        topic = three.doors[1].create_topic("streams")
        confirmed: set[bytes] = set()
        seen: list[tuple[int, bytes]] = []

        def publish(number: int, turn: int) -> None:
            values = [b"%d/%d/%d" % (number, turn, at) for at in range(REQUESTS * VALUES)]
            three.publish(topic, 1, [values[at : at + VALUES] for at in range(0, len(values), VALUES)])
            confirmed.update(values)

        def read(_number: int, _turn: int) -> None:
            """Subscribe at the leader until that one is gone, then at the next one."""
            offset = seen[-1][0] + 1 if seen else 0
            asked = ey.ConsumeRequest(topic_id=topic, partition_id=1, start_offset=offset, batch_size=500)
            try:
                for answer in three.doors[three.leader(topic)].eeylops.Subscribe(asked, timeout=TRY_SECONDS):
                    if answer.error.error_code != ey.KNoError:
                        assert answer.error.error_code in (ey.KErrNotLeader, ey.KErrReplication), answer.error
                        return
                    seen.extend((value.offset, value.value) for value in answer.values)
            except grpc.RpcError:
                return

        with Load(1, read) as readers:
            with Load(2, publish) as load:
                wait_until(lambda: len(confirmed) >= ENOUGH or load.failures, LONG, "some confirmed streams")
                killed = kill_leader(three, "streams")
                before = len(confirmed)
                wait_until(lambda: len(confirmed) >= before + ENOUGH or load.failures, LONG, "more of them")
                three.cluster.restart([killed])
            stored = three.values(topic)
            wait_until(lambda: len(seen) >= len(stored) or readers.failures, LONG, "the reader to have all")
        assert confirmed - {value for _, value in stored} == set(), "at least once"
        assert [offset for offset, _ in seen] == list(range(len(seen))), "no gap and nothing twice"
        assert seen[: len(stored)] == stored, "what was read never changes"


def test_a_cluster_that_lost_its_majority_says_so_and_comes_back(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as three:
        three.doors[1].create_partition("lonely", 0)
        topic = three.doors[1].topic("lonely").topic_id
        assert three.doors[1].send("lonely", 0, b"before") == 0
        left = next(node for node in NODES if node != three.leader(topic))
        three.cluster.kill([node for node in NODES if node != left])
        doors = three.doors[left]
        asked = mk.SendMessageRequest(topic="lonely", partition=0, payload=b"meanwhile")
        refused = doors.mykafka.SendMessage(asked)  # without a deadline: the door has one of its own
        assert refused.error.code == mk.PARTITION_ERROR and refused.error.msg
        wanted = ey.CreateTopicRequest(topic=ey.Topic(topic_name="impossible"))
        try:
            code = doors.eeylops.CreateTopic(wanted, timeout=5).error.error_code
            assert code in (ey.KErrReplication, ey.KErrTimeout, ey.KErrNotLeader)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        three.cluster.restart(NODES)

        def is_back() -> bool:
            answer = doors.mykafka.SendMessage(asked, timeout=SOON)
            return bool(answer.error.code == mk.OK)

        wait_until(is_back, LONG, "the others")
        values = [value for _, value in three.values(topic)]
        assert values[0] == b"before" and set(values[1:]) == {b"meanwhile"}
