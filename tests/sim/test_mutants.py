"""Each mistake is found by the simulation within a bounded number of seeds, so the simulation can fail."""

from __future__ import annotations

import pytest

from odradek.raft.machine import Raft
from tests.sim.cluster import Simulation
from tests.sim.disk import SimDisk
from tests.sim.mutants import DISKS, MACHINES

SEEDS_MAX = 200


def is_found(machine: type[Raft], disk: type[SimDisk]) -> bool:
    for seed in range(SEEDS_MAX):
        try:
            Simulation(seed, machine, disk).run()
        except Exception:  # a broken rule, or the machine itself that noticed
            return True
    return False


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_machine_with_a_mistake_is_found(machine: type[Raft]) -> None:
    assert is_found(machine, SimDisk)


@pytest.mark.parametrize("disk", DISKS, ids=lambda disk: disk.__name__)
def test_a_disk_with_a_mistake_is_found(disk: type[SimDisk]) -> None:
    assert is_found(Raft, disk)


def test_there_are_enough_mistakes() -> None:
    assert len({*MACHINES, *DISKS}) >= 20
