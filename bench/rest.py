"""Katar's publish by HTTP beside a bare FastAPI route that only answers 204, in turns, in one run, on one machine.

FastAPI runs under uvicorn with httptools and uvloop, one process, without an access log. Odradek runs as `odradek
serve` does, so each answer waits for fdatasync. With two cores or more both servers are bound to the first core and the
load to the second. The load is `bench.rest_load`. In the end one more message must get the offset that follows from the
answers: what was acknowledged is there.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Results, Row, median
from bench.kafka_process import BenchError, Deadline, Process, free_port
from bench.rest_load import Outcome

ROUNDS = 7
SECONDS, WARM_SECONDS = 3.0, 0.5
SINGLE_CONNECTIONS, BATCH_CONNECTIONS = 64, 8
BATCH_MESSAGES = 1_000
MESSAGE_BYTES = 100
SINGLE_BAR, BATCH_BAR = 0.5, 200_000
START_SECONDS, LOAD_SECONDS_MAX, POLL_SECONDS = 30.0, 120.0, 0.05
TOPIC = "bench"
ROOT = Path(__file__).resolve().parent.parent


def message() -> str:
    """One JSON object of a hundred bytes."""
    fields = '{"user":"u-104711","event":"view","page":"/products/52","at":1767225600000,"note":"'
    return fields + "x" * (MESSAGE_BYTES - len(fields) - 2) + '"}'


def post(port: int, body: str) -> bytes:
    """A request as a client with few headers sends it."""
    head = f"POST /publish HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@dataclass(frozen=True)
class Measured:
    """A load as seen from both ends."""

    outcome: Outcome
    server_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.outcome.requests / self.outcome.seconds

    @property
    def rate_per_core(self) -> float:
        """Requests a CPU second of the server, its threads and its share of the kernel."""
        return self.outcome.requests_in_all / self.server_cpu_seconds


class Server:
    """A server that runs, bound to the first core if there are two."""

    def __init__(self, name: str, command: list[str], port: int, directory: Path) -> None:
        directory.mkdir()
        self.port = port
        self.acknowledged = 0  # requests
        self._process = Process(name, command, directory)

    def wait(self) -> None:
        """Until it answers."""
        deadline = Deadline(START_SECONDS, f"the start of {self._process.name}")
        while True:
            try:
                self.ask(message())
                break
            except (BenchError, OSError):  # it does not listen yet, or is not ready yet
                self._process.check()
                deadline.check()
            time.sleep(POLL_SECONDS)
        if (cores := sorted(os.sched_getaffinity(0)))[1:]:
            for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores[:1])

    def ask(self, payload: str) -> dict[str, list[dict[str, int]]]:
        """Publish one message; what the server says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("POST", "/publish", f'{{"topic":"{TOPIC}","payload":{payload}}}')
            answer = connection.getresponse()
            content = answer.read()
        if answer.status not in (200, 204):
            raise BenchError(f"{self._process.name} answers {answer.status}: {content!r}")
        self.acknowledged += 1
        found: dict[str, list[dict[str, int]]] = json.loads(content) if content else {}
        return found

    def load(self, body: str, connections: int, seconds: float) -> Measured:
        """Load it for a while."""
        command = [sys.executable, "-m", "bench.rest_load", str(self.port), "--connections", str(connections)]
        command += ["--warm", str(min(seconds, WARM_SECONDS)), "--seconds", str(seconds)]
        if (cores := sorted(os.sched_getaffinity(0)))[1:]:
            command = ["taskset", "--cpu-list", str(cores[1]), *command]
        cpu = self._process.cpu_seconds()
        done = subprocess.run(
            command, input=post(self.port, body), capture_output=True, timeout=LOAD_SECONDS_MAX, cwd=ROOT, check=False
        )
        self._process.check()
        if done.returncode:
            raise BenchError(f"the load of {self._process.name} failed: {done.stderr.decode(errors='replace').strip()}")
        outcome = Outcome(**json.loads(done.stdout))
        self.acknowledged += outcome.requests_in_all
        return Measured(outcome, self._process.cpu_seconds() - cpu)

    def stop(self) -> None:
        """End it."""
        self._process.stop()


@contextlib.contextmanager
def servers(directory: Path) -> Iterator[tuple[Server, Server]]:
    """Both: odradek and FastAPI."""
    ours, theirs = free_port(), free_port()
    uvicorn = [sys.executable, "-m", "uvicorn", "bench.rest_app:app", "--app-dir", str(ROOT), "--host", "127.0.0.1"]
    uvicorn += ["--port", str(theirs), "--http", "httptools", "--loop", "uvloop", "--no-access-log"]
    odradek = [str(Path(sys.executable).with_name("odradek")), "serve", "--data", str(directory / "data")]
    odradek += ["--kafka", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{ours}", "--grpc", "off"]
    with contextlib.ExitStack() as stack:
        started = []
        for name, command, port in (("odradek", odradek, ours), ("FastAPI", uvicorn, theirs)):
            server = Server(name, command, port, directory / name)
            stack.callback(server.stop)
            server.wait()
            started.append(server)
        yield started[0], started[1]


@dataclass(frozen=True)
class Round:
    """One turn of each."""

    bare: Measured
    single: Measured
    batch: Measured


def run(ours: Server, theirs: Server, rounds: int, seconds: float) -> list[Round]:
    """Load them in turns, each first in half of the rounds."""
    single = f'{{"topic":"{TOPIC}","payload":{message()}}}'
    batch = f'{{"topic":"{TOPIC}","payloads":[{",".join([message()] * BATCH_MESSAGES)}]}}'
    done, messages = [], ours.acknowledged
    for number in range(rounds):
        if number % 2:
            one = ours.load(single, SINGLE_CONNECTIONS, seconds)
            bare = theirs.load(single, SINGLE_CONNECTIONS, seconds)
        else:
            bare = theirs.load(single, SINGLE_CONNECTIONS, seconds)
            one = ours.load(single, SINGLE_CONNECTIONS, seconds)
        many = ours.load(batch, BATCH_CONNECTIONS, seconds)
        messages += one.outcome.requests_in_all + many.outcome.requests_in_all * BATCH_MESSAGES
        done.append(Round(bare, one, many))
        print(
            f"  round {number + 1}: FastAPI {bare.rate:,.0f}/s, publish {one.rate:,.0f}/s, "
            f"batch {many.rate * BATCH_MESSAGES:,.0f} messages/s; the load itself took "
            f"{_load_share(bare):.0%}, {_load_share(one):.0%} and {_load_share(many):.0%} of its core",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    offset = ours.ask(message())["offsets"][0]["offset"]
    if offset != messages:
        raise BenchError(f"{messages} messages were acknowledged, but the next one gets the offset {offset}")
    return done


def _load_share(measured: Measured) -> float:
    return measured.outcome.cpu_seconds / measured.outcome.seconds


def judge(results: Results, rounds: list[Round]) -> None:
    """Medians over the rounds, and the bars."""
    ratio = median(each.single.rate / each.bare.rate for each in rounds)
    results.add(
        Row(
            f"publish of one message of {MESSAGE_BYTES} B, {SINGLE_CONNECTIONS} connections",
            f"{median(each.single.rate for each in rounds):,.0f} requests/s",
            f"FastAPI, 204 {median(each.bare.rate for each in rounds):,.0f}/s",
            f"{ratio:.2f}",
            f">= {SINGLE_BAR}",
            ratio >= SINGLE_BAR,
        )
    )
    per_core = median(each.single.rate_per_core / each.bare.rate_per_core for each in rounds)
    results.add(
        Row(
            "the same a CPU second of the server",
            f"{median(each.single.rate_per_core for each in rounds):,.0f} requests",
            f"FastAPI, 204 {median(each.bare.rate_per_core for each in rounds):,.0f}",
            f"{per_core:.2f}",
            "",
            None,
        )
    )
    rate = median(each.batch.rate for each in rounds) * BATCH_MESSAGES
    on_one_core = median(each.batch.rate_per_core for each in rounds) * BATCH_MESSAGES
    what = f"batch publish, {BATCH_MESSAGES:,} messages a request, {BATCH_CONNECTIONS} connections"
    results.add(Row(what, f"{rate:,.0f} messages/s", "no peer", "", f">= {BATCH_BAR:,}", rate >= BATCH_BAR))
    results.add(
        Row(
            "the same a CPU second of the broker (user and system, flushes too)",
            f"{on_one_core:,.0f} messages",
            "no peer",
            "",
            f">= {BATCH_BAR:,}",
            on_one_core >= BATCH_BAR,
        )
    )


def main() -> int:
    """Run it and print the table; the exit status says whether a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load in a round")
    parser.add_argument("--dir", type=Path, help="where to write (some GiB); a temporary directory by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=arguments.dir) as directory:
        results = Results("odradek: publish by HTTP", Path(directory))
        try:
            with servers(Path(directory)) as (ours, theirs):
                rounds = run(ours, theirs, arguments.rounds, arguments.seconds)
        except (BenchError, OSError) as error:
            print(f"bench.rest: {error}", file=sys.stderr)
            return 2
        judge(results, rounds)
        return results.show()


if __name__ == "__main__":
    sys.exit(main())
