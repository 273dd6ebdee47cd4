"""Clusters of real brokers under load and faults: no acknowledged record is lost, doubled, moved or withheld.

Two short seeds every day; ODRADEK_TEST_PROFILE=long runs twenty of 30 s with five brokers, and
`make fault` any number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import PROFILE_VARIABLE
from tests.fault.cluster import ClusterProcesses
from tests.fault.history import in_words
from tests.fault.run import TOPIC, Options, run_seed

pytestmark = pytest.mark.xdist_group("cluster-faults")  # one cluster at a time

IS_LONG = os.environ.get(PROFILE_VARIABLE) == "long"
SEEDS = range(1, 21) if IS_LONG else range(1, 3)
OPTIONS = Options(seconds=30.0, brokers=5) if IS_LONG else Options(seconds=12.0, brokers=3)


class Forgetful(ClusterProcesses):
    """Its brokers lose the end of their logs when they are killed, and the note of how much had been flushed."""

    def kill(self, nodes: Iterable[int]) -> None:
        """Cut each log of the topic in half."""
        victims = list(nodes)
        super().kill(victims)
        for node in victims:
            for log in self.data(node).glob(f"{TOPIC}-*/*.log"):
                log.with_name("recovery-point").unlink(missing_ok=True)
                os.truncate(log, log.stat().st_size // 2)


def test_brokers_that_forget_are_found_out(tmp_path: Path) -> None:
    outcome = run_seed(1, Options(seconds=4.0, brokers=1, flavour="loopback"), tmp_path, Forgetful)
    assert "lost-write" in {finding.anomaly for finding in outcome.findings}, outcome.failures
    assert (outcome.directory / "findings.txt").read_text(encoding="utf-8").count("lost-write: ") > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises_through_faults(tmp_path: Path, seed: int) -> None:
    outcome = run_seed(seed, OPTIONS, tmp_path)
    assert outcome.is_clean, "\n".join([outcome.line(), *outcome.failures, *in_words(outcome.findings)])
    assert outcome.faults > 0
    assert outcome.acknowledged > 0
    assert outcome.consumed >= outcome.acknowledged
