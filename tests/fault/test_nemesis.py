"""The plan of faults is the seed's, keeps within a minority, and is carried out as drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.cluster import ClusterProcesses
from tests.fault.echo import echo_command
from tests.fault.nemesis import (
    ALL_KINDS,
    KILL_ALL,
    NETWORK_KINDS,
    POWER,
    PROCESS_KINDS,
    Fault,
    Nemesis,
    Step,
    Victim,
    draw,
)
from tests.fault.network import LoopbackNetwork
from tests.fault.unsynced import Loss

SEEDS = range(200)
NODES = [1, 2, 3, 4, 5]


def plan(seed: int, *, nodes: list[int] | None = None, total_ms: int = 30_000, can_cut: bool = True) -> list[Step]:
    return draw(seed, nodes=nodes or NODES, partitions=4, total_ms=total_ms, can_cut=can_cut)


def test_a_seed_is_a_plan() -> None:
    assert plan(7) == plan(7)
    assert len({str(plan(seed)) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("nodes", [[1, 2, 3], NODES])
def test_at_most_a_minority_suffers_unless_all_do(nodes: list[int]) -> None:
    sizes = set()
    for seed in SEEDS:
        for step in plan(seed, nodes=nodes):
            assert (KILL_ALL in [fault.kind for fault in step.faults]) <= (len(step.faults) == 1)
            sizes.add(len(step.faults))
    assert sizes == set(range(1, (len(nodes) - 1) // 2 + 1))


def test_every_kind_has_its_turn_and_every_role_is_hit() -> None:
    faults = [fault for seed in SEEDS for step in plan(seed) for fault in step.faults]
    assert {fault.kind for fault in faults} == {*PROCESS_KINDS, *NETWORK_KINDS, KILL_ALL}
    assert {fault.victim for fault in faults if fault.victim.role == "leader"} == {
        Victim("leader", number) for number in range(4)
    }
    assert {fault.victim.role for fault in faults} == {"node", "leader", "controller"}


def test_a_plan_is_bounded_and_never_empty() -> None:
    for seed in SEEDS:
        assert plan(seed, total_ms=100)
        assert sum(step.quiet_ms + step.hold_ms for step in plan(seed)) <= 30_000


def test_without_namespaces_nothing_is_cut() -> None:
    kinds = {fault.kind for seed in SEEDS for step in plan(seed, can_cut=False) for fault in step.faults}
    assert kinds == {*PROCESS_KINDS, KILL_ALL}


def test_a_lone_broker_can_only_be_killed() -> None:
    assert {fault.kind for seed in SEEDS for step in plan(seed, nodes=[1]) for fault in step.faults} == {KILL_ALL}


@pytest.mark.parametrize("nodes", [[1], NODES])
def test_where_writes_can_be_lost_power_is_cut_at_all_of_them(nodes: list[int]) -> None:
    plans = [draw(seed, nodes=nodes, partitions=4, total_ms=30_000, can_cut=False, can_lose=True) for seed in SEEDS]
    steps = [step for steps in plans for step in steps]
    assert {step.faults[0].kind for step in steps} >= set(ALL_KINDS)
    cuts = [step for step in steps if POWER in [fault.kind for fault in step.faults]]
    assert all(len(step.faults) == 1 for step in cuts)
    assert len({step.faults[0].seed for step in cuts}) == len(cuts)


def test_a_plan_can_be_of_some_kinds_only() -> None:
    steps = draw(1, nodes=NODES, partitions=4, total_ms=30_000, can_cut=False, can_lose=True, only=["power", "stop"])
    assert {fault.kind for step in steps for fault in step.faults} == {"power", "stop"}
    with pytest.raises(AssertionError, match="nothing of power can be done here"):
        draw(1, nodes=NODES, partitions=4, total_ms=30_000, can_cut=False, only=["power"])


class Drive(ClusterProcesses):
    """Notes whose power was cut while it was down."""

    def __init__(self, directory: Path, nodes: list[int]) -> None:
        super().__init__(directory, LoopbackNetwork(), nodes, command=echo_command)
        self.lost: list[tuple[int, int]] = []

    def lose_unsynced(self, node: int, seed: int) -> Loss:
        assert not self.running()
        self.lost.append((node, seed))
        return Loss(1, 2, 3, 4)


def test_a_power_cut_is_the_seeds(tmp_path: Path) -> None:
    notes: list[str] = []
    with Drive(tmp_path, [1, 2, 3]) as cluster:
        nemesis = Nemesis(cluster, lambda _: None, notes.append)
        nemesis.run([Step(0, (Fault(POWER, Victim("node", 2), False, 1, seed),), 0) for seed in (1, 2, 3, 1)])
        assert cluster.running() == [1, 2, 3]
    lost = {node for node, _ in cluster.lost}
    assert lost == {1, 2, 3}, "others than the victim, too"
    assert [node for node, _ in cluster.lost].count(2) == 4, "the victim each time"
    again = [at for at, one in enumerate(cluster.lost) if one == cluster.lost[0]]
    assert cluster.lost[again[-1] :] == cluster.lost[: len(cluster.lost) - again[-1]], "the same seed, the same loss"
    assert len(again) == 2
    assert notes.count("power node 2: broker 2") == 4
    assert "broker 2 lost 1 of 3 unsynced writes, 3 of 7 unsynced names" in notes


def test_the_plan_is_carried_out_and_healed(tmp_path: Path) -> None:
    notes: list[str] = []
    with ClusterProcesses(tmp_path, LoopbackNetwork(), [1, 2, 3], command=echo_command) as cluster:
        nemesis = Nemesis(cluster, lambda victim: 3 if victim.role == "leader" else None, notes.append)
        leader, controller = Victim("leader", 0), Victim("controller", 0)
        nemesis.run(
            [
                Step(0, (Fault("kill", leader, False, 1), Fault("pause", leader, False, 1)), 10),
                Step(0, (Fault("stop", controller, False, 1),), 10),
                Step(0, (Fault(KILL_ALL, Victim("node", 2), False, 1),), 10),
            ]
        )
        assert cluster.running() == [1, 2, 3]
        assert {node: broker.starts for node, broker in cluster.brokers.items()} == {1: 3, 2: 2, 3: 3}
    assert nemesis.faults == 4
    done = [note for note in notes if not note.startswith("healed")]
    assert done == [
        "kill leader 0: broker 3",
        "pause leader 0: broker 1",  # the leader is a victim already: the next in the row
        "stop controller 0: broker 1",  # nobody knows the controller
        "kill-all node 2: broker 2",
    ]


def test_a_broker_that_ends_by_itself_ends_the_run(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, LoopbackNetwork(), [1], command=echo_command) as cluster:
        cluster.brokers[1].process.kill()
        cluster.brokers[1].process.wait(5.0)
        with pytest.raises(AssertionError, match="broker 1 ended with status -9"):
            Nemesis(cluster, lambda _: None, print).run([Step(50, (), 0)])
