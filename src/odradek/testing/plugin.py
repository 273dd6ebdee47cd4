"""The pytest plugin: `def test_orders(odradek_broker): ...` gets a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.testing.embedded import EmbeddedBroker, broker


@pytest.fixture
def odradek_broker() -> Iterator[EmbeddedBroker]:
    """A broker with nothing in it; `odradek_broker.bootstrap_servers` is its address."""
    with broker() as embedded:
        yield embedded


@pytest.fixture(scope="session")
def odradek_session_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run: quicker, but they see each other's topics."""
    with broker() as embedded:
        yield embedded
