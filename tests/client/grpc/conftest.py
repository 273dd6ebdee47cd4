"""A broker with a gRPC door for the clients' tests, in a process of its own: each test uses topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.process import BrokerProcess


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker, shared by all tests."""
    with BrokerProcess(tmp_path_factory.mktemp("grpc") / "data", grpc=True) as running:
        yield running


@pytest.fixture
def door(process: BrokerProcess) -> str:
    """Where its gRPC door is."""
    return process.grpc


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"topic_{uuid4().hex[:12]}"
