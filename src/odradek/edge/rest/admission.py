"""Topics that only registered clients may use by REST (`clients.required`): the same question at every door."""

from __future__ import annotations

from typing import Protocol

from odradek.edge.rest.errors import problem_of
from odradek.edge.routing import Request
from odradek.wire.errors import PeerError

KEY_HEADER = "client_key"


class TopicClients(Protocol):
    """Who may use a topic; `broker.clients.Clients` is what there is."""

    def is_required(self, topic: str) -> bool:
        """Say whether only registered clients may use a topic; False for one that does not exist."""

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        """Refuse whoever is not registered with a topic."""


async def admit(clients: TopicClients, topic: str, request: Request) -> None:
    """Let pass whoever may use a topic; 401 or 429 for others.

    What another broker passes on is asked for its key again: without a secret anybody may say that he is one.
    """
    if clients.is_required(topic):
        try:
            await clients.check(topic, request.headers.get(KEY_HEADER), request.peer)
        except PeerError as error:
            raise problem_of(error) from None


def key_of(request: Request) -> dict[str, str]:
    """The header that goes with a request which is passed on."""
    key = request.headers.get(KEY_HEADER)
    return {} if key is None else {KEY_HEADER: key}
