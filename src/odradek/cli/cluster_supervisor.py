"""Keeps the brokers of `odradek cluster up` running: starts them, sees them die, starts them again, stops them all.

How a process is started and how a broker is asked for its leader are arguments, so that neither is fixed here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from odradek.cli.terminal import CommandError
from odradek.client.address import Address

READY_WORDS = b"odradek ready"
COMPLAINT = "odradek: "  # how a command that cannot go on begins its last line
NOBODY = -1

PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a broker is started again, the longer the more often
STABLE_SECONDS = 30.0  # one that was up for so long starts anew with the first pause
STOP_SECONDS_MAX = 40.0
PROBE_SECONDS = 1.0
_TAIL_BYTES = 16 * 1024
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """One broker as it is to be started."""

    id: int
    kafka: Address
    http: Address
    grpc: Address
    data: Path
    command: tuple[str, ...]


Starter: TypeAlias = "Callable[[BrokerSpec], Awaitable[asyncio.subprocess.Process]]"
Probe: TypeAlias = "Callable[[BrokerSpec], Awaitable[int | None]]"  # the leader that it knows, -1; None: no answer


@dataclass(slots=True)
class Member:
    """A broker and how it is doing."""

    spec: BrokerSpec
    state: str = "starting"  # starting, up, silent (runs, but does not answer), down, stopping, stopped
    pid: int | None = None
    restarts: int = 0
    leader_id: int = NOBODY  # as it knows it

    @property
    def is_up(self) -> bool:
        """Whether it serves."""
        return self.state == "up"


def leader_of(members: Iterable[Member]) -> int:
    """The leader that most of the brokers know; -1 if none knows one."""
    known = Counter(member.leader_id for member in members if member.is_up and member.leader_id != NOBODY)
    return known.most_common(1)[0][0] if known else NOBODY


class Stop:
    """What Ctrl+C and SIGTERM mean: stop in good order, and if it comes again, at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()

    def ask(self) -> None:
        """Somebody wants it to end."""
        (self.hurry if self.asked.is_set() else self.asked).set()


class Supervisor:
    """The processes of one cluster."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        start: Starter,
        probe: Probe,
        told: Callable[[str], None],
        ready: Callable[[], None],
        restart: bool = True,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        probe_seconds: float = PROBE_SECONDS,
        stop_seconds_max: float = STOP_SECONDS_MAX,
    ) -> None:
        """`told` gets one line an event; `ready` is called once, when all brokers serve."""
        self.members = members
        self._start = start
        self._probe = probe
        self._told = told
        self._ready = ready
        self._restart = restart
        self._pauses = pauses_seconds
        self._probe_seconds = probe_seconds
        self._stop_seconds_max = stop_seconds_max
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._was_ready = False
        self._stopping = asyncio.Event()
        self._leader = NOBODY

    async def run(self, stop: Stop) -> None:
        """Keep all running until asked to stop; a CommandError if that is not possible."""
        keeping = [asyncio.create_task(self._keep(member)) for member in self.members]
        all_kept = asyncio.gather(*keeping)
        watching = asyncio.create_task(self._watch())
        asked = asyncio.create_task(stop.asked.wait())
        ends: set[asyncio.Future[Any]] = {all_kept, watching, asked}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopping.set()
            watching.cancel()
            asked.cancel()
            killed = await self._stop_all(stop)
            await asyncio.gather(*keeping, *ends, return_exceptions=True)
        for end in (all_kept, watching):
            if not end.cancelled() and (error := end.exception()) is not None:
                raise error
        if killed:
            ids = ", ".join(map(str, killed))
            raise CommandError(
                f"broker {ids} did not stop in time and was killed: odradek.log in its directory says why"
            )
        if not stop.asked.is_set():
            raise CommandError("all brokers have ended: their last words stand above")

    # One broker.

    async def _keep(self, member: Member) -> None:
        """Run one broker, again and again."""
        spec, failures, loop = member.spec, 0, asyncio.get_running_loop()
        was_up = False
        while not self._stopping.is_set():
            member.state, begun = "starting", loop.time()
            try:
                process = await self._start(spec)
            except OSError as error:
                raise CommandError(f"broker {spec.id} cannot be started: {error.strerror or error}") from error
            self._processes[spec.id] = process
            member.pid = process.pid
            if self._stopping.is_set():
                _signal(process.terminate)
            last_words = await self._listen(member, process)
            status = await process.wait()
            del self._processes[spec.id]
            is_first, was_up = not was_up, was_up or member.is_up or member.state == "silent"
            member.state, member.pid, member.leader_id = "down", None, NOBODY
            if self._stopping.is_set():
                member.state = "stopped"
                return
            reason = f"{_ending(status)}{_quoted(last_words)}"
            if is_first and not was_up and status >= 0:
                raise CommandError(f"broker {spec.id} cannot start: {_complaint(last_words) or reason}")
            if not self._restart:
                self._told(f"broker {spec.id} {reason}; it stays down, as --no-restart says")
                return
            failures = 0 if loop.time() - begun >= STABLE_SECONDS else failures
            pause = self._pauses[min(failures, len(self._pauses) - 1)]
            failures += 1
            self._told(f"broker {spec.id} {reason}; it is started again in {pause:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            member.restarts += 1
        member.state = "stopped"

    async def _listen(self, member: Member, process: asyncio.subprocess.Process) -> str:
        """Read what a broker says until it ends; return its last words."""
        assert process.stdout is not None and process.stderr is not None
        tail, _ = await asyncio.gather(_tail(process.stderr), self._hear(member, process.stdout))
        return tail

    async def _hear(self, member: Member, stream: asyncio.StreamReader) -> None:
        heard = b""
        while piece := await stream.read(_PIECE_BYTES):
            heard = (heard + piece)[-_TAIL_BYTES:]
            if member.state == "starting" and READY_WORDS in heard:
                member.state = "up"
                self._told(f"broker {member.spec.id} is up")
                self._note_ready()

    def _note_ready(self) -> None:
        if not self._was_ready and all(member.is_up for member in self.members):
            self._was_ready = True
            self._ready()

    # All of them.

    async def _watch(self) -> None:
        """Ask the brokers who leads, and tell when that changes."""
        while True:
            await asyncio.gather(*(self._look(member) for member in self.members if member.state in ("up", "silent")))
            leader = leader_of(self.members)
            if leader != self._leader:
                self._leader = leader
                self._told("there is no leader" if leader == NOBODY else f"broker {leader} leads the cluster")
            await asyncio.sleep(self._probe_seconds)

    async def _look(self, member: Member) -> None:
        leader_id = await self._probe(member.spec)
        if member.state in ("up", "silent"):  # still, after the wait
            member.state = "silent" if leader_id is None else "up"
            member.leader_id = NOBODY if leader_id is None else leader_id

    async def _stop_all(self, stop: Stop) -> list[int]:
        """End all processes, if need be by force; return the ids of those."""
        for member in self.members:
            if (process := self._processes.get(member.spec.id)) is not None:
                member.state = "stopping"
                _signal(process.terminate)
        gone = asyncio.create_task(self._all_gone())
        hurried = asyncio.create_task(stop.hurry.wait())
        await asyncio.wait({gone, hurried}, timeout=self._stop_seconds_max, return_when=asyncio.FIRST_COMPLETED)
        left = {id_: process for id_, process in self._processes.items() if process.returncode is None}
        for process in left.values():
            _signal(process.kill)
        hurried.cancel()
        await asyncio.gather(gone, hurried, return_exceptions=True)
        return [] if stop.hurry.is_set() else sorted(left)

    async def _all_gone(self) -> None:
        await asyncio.gather(*(process.wait() for process in list(self._processes.values())))


async def _tail(stream: asyncio.StreamReader) -> str:
    """The end of what is said on a stream, when that has ended."""
    tail = b""
    while piece := await stream.read(_PIECE_BYTES):
        tail = (tail + piece)[-_TAIL_BYTES:]
    return tail.decode("utf-8", "replace")


def _signal(send: Callable[[], None]) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        send()


def _ending(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"has ended with status {status}"


def _complaint(last_words: str) -> str:
    """The line in which the broker itself says why it cannot go on."""
    lines = [line for line in last_words.splitlines() if line.startswith(COMPLAINT)]
    return lines[-1].removeprefix(COMPLAINT) if lines else ""


def _quoted(last_words: str) -> str:
    said = _complaint(last_words)
    return f" ({said})" if said else ""
