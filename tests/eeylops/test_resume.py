"""Readers and brokers that end without a word, and what a consumer finds when it goes on: everything, in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.consuming import SOON, Consumer, numbered, one_broker, values
from tests.process import wait_until

ROOT = Path(__file__).parents[2]
COUNT = 3_000
BATCH = 20


def filled(consumer: Consumer) -> int:
    """A topic with many values, and a consumer that has registered for it."""
    topic = consumer.created("work")
    for at in range(0, COUNT, 500):
        assert consumer.produce(topic, 1, numbered(at, at + 500)).error_code == pb.KNoError
    assert consumer.register("worker", topic) == "KNoError"
    return topic


def test_a_consumer_that_is_killed_again_and_again_misses_nothing(tmp_path: Path) -> None:
    with one_broker(tmp_path) as (broker, consumer):
        topic = filled(consumer)
        done: list[bytes] = []
        command = [sys.executable, "-m", "tests.eeylops.consuming", broker.grpc, "worker", str(topic), str(BATCH)]
        for goal in (COUNT // 3, 2 * COUNT // 3, COUNT):
            with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
                assert process.stdout is not None
                while not done or int(done[-1]) < goal - 1:
                    done.append(process.stdout.readline().strip())
                process.kill()
                done += process.stdout.read().split(b"\n")[:-1]  # whole lines only
        committed = consumer.committed("worker", topic)
        assert isinstance(committed, int)
        assert committed >= 2 * COUNT // 3 - BATCH
        assert sorted({*done}, key=int) == numbered(0, COUNT)
        repeated = len(done) - COUNT
        assert repeated <= 2 * BATCH, "what was committed was done again"


def test_a_stream_commits_whole_batches_and_whoever_goes_on_begins_right_there(tmp_path: Path) -> None:
    with one_broker(tmp_path) as (_, consumer):
        topic = filled(consumer)
        stream = consumer.subscribe(topic, consumer_id="worker", auto_commit=True, batch_size=BATCH)
        given = 0
        while given < COUNT // 2:
            given = next(stream).next_offset
        stream.cancel()
        seen: list[int | str] = [-1, -1]

        def is_settled() -> bool:  # what gRPC has taken before it heard of the cancellation is committed, too
            seen[:] = seen[1], consumer.committed("worker", topic)
            return seen[0] == seen[1] != -1

        wait_until(is_settled, SOON, "commits that have come to an end")
        committed = int(seen[1])
        assert given - BATCH <= committed <= COUNT
        assert committed % BATCH == 0
        assert consumer.resume("worker", topic, batch_size=5)[0] == numbered(committed, min(committed + 5, COUNT))


@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_consumer_goes_on_after_its_broker_was_killed(tmp_path: Path, auto_commit: bool) -> None:
    with one_broker(tmp_path) as (broker, consumer):
        topic = filled(consumer)
        found: list[bytes] = []
        lives = 0
        while len({*found}) < COUNT:
            stream = consumer.subscribe(
                topic,
                consumer_id="worker",
                start_offset=-1,
                resume_from_last_committed_offset=True,
                batch_size=BATCH,
                auto_commit=auto_commit,
            )
            goal = min(len(found) + COUNT // 3, COUNT)
            while len(found) < goal or (lives == 3 and len({*found}) < COUNT):
                answer = next(stream)
                found += values(answer)
                if not auto_commit:
                    assert consumer.commit("worker", topic, answer.next_offset) == "KNoError"
            if lives == 3:
                break
            broker.kill()
            with pytest.raises(grpc.RpcError):
                list(stream)
            broker.start()
            consumer.ready()
            lives += 1
            committed = consumer.committed("worker", topic)
            assert isinstance(committed, int)
            if not auto_commit:
                assert committed == int(found[-1]) + 1
            elif committed > int(found[-1]) + 1:  # sent, committed, and lost on its way: as auto_commit has it
                found += numbered(int(found[-1]) + 1, committed)
        assert [*dict.fromkeys(found)] == numbered(0, COUNT)


def test_values_that_come_while_nobody_reads_are_there_for_who_goes_on(tmp_path: Path) -> None:
    with one_broker(tmp_path) as (broker, consumer):
        topic = filled(consumer)
        assert consumer.commit("worker", topic, COUNT) == "KNoError"
        assert consumer.produce(topic, 1, numbered(COUNT, COUNT + 10)).error_code == pb.KNoError
        broker.kill()
        broker.start()
        consumer.ready()
        assert consumer.resume("worker", topic, auto_commit=True) == (numbered(COUNT, COUNT + 10), COUNT + 10)
        stream = consumer.subscribe(
            topic, consumer_id="worker", start_offset=-1, resume_from_last_committed_offset=True, auto_commit=True
        )
        assert consumer.produce(topic, 1, [b"last"]).error_code == pb.KNoError
        assert values(next(stream)) == [b"last"]
        wait_until(lambda: consumer.committed("worker", topic) == COUNT + 11, SOON, "its commit")
        stream.cancel()
