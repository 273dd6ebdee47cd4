"""The lists of voters that other brokers have: all should have the same, and one that has not is named, once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

_REMEMBERED_MAX = 100

logger = logging.getLogger(__name__)


class VoterLists:
    """What others said, where it is not what we have."""

    def __init__(self, own: list[str], node_id: int) -> None:
        self.differing: dict[str, list[str]] = {}  # by who said so
        self._own = own
        self._node_id = node_id

    def introduce(self, body: dict[str, Any]) -> dict[str, Any]:
        """Say in a request or an answer which voters we know."""
        return body | {"voters": self._own, "sender_id": self._node_id}

    def note(self, body: Mapping[str, Any]) -> None:
        """Look at what another broker says; what is no list says nothing."""
        theirs, sender = body.get("voters"), str(body.get("sender_id"))
        if not isinstance(theirs, list):
            return
        said = [*map(str, theirs)]
        if sorted(said) == sorted(self._own):
            self.differing.pop(sender, None)
        elif self.differing.get(sender) != said and len(self.differing) < _REMEMBERED_MAX:
            self.differing[sender] = said
            logger.warning("broker %s has the voters %s, and this one has %s", sender, said, self._own)
