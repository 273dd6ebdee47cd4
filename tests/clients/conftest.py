"""One broker for the tests of a module, in this process; topics have names of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from odradek.testing import EmbeddedBroker, broker
from tests.clients.drivers import Driver, has_kcat


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
    if driver.name == "kcat" and not has_kcat():
        pytest.skip("kcat is not installed: apt-get install kcat")
