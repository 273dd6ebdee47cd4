"""What a handler is given beside its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek.apis.registry import Versions
from odradek.broker.broker import Broker
from odradek.broker.fetch_sessions import FetchSessions
from odradek.groups.coordinator import Coordinator
from odradek.wire.api import ApiKey


@dataclass(slots=True)
class AnswerRoom:
    """The memory that is left for answers which slow clients do not read."""

    left_bytes: int

    def bound(self, wanted_bytes: int) -> int:
        """How large an answer may become; a little is always allowed, or nobody would get anything."""
        return max(min(wanted_bytes, self.left_bytes), 1)


@dataclass(slots=True, frozen=True)
class Door:
    """What all connections of one listener share: the parts behind it and the address that clients are told."""

    broker: Broker
    groups: Coordinator
    sessions: FetchSessions
    room: AnswerRoom
    served: Mapping[ApiKey, Versions]
    host: str
    port: int
    is_broker: Callable[[str], bool] = lambda client_id: True  # whether a client of this name is one of the brokers


class Context:
    """One request's surroundings."""

    __slots__ = ("broker", "client_host", "client_id", "door", "groups", "host", "port", "version")

    def __init__(self, door: Door, version: int, client_id: str, client_host: str) -> None:
        self.door = door
        self.broker = door.broker
        self.groups = door.groups
        self.host = door.host
        self.port = door.port
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
