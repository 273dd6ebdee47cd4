"""The simulation: one heap of events, one seeded source of chance, five nodes, a network that loses and delays.

A seed first lives through a time of faults, then everything is healed and the quorum must agree and go on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from odradek.raft.machine import Raft, RaftConfig
from odradek.raft.messages import (
    Answered,
    Effects,
    Event,
    Failed,
    InstallSnapshot,
    PeerLost,
    Persist,
    Propose,
    Reply,
    Request,
    Requested,
    SaveQuorumState,
    Send,
    Tick,
    Truncate,
    VoteRequest,
    VoteResponse,
)
from tests.sim.disk import SimDisk
from tests.sim.faults import Faults, Weather
from tests.sim.invariants import Invariants, ViolationError
from tests.sim.node import SimNode

NODES = (1, 2, 3, 4, 5)
FAULTS_MS = 2000
HEALED_MS = 6000  # how long a healed quorum may take to agree
QUIET = Weather(loss=0.0, double=0.0, delay_ms=2, slow=0.0)


class Simulation:
    """One seed."""

    def __init__(self, seed: int, machine: type[Raft] = Raft, disk: type[SimDisk] = SimDisk) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.now = 0
        self.trace = 0  # a checksum of all that happened, in order
        self.weather = Weather.drawn(self.chance)
        self.cuts: set[tuple[int, int]] = set()  # (from, to): nothing gets through
        self.healed = False
        voters = frozenset(NODES[: self.chance.choice((5, 5, 5, 5, 4, 3, 3, 2))])
        max_entries = self.chance.choice((1, 2, 4))
        self.nodes = {node: self._node(node, voters, max_entries, machine, disk()) for node in NODES}
        self.invariants = Invariants(self.nodes, voters)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._tickets: dict[int, tuple[int, int, Request]] = {}  # ticket -> asker, asked, request
        self._marker = ""
        self._is_done = False
        self._faults = Faults(self)

    def _node(
        self, node_id: int, voters: frozenset[int], max_entries: int, machine: type[Raft], disk: SimDisk
    ) -> SimNode:
        config = RaftConfig(
            node_id, voters, election_timeout_ms=60, fetch_timeout_ms=120, fetch_wait_ms=40, max_entries=max_entries
        )
        return SimNode(node_id, config, machine, disk, self.chance.uniform(0.9, 1.1))

    def run(self) -> int:
        """Live through it all; the checksum of the trace. Raises ViolationError, or what the machine raises."""
        for node in self.nodes.values():
            self.start(node)
        self.at(self.chance.randrange(50), self._client)
        self.at(self.chance.randrange(100), self._faults.strike)
        self.at(FAULTS_MS, self._heal)
        while not self._is_done:
            self.now, _, action, arguments = heappop(self._heap)
            action(*arguments)
        return self.trace

    def at(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen later."""
        self._count += 1
        heappush(self._heap, (self.now + delay_ms, self._count, action, arguments))

    # --- nodes ---

    def start(self, node: SimNode) -> None:
        if node.machine is None:
            node.start(self.chance, self.now, self.invariants)
            self._plan_tick(node)

    def crash(self, node: SimNode) -> None:
        """End a process; the others may notice that its connections break."""
        if node.machine is None:
            return
        node.crash(self.chance)
        for other in NODES:
            if other != node.id and (node.id, other) not in self.cuts and self.chance.random() < 0.6:
                self.at(self.chance.randrange(1, 10), self.handle, other, PeerLost(node.id))

    def handle(self, node_id: int, event: Event) -> None:
        """An event reaches a node; while a flush is under way there, it waits."""
        node = self.nodes[node_id]
        if node.machine is None:
            return
        if node.batch is not None:
            node.inbox.append(event)
        else:
            self._run(node, [event])

    def _run(self, node: SimNode, events: list[Event]) -> None:
        batch = [node.step(event, self.now, self.invariants) for event in events]
        machine = node.running
        text = f"{self.now} {node.id} {len(events)} {machine.role} {machine.epoch} {machine.end_offset}"
        self.trace = zlib.crc32(f"{text} {machine.high_watermark}".encode(), self.trace)
        persist: list[Persist] = [change for effects in batch for change in effects.persist]
        if persist:
            node.disk.write(persist)
            if any(isinstance(change, SaveQuorumState) for change in persist):
                self._faults.saved(node)
            if self.chance.random() < self.weather.slow_flush:
                node.batch = batch
                self.at(self.chance.randrange(1, 15), self._flushed, node, node.incarnation)
                return
            node.disk.sync()
        self._finish(node, batch)

    def _flushed(self, node: SimNode, incarnation: int) -> None:
        batch = node.batch
        if node.incarnation != incarnation or batch is None:
            return
        node.disk.sync()
        node.batch = None
        self._finish(node, batch)
        if node.inbox:
            events, node.inbox = node.inbox, []
            self._run(node, events)

    def _finish(self, node: SimNode, batch: list[Effects]) -> None:
        for effects in batch:
            for send in effects.send:
                self._send(node.id, send)
            for reply in effects.replies:
                self._answer(node, reply)
            if any(isinstance(change, Truncate | InstallSnapshot) for change in effects.persist):
                self.invariants.majority_holds()
        for effects in batch:
            if effects.apply:
                node.apply(effects, self.invariants)
        self.invariants.settled(node)
        self._plan_tick(node)

    def _plan_tick(self, node: SimNode) -> None:
        at = max(self.now + 1, node.global_ms(node.running.next_deadline()))
        if node.tick_at < 0 or at < node.tick_at:
            node.tick_at = at
            self.at(at - self.now, self._tick, node)

    def _tick(self, node: SimNode) -> None:
        if node.tick_at != self.now or node.machine is None:
            return
        node.tick_at = -1
        local = node.local_ms(self.now)
        if node.batch is None and node.machine.next_deadline() > local:
            self._plan_tick(node)
            return
        was_free = node.batch is None
        self.handle(node.id, Tick())
        if was_free and node.machine.next_deadline() <= local:
            raise ViolationError("TicksEnd", f"node {node.id} wants the next tick at once")

    # --- the network ---

    def _is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts or self.chance.random() < self.weather.loss

    def _times(self) -> int:
        return 2 if self.chance.random() < self.weather.double else 1

    def _delay(self) -> int:
        weather = self.weather
        if self.chance.random() < weather.slow:
            return self.chance.randrange(20, 250)
        return self.chance.randrange(1, weather.delay_ms + 1)

    def _fail(self, source: int, target: int, request: Request, delay_ms: int) -> None:
        """No answer will come; mostly, the asker is told so after a while."""
        if self.chance.random() < 0.6:
            self.at(delay_ms, self.handle, source, Failed(target, request))

    def _send(self, source: int, send: Send) -> None:
        if isinstance(send.request, VoteRequest) and not send.request.pre_vote:
            self.invariants.votes(source, send.request.epoch, source)
        if self._is_lost(source, send.node):
            self._fail(source, send.node, send.request, self.chance.randrange(20, 120))
            return
        for _ in range(self._times()):
            self.at(self._delay(), self._arrive, source, send.node, send.request)

    def _arrive(self, source: int, target: int, request: Request) -> None:
        if self.nodes[target].machine is None:
            self._fail(source, target, request, self.chance.randrange(1, 5))
            return
        self._count += 1
        self._tickets[self._count] = (source, target, request)
        self.handle(target, Requested(self._count, request))

    def _answer(self, node: SimNode, reply: Reply) -> None:
        source, target, request = self._tickets.pop(reply.ticket)
        match request, reply.response:
            case VoteRequest(pre_vote=False), VoteResponse(granted=True):
                self.invariants.votes(target, request.epoch, source)
        if self._is_lost(target, source):
            self._fail(source, target, request, self.chance.randrange(20, 120))
            return
        response = node.fill(reply).response
        for _ in range(self._times()):
            self.at(self._delay(), self.handle, source, Answered(target, request, response))

    # --- clients ---

    def leaders(self) -> list[SimNode]:
        """Who takes itself for the leader."""
        return [node for node in self.nodes.values() if node.machine is not None and node.machine.role == "leader"]

    def _client(self) -> None:
        if self.healed:
            return
        leaders = self.leaders()
        if leaders and self.chance.random() < 0.9:
            self.propose(self.chance.choice(leaders), self.chance.randrange(1, 4))
        else:
            self.propose(self.nodes[self.chance.choice(NODES)], 1)
        self.at(self.chance.randrange(5, 60), self._client)

    def propose(self, node: SimNode, count: int) -> str:
        """Hand a proposal to a node; the body of its last entry."""
        if node.machine is None:
            return ""
        self._count += 1
        ticket = self._count
        entries = tuple(("set", f"{ticket}.{number}") for number in range(count))
        node.waiting[ticket] = (-1, entries)
        self.handle(node.id, Propose(entries, ticket))
        return entries[-1][1]

    # --- the end ---

    def _heal(self) -> None:
        self.healed = True
        self.cuts.clear()
        self.weather = QUIET
        for node in self.nodes.values():
            self.start(node)
        self._until = self.now + HEALED_MS
        self.at(100, self._settle)

    def _settle(self) -> None:
        """See whether all agree by now: one entry of after the healing is applied everywhere."""
        invariants = self.invariants
        if any(entry.body == self._marker for entry in invariants.committed[-8:]):
            if all(node.applied == len(invariants.committed) for node in self.nodes.values()):
                invariants.at_the_end()
                self._is_done = True
                return
        elif leaders := self.leaders():
            self._marker = self.propose(max(leaders, key=lambda node: node.running.epoch), 1)
        if self.now >= self._until:
            states = [(node.id, node.running.role, node.running.epoch, node.applied) for node in self.nodes.values()]
            raise ViolationError("Liveness", f"{HEALED_MS} ms after the healing: {states}")
        self.at(40, self._settle)
