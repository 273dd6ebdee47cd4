"""Scenarios as text: lines that begin with `> ` are commands, the others what the nodes did.

Commands: `nodes 1 2 3 [observers 4] [max_entries=1]`, `tick N` (time goes on to N's deadline, then a Tick),
`run MS` (time goes on, with all ticks and messages), `deliver [A->B]` (all messages until it is quiet, or those of one
way that are under way now), `cut A->B ...`, `mend`, `propose N BODY`, `crash N`, `start N`, `snapshot N`, `lost N M`
(N sees M's connection break), `resign N`, `state`. `python -m tests.raft.scenario FILE ...` renews transcripts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from odradek.raft.machine import Raft, RaftConfig, Stored
from odradek.raft.messages import (
    Answered,
    BeginQuorumEpoch,
    BeginResponse,
    Committed,
    Deposed,
    Elected,
    EndQuorumEpoch,
    Event,
    FetchRequest,
    FetchResponse,
    LoadSnapshot,
    Lost,
    PeerLost,
    Persist,
    Propose,
    Refused,
    Request,
    Requested,
    Resign,
    Response,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    Tick,
    Truncate,
    VoteRequest,
    VoteResponse,
)
from tests.sim.disk import SimDisk

MESSAGES_MAX = 1000  # from one moment to the next


class FixedChance(Random):
    """No chance: node 1 is the most impatient, the others follow in order."""

    def __init__(self, node_id: int) -> None:
        super().__init__(0)
        self._node_id = node_id

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return min(start - 1, 10 * self._node_id)


def request_text(request: Request) -> str:
    match request:
        case VoteRequest():
            kind = "pre-vote?" if request.pre_vote else "vote?"
            return f"{kind} epoch {request.epoch}, log ends {request.last_epoch}/{request.end_offset}"
        case BeginQuorumEpoch():
            return f"begin epoch {request.epoch}"
        case EndQuorumEpoch():
            return f"end epoch {request.epoch}, prefers {list(request.preferred)}"
        case SnapshotRequest():
            return f"snapshot? {tuple(request.snapshot)}"
        case FetchRequest():
            return ""  # the answers tell


def response_text(response: Response) -> str:
    match response:
        case VoteResponse():
            return f"{'yes' if response.granted else 'no'}, epoch {response.epoch} leader {response.leader_id}"
        case BeginResponse():
            return "" if response.accepted else f"refused, epoch {response.epoch} leader {response.leader_id}"
        case FetchResponse() if response.error:
            return f"{response.error}, epoch {response.epoch} leader {response.leader_id}"
        case FetchResponse() if response.diverging:
            return f"logs part in epoch {response.diverging[0]} at {response.diverging[1]}"
        case FetchResponse() if response.snapshot:
            return f"load snapshot {tuple(response.snapshot)}"
        case FetchResponse() if response.entries:
            bodies = [entry.body if entry.type == "set" else f"<{entry.type}>" for entry in response.entries]
            return f"entries from {response.start_offset}: {' '.join(bodies)}"
        case SnapshotResponse():
            return response.error or f"snapshot {tuple(response.snapshot)}"
        case _:
            return ""


class Scenario:
    """A group of machines whose messages and time are moved by hand."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0
        self._configs: dict[int, RaftConfig] = {}
        self._disks: dict[int, SimDisk] = {}
        self._machines: dict[int, Raft] = {}
        self._queue: list[tuple[int, int, Request, Response | None]] = []  # from, to, request, answer
        self._cuts: set[tuple[int, int]] = set()
        self._tickets: dict[int, tuple[int, Request]] = {}

    def command(self, line: str) -> None:
        name, *words = line.split()
        self.lines.append(f"> {line}")
        getattr(self, f"_do_{name}")(*words)

    # --- commands ---

    def _do_nodes(self, *words: str) -> None:
        options = dict(word.split("=") for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        split = names.index("observers") if "observers" in names else len(names)
        voters = frozenset(map(int, names[:split]))
        for node in map(int, [*names[:split], *names[split + 1 :]]):
            entries_max = int(options.get("max_entries", 100))
            self._configs[node] = RaftConfig(node, voters, 1000, 2000, 500, entries_max)
            self._disks[node] = SimDisk()
            self._begin(node)

    def _begin(self, node: int) -> None:
        stored: Stored = self._disks[node].read()
        self._machines[node] = Raft(self._configs[node], stored, FixedChance(node), self.now)

    def _do_start(self, node: str) -> None:
        self._begin(int(node))

    def _do_crash(self, node: str) -> None:
        del self._machines[int(node)]
        self._queue = [message for message in self._queue if message[0] != int(node)]

    def _do_tick(self, node: str) -> None:
        machine = self._machines[int(node)]
        self.now = max(self.now, machine.next_deadline())
        self._step(int(node), Tick())

    def _do_run(self, duration_ms: str) -> None:
        until = self.now + int(duration_ms)
        while True:
            self._do_deliver()
            deadline, node = min((machine.next_deadline(), node) for node, machine in self._machines.items())
            if deadline > until:
                break
            self.now = max(self.now, deadline)
            self._step(node, Tick())
        self.now = until

    def _do_deliver(self, way: str = "") -> None:
        if way:
            ends = tuple(map(int, way.split("->")))
            chosen = [message for message in self._queue if message[:2] == ends]
            self._queue = [message for message in self._queue if message[:2] != ends]
            for message in chosen:
                self._deliver(*message)
            return
        for _ in range(MESSAGES_MAX):
            if not self._queue:
                return
            self._deliver(*self._queue.pop(0))
        raise AssertionError("the nodes never stop talking")

    def _do_cut(self, *ways: str) -> None:
        for way in ways:
            source, target = way.split("->")
            everyone = [str(node) for node in self._configs]
            for one in everyone if source == "*" else [source]:
                for other in everyone if target == "*" else [target]:
                    self._cuts.add((int(one), int(other)))

    def _do_mend(self) -> None:
        self._cuts.clear()

    def _do_propose(self, node: str, body: str) -> None:
        self._step(int(node), Propose((("set", body),), 0))

    def _do_snapshot(self, node: str) -> None:
        machine = self._machines[int(node)]
        snapshot = SnapshotId(machine.high_watermark, machine.epoch_at(machine.high_watermark - 1))
        self._disks[int(node)].save_snapshot(snapshot, b"state")
        self._step(int(node), SnapshotTaken(snapshot))

    def _do_lost(self, node: str, peer: str) -> None:
        self._step(int(node), PeerLost(int(peer)))

    def _do_resign(self, node: str) -> None:
        self._step(int(node), Resign())

    def _do_state(self) -> None:
        for node in self._configs:
            machine = self._machines.get(node)
            if machine is None:
                self._say(f"{node} is down")
                continue
            start, entries = machine.log_start.end_offset, []
            for offset in range(start, machine.end_offset):
                entry = machine.entry(offset)
                entries.append(f"{entry.epoch}:{entry.body if entry.type == 'set' else '*'}")
            log = f"log from {start}: {' '.join(entries)}"
            self._say(
                f"{node} {machine.role} epoch {machine.epoch}, committed {machine.high_watermark}, {log.rstrip()}"
            )

    # --- nodes and messages ---

    def _say(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def _deliver(self, source: int, target: int, request: Request, response: Response | None) -> None:
        text = request_text(request) if response is None else response_text(response)
        is_lost = (source, target) in self._cuts or target not in self._machines
        if text:
            self._say(f"{source}->{target} {text}{' (lost)' if is_lost else ''}")
        if is_lost:
            return
        if response is None:
            ticket = len(self._tickets)
            self._tickets[ticket] = (source, request)
            self._step(target, Requested(ticket, request))
        else:
            self._step(target, Answered(source, request, response))

    def _step(self, node: int, event: Event) -> None:
        machine = self._machines[node]
        before = (machine.role, machine.epoch, machine.leader_id)
        effects = machine.step(event, self.now)
        after = (machine.role, machine.epoch, machine.leader_id)
        if after != before:
            of = f" of {machine.leader_id}" if machine.role == "follower" else ""
            self._say(f"{node} is {machine.role}{of} in epoch {machine.epoch}, at {self.now} ms")
        self._persist(node, effects.persist)
        for send in effects.send:
            self._queue.append((node, send.node, send.request, None))
        for reply in effects.replies:
            source, request = self._tickets[reply.ticket]
            response = reply.response
            if isinstance(response, SnapshotResponse) and not response.error:
                data = self._disks[node].snapshots[response.snapshot]
                response = SnapshotResponse("", response.epoch, response.leader_id, response.snapshot, data)
            self._queue.append((node, source, request, response))
        for change in effects.apply:
            self._applied(node, change)

    def _persist(self, node: int, changes: list[Persist]) -> None:
        for change in changes:
            if isinstance(change, Truncate):
                self._say(f"{node} truncates to {change.end_offset}")
        self._disks[node].write(changes)
        self._disks[node].sync()

    def _applied(self, node: int, change: Any) -> None:
        match change:
            case Committed(start_offset, entries):
                self._say(f"{node} commits {start_offset}..{start_offset + len(entries)}")
            case LoadSnapshot(snapshot, _):
                self._say(f"{node} loads {tuple(snapshot)}")
            case Elected() | Deposed():
                self._say(f"{node} {type(change).__name__.lower()} in epoch {change.epoch}")
            case Lost() | Refused():
                self._say(f"{node} proposal {type(change).__name__.lower()}")


def replay(text: str) -> str:
    """Run the commands of a transcript; the transcript as it should be."""
    scenario = Scenario()
    for line in text.splitlines():
        if line.startswith("> "):
            scenario.command(line[2:])
        elif line.startswith("#") or not line:
            scenario.lines.append(line)
    return "\n".join(scenario.lines) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(replay(path.read_text(encoding="utf-8")), encoding="utf-8")
