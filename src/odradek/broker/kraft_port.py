"""What the other brokers ask of this one by HTTP: its quorum, and the commands for the active controller.

Implements `edge.rest.kraft.KraftPort`. It decides nothing: the controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.broker import Broker


class KraftBroker:
    """A broker as the others see it."""

    def __init__(self, broker: Broker, secret: str | None) -> None:
        self.secret = secret
        self.is_started = False  # the quorum can be asked
        self._broker = broker
        self._controller = broker.metadata

    @property
    def cluster_id(self) -> str:
        """Empty while it is not known."""
        return self._controller.cluster_id

    async def receive(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request to the quorum."""
        return await self._controller.quorum.receive(name, body)

    async def command(
        self, command: str, args: Mapping[str, Any], on_close: Callable[[Callable[[], None]], None]
    ) -> dict[str, Any]:
        """Carry out a command if the active controller is here."""
        return await self._controller.serve(command, args, on_close)

    def status(self) -> Mapping[str, Any]:
        """How the quorum stands, and whose words these are."""
        return {
            "incarnation": self._broker.incarnation,
            **(self._controller.quorum.describe() if self.is_started else {}),
        }
