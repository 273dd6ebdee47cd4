"""The gRPC door beside a bare grpcio.aio server that only gives back what it gets, in turns, in one run.

Odradek runs as `odradek serve` does, so each SendMessage, Produce and Publish waits for fdatasync. With two cores or
more both servers are bound to the first core and the load to the second. The load is `bench.grpc_load`: HTTP/2 by hand,
for a client library would need more of a core than the server. In the end GetOffsets must name as many messages as were
acknowledged: what was promised is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.grpc_echo import PATH as ECHO
from bench.grpc_load import EEYLOPS, MYKAFKA, Outcome
from bench.harness import Results, Row, median
from bench.kafka_process import BenchError, Deadline, Process, free_port
from odradek.proto import eeylops_pb2, eeylops_pb2_grpc, mykafka_pb2, mykafka_pb2_grpc

ROUNDS, QUICK_ROUNDS = 9, 2
SECONDS, QUICK_SECONDS, WARM_SECONDS = 2.0, 0.5, 0.5
CONNECTIONS, CALLS = 4, 64
VALUE = b"x" * 100
REQUEST_VALUES = 500  # of Produce and Publish
BATCH_VALUES = 1_000  # of Subscribe
STREAM_VALUES, QUICK_STREAM_VALUES = 200_000, 50_000  # that each Subscribe reads, from the first on
UNARY_BAR, STREAM_BAR = 0.5, 150_000
SEGMENT_BYTES = 256 << 20
START_SECONDS, LOAD_SECONDS_MAX, CALL_SECONDS = 60.0, 180.0, 30.0
POLL_SECONDS = 0.05
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Measured:
    """A load as seen from both ends."""

    outcome: Outcome
    server_cpu_seconds: float
    values: int  # of each thing done

    @property
    def rate(self) -> float:
        """Values a second."""
        return self.outcome.done * self.values / self.outcome.seconds

    @property
    def rate_per_core(self) -> float:
        """Values a CPU second of the server, its threads and its share of the kernel."""
        return self.outcome.done_in_all * self.values / max(self.server_cpu_seconds, 0.01)

    @property
    def load_share(self) -> float:
        """How much of its core the load took itself: near 1, it is the load that was measured."""
        return self.outcome.cpu_seconds / self.outcome.seconds


class Server:
    """A server that runs, bound to the first core if there are two."""

    def __init__(self, name: str, command: list[str], port: int, directory: Path) -> None:
        directory.mkdir()
        self.port = port
        self._process = Process(name, command, directory)

    def wait(self) -> None:
        """Until it takes connections."""
        deadline = Deadline(START_SECONDS, f"the start of {self._process.name}")
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), START_SECONDS):
                break
            self._process.check()
            deadline.check()
            time.sleep(POLL_SECONDS)
        if (cores := sorted(os.sched_getaffinity(0)))[1:]:
            for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores[:1])

    def load(self, kind: str, path: str, messages: Sequence[bytes], values: int, *options: object) -> Measured:
        """Load it for a while."""
        command = [sys.executable, "-m", "bench.grpc_load", kind, str(self.port), path, *map(str, options)]
        command += ["--connections", str(CONNECTIONS)]
        if (cores := sorted(os.sched_getaffinity(0)))[1:]:
            command = ["taskset", "--cpu-list", str(cores[1]), *command]
        given = "".join(f"{message.hex()}\n" for message in messages)
        cpu = self._process.cpu_seconds()
        done = subprocess.run(
            command, input=given, text=True, capture_output=True, timeout=LOAD_SECONDS_MAX, cwd=ROOT, check=False
        )
        self._process.check()
        if done.returncode:
            raise BenchError(f"the load of {self._process.name} failed: {done.stderr.strip()}")
        return Measured(Outcome(**json.loads(done.stdout)), self._process.cpu_seconds() - cpu, values)

    def stop(self) -> None:
        """End it."""
        self._process.stop()


@contextlib.contextmanager
def servers(directory: Path) -> Iterator[tuple[Server, Server]]:
    """Both: odradek and the echo."""
    ours, theirs = free_port(), free_port()
    odradek = [str(Path(sys.executable).with_name("odradek")), "serve", "--data", str(directory / "data")]
    odradek += ["--kafka", f"127.0.0.1:{free_port()}", "--http", "off", "--grpc", f"127.0.0.1:{ours}"]
    echo = [sys.executable, "-P", str(ROOT / "bench" / "grpc_echo.py"), str(theirs)]  # -P: `grpc` is not bench.grpc
    with contextlib.ExitStack() as stack:
        started = []
        for name, command, port in (("odradek", odradek, ours), ("the echo", echo, theirs)):
            server = Server(name, command, port, directory / name.replace(" ", "-"))
            stack.callback(server.stop)
            server.wait()
            started.append(server)
        yield started[0], started[1]


class Work:
    """The topics that the loads use, the messages that they send, and how much was acknowledged."""

    def __init__(self, channel: grpc.Channel) -> None:
        stubs: Any = (mykafka_pb2_grpc.BrokerStub, eeylops_pb2_grpc.EeylopsServiceStub)  # they have no types
        self._mykafka, self._eeylops = (stub(channel) for stub in stubs)
        self.send = self._partition("sends")
        topic = self._topic("values")
        self.produces = [
            eeylops_pb2.ProduceRequest(topic_id=topic, partition_id=1 + at, values=[VALUE] * REQUEST_VALUES)
            for at in range(CONNECTIONS)
        ]
        self.reads = [
            eeylops_pb2.ConsumeRequest(topic_id=topic, partition_id=1 + at, batch_size=BATCH_VALUES)
            for at in range(CONNECTIONS)
        ]

    def _partition(self, name: str) -> mykafka_pb2.SendMessageRequest:
        wanted = mykafka_pb2.TopicPartitionRequest(topic=name, partition=0, max_segment_size=SEGMENT_BYTES)
        error = self._mykafka.CreatePartition(wanted, timeout=CALL_SECONDS, wait_for_ready=True)
        if error.code:
            raise BenchError(f"CreatePartition: {error.code} {error.msg}")
        return mykafka_pb2.SendMessageRequest(topic=name, payload=VALUE)

    def _topic(self, name: str) -> int:
        topic = eeylops_pb2.Topic(topic_name=name, partition_ids=range(1, CONNECTIONS + 1))
        error = self._eeylops.CreateTopic(eeylops_pb2.CreateTopicRequest(topic=topic), timeout=CALL_SECONDS).error
        if error.error_code:
            raise BenchError(f"CreateTopic: {error.error_code} {error.error_msg}")
        asked = eeylops_pb2.GetTopicRequest(topic_name=name, sync=True)
        found: int = self._eeylops.GetTopic(asked, timeout=CALL_SECONDS).topic.topic_id
        return found

    def stored(self, name: str, partitions: int) -> int:
        """How many messages all partitions of a topic have that can be read."""
        total = 0
        for at in range(partitions):
            asked = mykafka_pb2.GetOffsetsRequest(topic=name, partition=at)
            answer = self._mykafka.GetOffsets(asked, timeout=CALL_SECONDS)
            if answer.error.code:
                raise BenchError(f"GetOffsets: {answer.error.code} {answer.error.msg}")
            total += answer.commit_offset + 1
        return total

    def fill(self, values: int) -> int:
        """Store so many values in each partition that is read; how many in all."""
        requests = -(-values // REQUEST_VALUES)
        for request in self.produces:
            error = self._eeylops.Publish(iter([request] * requests), timeout=LOAD_SECONDS_MAX).error
            if error.error_code:
                raise BenchError(f"Publish: {error.error_code} {error.error_msg}")
        return requests * REQUEST_VALUES * len(self.produces)


@dataclass(frozen=True)
class Round:
    """One turn of each."""

    echo: Measured
    send: Measured
    produce: Measured
    publish: Measured
    subscribe: Measured


def run(ours: Server, theirs: Server, rounds: int, seconds: float, values: int) -> list[Round]:
    """Load them in turns, each first in half of the rounds."""
    with grpc.insecure_channel(f"127.0.0.1:{ours.port}") as channel:
        work = Work(channel)
        sends = [work.send.SerializeToString()]
        produces = [request.SerializeToString() for request in work.produces]
        reads = [request.SerializeToString() for request in work.reads]
        spell = ("--calls", CALLS, "--seconds", seconds, "--warm", min(seconds, WARM_SECONDS))
        sent, stored, done = 0, work.fill(values), []
        for number in range(rounds):
            turns = [(theirs, ECHO), (ours, f"{MYKAFKA}SendMessage")]
            pair = [server.load("unary", path, sends, 1, *spell) for server, path in turns[:: -1 if number % 2 else 1]]
            echo, send = reversed(pair) if number % 2 else pair
            few = ("--calls", 2 * CONNECTIONS, "--seconds", seconds)
            produce = ours.load("unary", f"{EEYLOPS}Produce", produces, REQUEST_VALUES, *few)
            publish = ours.load("publish", f"{EEYLOPS}Publish", produces, REQUEST_VALUES, "--seconds", seconds)
            subscribe = ours.load("subscribe", f"{EEYLOPS}Subscribe", reads, 1, "--values", values)
            done.append(Round(echo, send, produce, publish, subscribe))
            sent += send.outcome.done_in_all
            stored += (produce.outcome.done_in_all + publish.outcome.done_in_all) * REQUEST_VALUES
            _tell(number, done[-1])
        for name, partitions, acknowledged in (("sends", 1, sent), ("values", CONNECTIONS, stored)):
            if (found := work.stored(name, partitions)) != acknowledged:
                raise BenchError(f"{acknowledged} values were acknowledged in {name}, but it has {found}")
    return done


def _tell(number: int, each: Round) -> None:
    parts = [
        f"{name} {load.rate:,.0f}/s (load {load.load_share:.0%})"
        for name, load in (
            ("echo", each.echo), ("SendMessage", each.send), ("Produce", each.produce), ("Publish", each.publish),
            ("Subscribe", each.subscribe),
        )
    ]  # fmt: skip
    print(f"  round {number + 1}: {', '.join(parts)}", file=sys.stderr, flush=True)


def judge(results: Results, rounds: list[Round]) -> None:
    """Medians over the rounds, and the bars."""
    ratio = median(each.send.rate / each.echo.rate for each in rounds)
    results.add(
        Row(
            f"SendMessage of {len(VALUE)} B to one partition, {CALLS} calls under way",
            f"{median(each.send.rate for each in rounds):,.0f}/s",
            f"echo {median(each.echo.rate for each in rounds):,.0f}/s",
            f"{ratio:.2f}",
            f">= {UNARY_BAR}",
            ratio >= UNARY_BAR,
        )
    )
    per_core = median(each.send.rate_per_core / each.echo.rate_per_core for each in rounds)
    results.add(
        Row(
            "the same a CPU second of the server",
            f"{median(each.send.rate_per_core for each in rounds):,.0f}",
            f"echo {median(each.echo.rate_per_core for each in rounds):,.0f}",
            f"{per_core:.2f}",
            "",
            None,
        )
    )
    several = f"{REQUEST_VALUES} values a request"
    _judge_values(results, f"Produce, {several}", [each.produce for each in rounds], None)
    _judge_values(results, f"Publish, {several}, {CONNECTIONS} streams", [each.publish for each in rounds], STREAM_BAR)
    reading = f"Subscribe, {BATCH_VALUES} values an answer, {CONNECTIONS} streams"
    _judge_values(results, reading, [each.subscribe for each in rounds], STREAM_BAR)


def _judge_values(results: Results, what: str, loads: list[Measured], bar: int | None) -> None:
    rate, per_core = median(load.rate for load in loads), median(load.rate_per_core for load in loads)
    results.add(
        Row(
            f"{what}: a CPU second of the broker",
            f"{per_core:,.0f} values",
            f"by the clock {rate:,.0f}/s",
            "",
            "" if bar is None else f">= {bar:,}",
            None if bar is None else per_core >= bar,
        )
    )


def main() -> int:
    """Run it and print the table; the exit status says whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each load in a round")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: does it work, not how fast")
    parser.add_argument("--dir", type=Path, help="where to write (some GiB); a temporary directory by default")
    given = parser.parse_args()
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    values = QUICK_STREAM_VALUES if given.quick else STREAM_VALUES
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=given.dir) as directory:
        results = Results("odradek: the gRPC door", Path(directory))
        try:
            with servers(Path(directory)) as (ours, theirs):
                done = run(ours, theirs, rounds, seconds, values)
        except (BenchError, OSError, grpc.RpcError, subprocess.TimeoutExpired) as error:
            print(f"bench.grpc: {error}", file=sys.stderr)
            return 2
        judge(results, done)
        print(f"  {time.monotonic() - begin:.0f} s in all", file=sys.stderr)
        return results.show()


if __name__ == "__main__":
    sys.exit(main())
