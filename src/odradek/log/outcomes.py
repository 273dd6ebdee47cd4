"""What a log gives back to those who change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.log.segment import Segment
from odradek.log.state import LogState
from odradek.model import Offset


class Appended(NamedTuple):
    """Where batches went."""

    base_offset: Offset
    last_offset: Offset
    append_time_ms: int  # -1 unless the topic stamps records itself
    duplicate: bool = False  # an idempotent producer sent it again: nothing was written


@dataclass(slots=True)
class Removal:
    """Segments that the log has let go. `run` may be called in another thread; until then they are only unlinked."""

    state: LogState
    segments: list[Segment]
    earlier: list[Removal]  # they go first: what is left must have no hole
    done: bool = False

    def run(self) -> None:
        """Make the new log start durable, then remove the files, the oldest first. Once is enough."""
        with self.state.lock:
            for removal in self.earlier:
                removal.run()
            self.earlier = []
            if not self.done and not self.state.abandoned:
                self.state.save()
                for segment in self.segments:
                    segment.delete()
            self.done = True
