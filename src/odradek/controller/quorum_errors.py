"""How the quorum says no. Each door maps the code once; NOT_CONTROLLER is HTTP's 421."""

from __future__ import annotations

from odradek.wire.errors import ErrorCode, PeerError


class NotLeaderError(PeerError):
    """Another node leads, or none; nothing was done."""

    def __init__(self, leader_id: int) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, f"leader is {leader_id}, can't accept")
        self.leader_id = leader_id


class QuorumStoppedError(PeerError):
    """Our part of the quorum has stopped, or its disk has failed; nothing was done."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is stopping, or its disk has failed")


class LostError(Exception):
    """Leadership was lost before the change was committed: it may be gone, or be committed by the next leader yet."""

    def __init__(self) -> None:
        super().__init__("the leader changed before a majority had the change; it may be made yet, or not")
