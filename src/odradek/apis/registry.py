"""What an API is made of. Which ones are served stands in `table.py`, and ApiVersions answers from that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from odradek.wire.api import FLEXIBLE_SINCE, ApiKey
from odradek.wire.schema import Message

# None: the client asked for no answer (Produce with acks=0).
Answer: TypeAlias = "Message | None"
Handler: TypeAlias = "Callable[[Any, Any], Answer | Awaitable[Answer]]"


class Versions(NamedTuple):
    """The versions of an API that are served, both ends included."""

    low: int
    high: int


class Api(NamedTuple):
    """One API as it is served."""

    key: ApiKey
    versions: Versions
    request: type[Message]
    handle: Handler

    @property
    def flexible_since(self) -> int:
        """The first version with tagged fields in its headers; beyond all versions if there is none."""
        since = FLEXIBLE_SINCE[self.key]
        return self.versions.high + 1 if since is None else since
