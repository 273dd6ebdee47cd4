"""Incremental fetch sessions (KIP-227): a client names its partitions once and is told only what has changed.

The cache is bounded; a client that gets no place in it fetches without a session, which always works.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from odradek.wire.errors import ErrorCode, PeerError

NO_SESSION = 0
FINAL_EPOCH = -1  # no session, or the end of one
INITIAL_EPOCH = 0  # begin one
_EPOCH_MAX = 2**31 - 1
_EVICT_IDLE_MS = 120_000

# A topic's name up to Fetch version 12, its id from then on; and the partition's number.
PartitionKey: TypeAlias = tuple[str | bytes, int]


class Wanted(NamedTuple):
    """Where one partition is to be read, and how much."""

    offset: int
    max_bytes: int
    leader_epoch: int
    log_start: int
    last_epoch: int = -1  # of the last record that a follower has


@dataclass(slots=True)
class FetchSession:
    """One client's partitions, in the order in which they are read."""

    id: int
    epoch: int
    used_ms: int
    wanted: dict[PartitionKey, Wanted] = field(default_factory=dict)
    told: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)  # the watermark and log start heard last

    def read_last(self, keys: Iterable[PartitionKey]) -> None:
        """Let the others go first next time: a bounded answer must not starve them."""
        for key in keys:
            if key in self.wanted:
                self.wanted[key] = self.wanted.pop(key)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # the least recently used first
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, now_ms: int, wanted: dict[PartitionKey, Wanted]) -> FetchSession | None:
        """Open a session; None if there is no place for it."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < _EVICT_IDLE_MS:
                return None
            del self._sessions[oldest.id]
        session = FetchSession(self._next_id, INITIAL_EPOCH + 1, now_ms, wanted)
        self._next_id = self._next_id % _EPOCH_MAX + 1
        self._sessions[session.id] = session
        return session

    def go_on(
        self,
        session_id: int,
        epoch: int,
        now_ms: int,
        changed: dict[PartitionKey, Wanted],
        forgotten: Iterable[PartitionKey],
    ) -> FetchSession:
        """Take the next request of a session; PeerError if it is not the next one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise PeerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise PeerError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = session.epoch % _EPOCH_MAX + 1
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        for key in forgotten:
            session.wanted.pop(key, None)
            session.told.pop(key, None)
        session.wanted.update(changed)
        return session

    def end(self, session_id: int) -> None:
        """Forget a session; fine if there is none."""
        self._sessions.pop(session_id, None)
