"""Four clients, five codecs: whatever one sends, every other one reads as it was sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.conftest import needs
from tests.clients.drivers import DRIVERS, Driver
from tests.clients.sample import CODECS, as_seen


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sender", DRIVERS, ids=lambda driver: driver.name)
def test_what_one_client_sends_all_clients_read(
    bootstrap: str, new_name: Callable[[str], str], sender: Driver, codec: str
) -> None:
    needs(sender)
    topic = new_name("exchange")
    sender.send(bootstrap, topic, codec)
    for reader in DRIVERS:
        needs(reader)
        found = reader.read(bootstrap, topic, len(sender.samples))
        seen = [as_seen(got, sent) for got, sent in zip(found, sender.samples, strict=True)]
        expected = list(sender.samples)
        if reader.name == "kcat":  # it shows a header's bytes as text: binary ones are looked at by the others
            seen = [each._replace(headers=()) for each in seen]
            expected = [each._replace(headers=()) for each in expected]
        assert seen == expected, f"{reader.name} reads something else than {sender.name} sent"
