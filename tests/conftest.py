"""What all tests share: Hypothesis profiles, and an environment without the developer's own settings.

ODRADEK_TEST_PROFILE=long (or `make test-long`) looks longer; the default, `quick`, is for every day.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.s3 import S3Server

PROFILE_VARIABLE = "ODRADEK_TEST_PROFILE"

# Programs that do not come from PyPI, by the folder or file of the tests that run them.
_CLIENTS = {"katar": "curl", "rama": "curl", "tiered": "kcat", "test_readme.py": "curl"}

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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): tests that run in the same worker, one after the other")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the S3 server run in one worker, so that one server serves them; those of Spark stay in theirs.

    Tests with a client that is not on this machine are skipped.
    """
    missing = {part: client for part, client in _CLIENTS.items() if shutil.which(client) is None}
    for item in items:
        for part in missing.keys() & set(item.path.parts):
            item.add_marker(
                pytest.mark.skip(reason=f"{missing[part]} is not installed: apt-get install {missing[part]}")
            )
        names = getattr(item, "fixturenames", ())
        if "s3" in names and "spark" not in names and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("s3"))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server; who stops it starts it again. Take a prefix of your own from `s3.new_url()`."""
    from tests.s3 import S3Server  # it needs obstore, which not every run of tests does

    with pytest.MonkeyPatch.context() as environment:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(variable)  # the developer's own account has no business here
        with S3Server(tmp_path_factory.mktemp("s3")) as server:
            yield server
