"""The faults of a simulation, drawn by chance: crashes, cuts, bad weather, snapshots, false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from odradek.raft.messages import PeerLost, Resign

if TYPE_CHECKING:
    from tests.sim.cluster import Simulation
    from tests.sim.node import SimNode


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network and the disks are."""

    loss: float
    double: float
    delay_ms: int  # the longest usual delay
    slow: float  # how often a message takes much longer than that
    slow_flush: float = 0.2

    @classmethod
    def drawn(cls, chance: Random) -> Weather:
        return cls(
            loss=chance.choice((0.0, 0.01, 0.05, 0.2)),
            double=chance.choice((0.0, 0.02, 0.3)),
            delay_ms=chance.choice((2, 5, 20)),
            slow=chance.choice((0.0, 0.02, 0.1)),
            slow_flush=chance.choice((0.1, 0.3, 0.8)),
        )


class Faults:
    """Strikes every now and then until the simulation is healed."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._pause_ms = simulation.chance.choice((30, 80, 150))
        self._spite = simulation.chance.choice((0.0, 0.1, 0.3))  # how often a node dies at a bad moment
        self._kinds = (
            (self._crash, 3),
            (self._crash_leader, 3),
            (self._blink, 4),
            (self._crash_all, 1),
            (self._isolate, 2),
            (self._isolate_leader, 3),
            (self._one_way, 3),
            (self._split, 2),
            (self._mend, 4),
            (self._change_weather, 1),
            (self._snapshot, 4),
            (self._false_alarm, 1),
            (self._alarm_all, 4),
            (self._resign, 1),
        )

    def strike(self) -> None:
        sim = self._sim
        if sim.healed:
            return
        kinds, weights = zip(*self._kinds, strict=True)
        sim.chance.choices(kinds, weights)[0]()
        sim.at(sim.chance.randrange(5, 2 * self._pause_ms), self.strike)

    def _anyone(self) -> SimNode:
        return self._sim.nodes[self._sim.chance.choice(tuple(self._sim.nodes))]

    def _leader(self) -> SimNode:
        leaders = self._sim.leaders()
        return self._sim.chance.choice(leaders) if leaders else self._anyone()

    def _crash(self) -> None:
        self._down(self._anyone(), self._sim.chance.randrange(20, 500))

    def _crash_leader(self) -> None:
        self._down(self._leader(), self._sim.chance.randrange(5, 300))

    def _blink(self) -> None:
        self._down(self._anyone(), self._sim.chance.randrange(1, 20))

    def _crash_all(self) -> None:
        for node in self._sim.nodes.values():
            self._down(node, self._sim.chance.randrange(1, 60))

    def _down(self, node: SimNode, for_ms: int) -> None:
        self._sim.crash(node)
        self._sim.at(for_ms, self._sim.start, node)

    def _isolate(self) -> None:
        self._cut_off(self._anyone().id)

    def _isolate_leader(self) -> None:
        self._cut_off(self._leader().id)

    def _cut_off(self, node: int) -> None:
        """Cut a node off: both ways, or so that it only hears, or so that only it is heard."""
        ways = self._sim.chance.choice(((True, True), (True, False), (False, True)))
        for other in self._sim.nodes:
            self._sim.cuts.update(
                way for way, is_cut in zip(((node, other), (other, node)), ways, strict=True) if is_cut
            )

    def _one_way(self) -> None:
        self._sim.cuts.add((self._leader().id, self._anyone().id))
        self._sim.cuts.add((self._anyone().id, self._anyone().id))

    def _split(self) -> None:
        """Two sides that do not hear each other."""
        nodes = list(self._sim.nodes)
        side = set(self._sim.chance.sample(nodes, self._sim.chance.choice((1, 2, 2))))
        self._sim.cuts = {(a, b) for a in nodes for b in nodes if (a in side) != (b in side)}

    def _mend(self) -> None:
        self._sim.cuts.clear()

    def _change_weather(self) -> None:
        self._sim.weather = Weather.drawn(self._sim.chance)

    def _snapshot(self) -> None:
        for node in (self._leader(), self._anyone()):
            taken = node.take_snapshot() if node.machine is not None else None
            if taken is not None:
                self._sim.handle(node.id, taken)

    def _false_alarm(self) -> None:
        self._sim.handle(self._anyone().id, PeerLost(self._leader().id))

    def _alarm_all(self) -> None:
        """The leader dies, and all notice at the same moment: several may stand."""
        leader = self._leader()
        self._down(leader, self._sim.chance.randrange(5, 300))
        for node in self._sim.nodes:
            self._sim.handle(node, PeerLost(leader.id))

    def saved(self, node: SimNode) -> None:
        """A node has just voted, or begun to lead or to follow: a bad moment to die."""
        sim = self._sim
        if not sim.healed and sim.chance.random() < self._spite:
            sim.at(sim.chance.randrange(1, 15), self._down, node, sim.chance.randrange(1, 4))

    def _resign(self) -> None:
        self._sim.handle(self._leader().id, Resign())
