"""`python -m tests.sim --seeds N [--first K]`: run seeds, say how it goes, and name the first seed that fails."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.cluster import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    started = time.monotonic()
    commits = 0
    for number in range(arguments.seeds):
        seed = arguments.first + number
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            print(f"seed {seed} fails at {simulation.now} ms: {type(error).__name__}: {error}")
            print(f"again: python -m tests.sim --seeds 1 --first {seed}")
            return 1
        commits += len(simulation.invariants.committed)
        if (number + 1) % 500 == 0 or number + 1 == arguments.seeds:
            print(f"{number + 1} seeds, {commits} commits, {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
