"""What a log is put together from; `recovery.open_log` does it."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.clock import Clock
from odradek.disk.interface import Disk
from odradek.log.epochs import LeaderEpochs
from odradek.log.producers import Producers
from odradek.log.segment import Backend
from odradek.log.snapshots import ProducerSnapshots
from odradek.log.state import LogState


@dataclass(slots=True)
class Parts:
    """The parts of one log."""

    disk: Disk
    clock: Clock
    backend: Backend
    state: LogState
    epochs: LeaderEpochs
    producers: Producers
    snapshots: ProducerSnapshots
