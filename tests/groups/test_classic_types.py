"""The one table of legal transitions."""

from __future__ import annotations

from itertools import product

import pytest

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import TRANSITIONS, State
from tests.groups.classics import CONFIG

LEGAL = {
    (State.EMPTY, State.PREPARING),
    (State.EMPTY, State.DEAD),
    (State.PREPARING, State.COMPLETING),
    (State.PREPARING, State.EMPTY),
    (State.PREPARING, State.DEAD),
    (State.COMPLETING, State.STABLE),
    (State.COMPLETING, State.PREPARING),
    (State.COMPLETING, State.DEAD),
    (State.STABLE, State.PREPARING),
    (State.STABLE, State.DEAD),
}


def test_the_table_names_every_state() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_only_the_transitions_of_the_table_happen(before: State, after: State) -> None:
    group = ClassicGroup("g", CONFIG, 0)
    group.state = before
    if (before, after) in LEGAL:
        group.become(after, 7)
        assert (group.state, group.state_since_ms) == (after, 7)
    else:
        with pytest.raises(AssertionError):
            group.become(after, 7)


def test_states_are_spelled_as_kafkas_tools_show_them() -> None:
    assert [str(state) for state in State] == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
