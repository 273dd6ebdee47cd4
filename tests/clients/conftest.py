"""One broker for the tests of a module, in this process; topics have names of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from odradek.testing import EmbeddedBroker, broker
from tests.clients.drivers import Driver, has_kcat

KCAT_REQUIRED = "ODRADEK_TEST_KCAT"  # set where kcat must be there: then its absence is a failure, not a skip


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    with broker({"group.initial.rebalance.delay.ms": "50"}) as embedded:
        yield embedded


@pytest.fixture
def bootstrap(server: EmbeddedBroker) -> str:
    return server.bootstrap_servers


@pytest.fixture(scope="session")
def new_name() -> Callable[[str], str]:
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}-{next(numbers)}"


def needs(driver: Driver) -> None:
    """Skip a test of kcat where there is none."""
    if driver.name == "kcat" and not has_kcat() and not os.environ.get(KCAT_REQUIRED):
        pytest.skip("kcat is not installed: apt-get install kcat")
