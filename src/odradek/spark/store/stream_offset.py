"""How far a streaming query of a channel has come, as its checkpoint keeps it.

Every object belongs to one batch, by what never changes: the time in its key and the time at which the store took it.
A query first catches up: it reads what was stored before a moment, in the order of the records' time. Then it follows:
it reads what is stored from that moment on, in the order of storing. So what comes late is read when it comes, and a
batch that is repeated has the same objects, whatever was stored meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

FROM = "from"


@dataclass(frozen=True, slots=True)
class ChannelOffset:
    """All objects stored before `stored_ms` have been read; while it catches up, only their slices before `slice_ms`.

    The JSON form holds the names of its fields, so that a person can read a checkpoint.
    """

    channel_id: str
    stored_ms: int
    slice_ms: int | None = None  # None: it has caught up
    # Where the batch that ends here begins, if that is where the query began: Spark asks for the initial offset anew
    # when it repeats batch 0, and by then it would be another.
    start: ChannelOffset | None = None

    @property
    def place(self) -> ChannelOffset:
        """The same without what was before it."""
        return replace(self, start=None)

    def to_json(self) -> dict[str, Any]:
        """The form in the checkpoint."""
        document: dict[str, Any] = {"channel": self.channel_id, "stored": self.stored_ms}
        if self.slice_ms is not None:
            document["slice"] = self.slice_ms
        if self.start is not None:
            document[FROM] = self.start.place.to_json()
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> ChannelOffset:
        """Read what `to_json` wrote."""
        start = document.get(FROM)
        return ChannelOffset(
            document["channel"],
            document["stored"],
            document.get("slice"),
            None if start is None else ChannelOffset.from_json(start),
        )
