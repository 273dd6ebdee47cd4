"""What all tests share: Hypothesis profiles, and an environment without the developer's own settings.

ODRADEK_TEST_PROFILE=long (or `make test-long`) looks longer; the default, `quick`, is for every day.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

PROFILE_VARIABLE = "ODRADEK_TEST_PROFILE"

# No deadline and no complaint about slowness: a busy machine is no bug of ours.
_BUSY_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "quick", max_examples=50, deadline=None, print_blob=True, derandomize=False, suppress_health_check=_BUSY_MACHINE
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=1_000, stateful_step_count=200)
settings.load_profile(os.environ.get(PROFILE_VARIABLE, "quick"))


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("ODRADEK_") and variable != PROFILE_VARIABLE:
            monkeypatch.delenv(variable)
