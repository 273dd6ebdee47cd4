"""What the tests of one module share: a broker with all its doors and a channel to it, or three of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.grpc.doors import Doors
from tests.grpc.three import Three, three_brokers
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for the tests of one module."""
    with BrokerProcess(tmp_path_factory.mktemp("grpc") / "data", http=True, grpc=True) as running:
        yield running


@pytest.fixture(scope="module")
def doors(broker: BrokerProcess) -> Iterator[Doors]:
    """A channel to it."""
    with Doors(broker.grpc) as connected:
        yield connected


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """Three brokers for the tests of one module."""
    with three_brokers(tmp_path_factory.mktemp("three")) as started:
        yield started
