"""Who does the harm: a plan of faults drawn from a seed, and the one who carries it out on a cluster.

The plan is pure and the same for the same seed. A victim may be named by its role (whoever leads a partition, or the
quorum), which is looked up when its time has come. Never more than a minority suffers at once, except when all brokers
are killed together, or lose their power together, and with it what they had not synced. Each step ends with everything
healed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tests.fault.cluster import ClusterProcesses

PROCESS_KINDS = ("kill", "pause", "stop")
NETWORK_KINDS = ("isolate", "deafen", "mute", "cut")
KILL_ALL = "kill-all"
POWER = "power"
ALL_KINDS = (KILL_ALL, POWER)  # no broker is spared
KINDS = (*PROCESS_KINDS, *ALL_KINDS, *NETWORK_KINDS)
QUIET_MS = (500, 2_000)  # between two steps
HOLD_MS = (500, 5_000)  # of one step
WATCH_SECONDS = 0.1


class Victim(NamedTuple):
    """A broker by number, or the leader of a partition, or of the quorum."""

    role: str  # node, leader, controller
    number: int


class Fault(NamedTuple):
    """One harm to one broker."""

    kind: str
    victim: Victim
    clients: bool  # whether a cut is also between it and the clients
    other: int  # the other end of a `cut`: how many brokers further in the row
    seed: int = 0  # of what a power cut takes; the victim loses something, the others by chance

    def __str__(self) -> str:
        """As the log shows it."""
        return f"{self.kind} {self.victim.role} {self.victim.number}" + (" and clients" if self.clients else "")


class Step(NamedTuple):
    """Wait, do harm, hold, heal."""

    quiet_ms: int
    faults: tuple[Fault, ...]
    hold_ms: int


def draw(
    seed: int,
    *,
    nodes: Sequence[int],
    partitions: int,
    total_ms: int,
    can_cut: bool,
    can_lose: bool = False,
    only: Collection[str] = (),
) -> list[Step]:
    """The plan of a seed: every kind has its turn before one comes again. With `only`, just those kinds."""
    chance = random.Random(seed)
    whole = ALL_KINDS if can_lose else (KILL_ALL,)
    kinds = [*PROCESS_KINDS, *whole, *(NETWORK_KINDS if can_cut else ())]
    minority_max = (len(nodes) - 1) // 2
    if not minority_max:
        kinds = list(whole)
    if only:
        kinds = [kind for kind in kinds if kind in only]
        assert kinds, f"nothing of {', '.join(only)} can be done here"
    steps: list[Step] = []
    deck: list[str] = []
    left_ms, hold_ms_max = total_ms, max(HOLD_MS[0], min(HOLD_MS[1], total_ms // 4))
    while True:
        if not deck:
            deck = chance.sample(kinds, len(kinds))
        quiet_ms, hold_ms = chance.randint(*QUIET_MS), chance.randint(HOLD_MS[0], hold_ms_max)
        left_ms -= quiet_ms + hold_ms
        if left_ms < 0 and steps:
            return steps
        kind = deck.pop()
        faults = [_fault(chance, kind, nodes, partitions)]
        if kind not in ALL_KINDS:
            others = [one for one in kinds if one not in ALL_KINDS]
            more = chance.randint(0, minority_max - 1)
            faults += [_fault(chance, chance.choice(others), nodes, partitions) for _ in range(more)]
        steps.append(Step(quiet_ms, tuple(faults), hold_ms))


def _fault(chance: random.Random, kind: str, nodes: Sequence[int], partitions: int) -> Fault:
    role = chance.choice(("node", "leader", "leader", "controller"))
    numbers = {"node": list(nodes), "leader": list(range(partitions)), "controller": [0]}
    clients = kind in ("isolate", "deafen", "mute") and chance.random() < 0.5
    victim, other = Victim(role, chance.choice(numbers[role])), chance.randrange(1, max(2, len(nodes)))
    return Fault(kind, victim, clients, other, chance.getrandbits(32) if kind == POWER else 0)


class Nemesis:
    """Carries a plan out; `find` tells which broker a victim is now, None when nobody knows."""

    def __init__(
        self,
        cluster: ClusterProcesses,
        find: Callable[[Victim], int | None],
        note: Callable[[str], None],
    ) -> None:
        self.faults = 0
        self._cluster = cluster
        self._find = find
        self._note = note
        self._pause = threading.Event()

    def run(self, steps: Sequence[Step]) -> None:
        """Step after step; raises when a broker ends that nobody ended."""
        for step in steps:
            self._hold(step.quiet_ms)
            victims = self._victims(step.faults)
            for fault, node in zip(step.faults, victims, strict=True):
                self._note(f"{fault}: broker {node}")
                self._harm(fault, node)
                self.faults += 1
            self._hold(step.hold_ms)
            begin = time.monotonic()
            self._cluster.heal()
            self._note(f"healed within {time.monotonic() - begin:.1f} s")

    def _hold(self, milliseconds: int) -> None:
        until = time.monotonic() + milliseconds / 1000
        while (left := until - time.monotonic()) > 0:
            self.look()
            self._pause.wait(min(left, WATCH_SECONDS))

    def look(self) -> None:
        """Nobody may have ended but by our hand."""
        died = self._cluster.died()
        assert not died, "; ".join(died)

    def _victims(self, faults: Sequence[Fault]) -> list[int]:
        """A broker for each fault, none twice."""
        nodes, chosen = self._cluster.nodes, list[int]()
        for fault in faults:
            found = fault.victim.number if fault.victim.role == "node" else self._find(fault.victim)
            at = nodes.index(found) if found in nodes else fault.victim.number % len(nodes)
            row = nodes[at:] + nodes[:at]
            chosen.append(next(node for node in row if node not in chosen))
        return chosen

    def _harm(self, fault: Fault, node: int) -> None:
        cluster = self._cluster
        match fault.kind:
            case "kill":
                cluster.kill([node])
            case "stop":
                cluster.brokers[node].stop()
            case "pause":
                cluster.brokers[node].pause()
            case "isolate":
                cluster.isolate(node, clients=fault.clients)
            case "deafen":
                cluster.deafen(node, clients=fault.clients)
            case "mute":
                cluster.mute(node, clients=fault.clients)
            case "cut":
                nodes = cluster.nodes
                cluster.network.cut(node, nodes[(nodes.index(node) + fault.other) % len(nodes)])
            case "kill-all":
                cluster.kill(cluster.nodes)
            case "power":
                self._cut_power(fault, node)
            case _:
                raise AssertionError(f"no such fault: {fault.kind}")

    def _cut_power(self, fault: Fault, victim: int) -> None:
        """At all of them at once; one whose drive has a battery keeps what it had not synced."""
        chance = random.Random(fault.seed)
        self._cluster.kill(self._cluster.nodes)
        for node in self._cluster.nodes:
            seed, has_battery = chance.getrandbits(32), chance.random() < 0.3
            if node == victim or not has_battery:
                self._note(f"broker {node} {self._cluster.lose_unsynced(node, seed)}")
