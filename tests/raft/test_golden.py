"""The classic cases as transcripts: each file in golden/ replays word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.scenario import replay

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def test_the_classic_cases_are_there() -> None:
    assert {path.stem for path in GOLDEN} >= {
        "split_vote", "figure_8", "diverging_log", "returning_leader", "pre_vote", "check_quorum", "snapshot_catch_up",
        "one_way_cut",
    }  # fmt: skip


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_scenario_goes_as_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert replay(text) == text
