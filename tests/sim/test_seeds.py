"""Two thousand seeds of the simulation, in eight parts, and the same seed twice."""

from __future__ import annotations

import pytest

from tests.sim.cluster import Simulation

SEEDS = 2000
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_every_rule_holds_in_every_seed(part: int) -> None:
    size = SEEDS // PARTS
    answered = 0
    for seed in range(part * size, (part + 1) * size):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed} fails (python -m tests.sim --seeds 1 --first {seed})") from error
        answered += len(simulation.invariants.answered)
    assert answered > size  # or the quorum was never at work


def test_the_same_seed_gives_the_same_trace() -> None:
    traces = [[Simulation(seed).run() for seed in range(20)] for _ in range(2)]
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == 20
