"""Clusters of real brokers under load and faults: no acknowledged record is lost, doubled, moved or withheld.

Two short seeds every day; ODRADEK_TEST_PROFILE=long runs twenty of 30 s with five brokers, and
`make fault` any number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import PROFILE_VARIABLE
from tests.fault.cluster import ClusterProcesses
from tests.fault.history import in_words
from tests.fault.run import TOPIC, Options, run_seed
from tests.fault.unsynced import NoShimError, compile_shim

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


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What notes unsynced writes; skips where it cannot be made."""
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NoShimError as error:
        pytest.skip(f"unsynced writes cannot be lost here: {error}")


def test_brokers_that_do_not_flush_are_found_out_by_a_power_cut(shim: Path, tmp_path: Path) -> None:
    settings = {"flush": "os"}
    outcome = run_seed(1, Options(3.0, 1, "loopback", settings, shim, only=["power"]), tmp_path)
    assert "lost-write" in {finding.anomaly for finding in outcome.findings}, outcome.failures


@pytest.mark.parametrize("seed", SEEDS if IS_LONG else range(1, 2))
def test_power_cuts_take_no_acknowledged_record(shim: Path, tmp_path: Path, seed: int) -> None:
    seconds = OPTIONS.seconds if IS_LONG else 5.0
    outcome = run_seed(seed, replace(OPTIONS, seconds=seconds, shim=shim, only=["power"]), tmp_path)
    assert outcome.is_clean, "\n".join([outcome.line(), *outcome.failures, *in_words(outcome.findings)])
    assert outcome.faults > 0
    assert outcome.acknowledged > 0


def test_brokers_that_forget_are_found_out(tmp_path: Path) -> None:
    outcome = run_seed(1, Options(seconds=4.0, brokers=1, flavour="loopback"), tmp_path, Forgetful)
    assert "lost-write" in {finding.anomaly for finding in outcome.findings}, outcome.failures
    assert (outcome.directory / "findings.txt").read_text(encoding="utf-8").count("lost-write: ") > 1


def optional_shim(directory: Path) -> Path | None:
    with suppress(NoShimError):
        return compile_shim(directory)
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises_through_faults(tmp_path: Path, seed: int) -> None:
    outcome = run_seed(seed, replace(OPTIONS, shim=optional_shim(tmp_path)), tmp_path)
    assert outcome.is_clean, "\n".join([outcome.line(), *outcome.failures, *in_words(outcome.findings)])
    assert outcome.faults > 0
    assert outcome.acknowledged > 0
    assert outcome.consumed >= outcome.acknowledged
