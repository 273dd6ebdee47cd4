"""A broker for the client's tests: our own, or any Kafka at the address in KAFKA_BOOTSTRAP_SERVERS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol
from uuid import uuid4

import pytest

from odradek import testing

FOREIGN = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")


class Broker(Protocol):
    """What the tests need of a broker."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""


class ForeignBroker:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running broker, shared by all tests: each uses topics of its own."""
    if FOREIGN:
        yield ForeignBroker(FOREIGN)
    else:
        with testing.broker() as own:
            yield own


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"topic-{uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """The name of a group that no other test uses."""
    return f"group-{uuid4().hex[:12]}"
