"""What the committed metadata log is for: whoever takes its records in, as the quorum hands them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from odradek.controller.image import MetadataRecord


class Applier(Protocol):
    """What the committed log is for. Called on the event loop, in order; an exception stops the broker."""

    def applied(self, offset: int, records: Sequence[MetadataRecord]) -> None:
        """These are committed; the first stands at `offset`."""

    def loaded(self, image: Mapping[str, Any], offset: int) -> None:
        """Forget everything and take this image of all entries below `offset`."""

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Another node leads, or none (-1)."""

    def elected(self, epoch: int) -> None:
        """We lead, and have applied all that went before."""

    def deposed(self) -> None:
        """We lead no longer."""

    def snapshot(self) -> dict[str, Any]:
        """The image of all that was applied so far."""
