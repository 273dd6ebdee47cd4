"""Carries out what the Raft machine wants kept. Runs in a thread."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.controller.files import MetadataFiles
from odradek.raft.messages import Append, CutBefore, InstallSnapshot, Persist, SaveQuorumState, Truncate


def persist(files: MetadataFiles, wanted: Sequence[Persist]) -> None:
    """Write all in order, then make it durable with one fsync. Nothing of it may be told to anybody before."""
    last_state = next((effect for effect in reversed(wanted) if isinstance(effect, SaveQuorumState)), None)
    has_appended = False
    for effect in wanted:
        match effect:
            case SaveQuorumState():
                if effect is last_state:  # no word of the earlier ones has left
                    files.save_quorum_state(effect.state)
            case Append():
                files.append(effect.start_offset, effect.entries)
                has_appended = True
            case Truncate():
                files.truncate(effect.end_offset)
            case InstallSnapshot():
                files.install_snapshot(effect.snapshot, effect.data)
            case CutBefore():
                files.cut_before(effect.offset)
    if has_appended:
        files.sync()
