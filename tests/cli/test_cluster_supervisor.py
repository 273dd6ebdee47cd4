"""What `odradek cluster up` does with processes that serve, die, refuse to start or to end; they are stand-ins."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.cli.cluster_supervisor import BrokerSpec, Member, Stop, Supervisor, leader_of
from odradek.cli.cluster_view import status_line
from odradek.cli.terminal import CommandError
from odradek.client.address import Address
from tests.client.support import asynchronous, until

# Serves until SIGTERM; what it is told to do before that or instead stands in its arguments.
STAND_IN = """
import os, signal, sys
what, marker = sys.argv[1:]
is_first = not os.path.exists(marker)
open(marker, "w").close()
if what == "refuses" or (what == "once" and not is_first):
    print("2026 INFO something\\nodradek: the port is taken", file=sys.stderr)
    raise SystemExit(1)
signal.signal(signal.SIGTERM, signal.SIG_IGN if what == "stubborn" else lambda *_: sys.exit(0))
print("odradek ready broker=1 kafka=127.0.0.1:1", flush=True)
if what == "dies" and is_first:
    raise SystemExit(3)
while True:
    signal.pause()
"""


class Cluster:
    """Stand-ins under a supervisor."""

    def __init__(self, directory: Path, *kinds: str, restart: bool = True, stop_seconds_max: float = 20.0) -> None:
        doors = [Address("127.0.0.1", id_) for id_, _ in enumerate(kinds, 1)]
        self.members = [
            Member(BrokerSpec(id_, door, door, door, directory, (kind,)))
            for id_, (door, kind) in enumerate(zip(doors, kinds, strict=True), 1)
        ]
        self.told: list[str] = []
        self.ready = 0
        self.leader: int | None = 1
        self.started: list[int] = []
        self.stop = Stop()
        self._directory = directory
        self.supervisor = Supervisor(
            self.members,
            start=self._start,
            probe=self._probe,
            told=self.told.append,
            ready=self._note_ready,
            restart=restart,
            pauses_seconds=(0.01, 0.02),
            probe_seconds=0.01,
            stop_seconds_max=stop_seconds_max,
        )

    async def _start(self, spec: BrokerSpec) -> asyncio.subprocess.Process:
        self.started.append(spec.id)
        marker = str(self._directory / f"started-{spec.id}")
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-SEc", STAND_IN, *spec.command, marker, stdout=pipe, stderr=pipe, start_new_session=True
        )

    async def _probe(self, _: BrokerSpec) -> int | None:
        return self.leader

    def _note_ready(self) -> None:
        self.ready += 1

    def run(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.supervisor.run(self.stop))

    def said(self, words: str) -> Callable[[], bool]:
        return lambda: any(words in line for line in self.told)


@asynchronous
async def test_all_are_started_told_ready_once_and_stopped_in_good_order(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good", "good", "good")
    running = cluster.run()
    await until(lambda: cluster.ready == 1)
    await until(cluster.said("broker 1 leads the cluster"))
    pids = [member.pid for member in cluster.members]
    assert all(member.is_up for member in cluster.members)
    assert status_line(cluster.members) == "3 of 3 up, broker 1 leads. Ctrl+C stops all of them."
    cluster.stop.ask()
    await running
    assert [member.state for member in cluster.members] == ["stopped"] * 3
    assert cluster.ready == 1 and cluster.started == [1, 2, 3]
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@asynchronous
async def test_one_that_dies_is_started_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good", "dies")
    running = cluster.run()
    await until(lambda: cluster.members[1].restarts == 1 and cluster.members[1].is_up)
    assert cluster.said("broker 2 has ended with status 3; it is started again in 0.01 s")()
    before = cluster.members[0].pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await until(lambda: cluster.members[0].restarts == 1 and cluster.members[0].is_up)
    assert cluster.said("broker 1 was killed by signal 9; it is started again")()
    assert cluster.members[0].pid != before
    cluster.stop.ask()
    await running


@asynchronous
async def test_without_restarts_it_stays_down_and_the_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good", "dies", restart=False)
    running = cluster.run()
    await until(cluster.said("it stays down"))
    await until(lambda: cluster.members[0].is_up)
    assert [member.state for member in cluster.members] == ["up", "down"]
    assert cluster.started.count(2) == 1
    cluster.stop.ask()
    await running


@asynchronous
async def test_when_all_have_ended_so_does_the_command(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="all brokers have ended"):
        await Cluster(tmp_path, "dies", restart=False).run()


@asynchronous
async def test_one_that_cannot_start_ends_all_and_is_quoted(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good", "refuses")
    with pytest.raises(CommandError, match="broker 2 cannot start: the port is taken"):
        await cluster.run()
    assert all(member.pid is None for member in cluster.members)
    assert cluster.ready == 0


@asynchronous
async def test_one_that_was_up_once_is_tried_again_and_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "once")
    running = cluster.run()
    await until(lambda: cluster.ready == 1)
    pid = cluster.members[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: cluster.members[0].restarts >= 3)
    assert cluster.said("has ended with status 1 (the port is taken); it is started again in 0.02 s")()
    assert not running.done()
    cluster.stop.ask()
    await running


@asynchronous
async def test_one_that_does_not_end_is_killed_and_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good", "stubborn", stop_seconds_max=0.05)
    running = cluster.run()
    await until(lambda: cluster.ready == 1)
    cluster.stop.ask()
    with pytest.raises(CommandError, match=r"broker [12, ]*2 did not stop in time and was killed"):
        await running


@asynchronous
async def test_asked_twice_it_waits_no_longer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "stubborn")
    running = cluster.run()
    await until(lambda: cluster.ready == 1)
    cluster.stop.ask()
    await until(lambda: status_line(cluster.members).startswith("stopping: 1 of 1 still run"))
    cluster.stop.ask()
    async with asyncio.timeout(10):
        await running


@asynchronous
async def test_one_that_runs_but_does_not_answer_is_silent_until_it_does(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "good")
    running = cluster.run()
    await until(cluster.said("broker 1 leads the cluster"))
    cluster.leader = None
    await until(lambda: cluster.members[0].state == "silent")
    await until(cluster.said("there is no leader"))
    assert leader_of(cluster.members) == -1
    cluster.leader = 1
    await until(lambda: cluster.members[0].is_up)
    cluster.stop.ask()
    await running
