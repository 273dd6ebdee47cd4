"""A broker for the commands' tests, shared by all of them: each uses topics and groups of its own.

It is our own, or any Kafka at the address in KAFKA_BOOTSTRAP_SERVERS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from odradek import testing
from tests.cli.commands import Cli


@pytest.fixture(scope="session")
def broker_address() -> Iterator[str]:
    """Where a broker listens."""
    foreign = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if foreign:
        yield foreign
        return
    with testing.broker() as own:
        yield own.bootstrap_servers


@pytest.fixture
def cli(broker_address: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs commands in this process, against the broker."""
    monkeypatch.setenv("ODRADEK_BROKER", broker_address)
    return Cli(capfdbinary, monkeypatch, broker_address)


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"topic-{uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """The name of a group that no other test uses."""
    return f"group-{uuid4().hex[:12]}"
