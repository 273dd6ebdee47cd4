"""Which brokers the active controller has heard of lately.

Pure: the time comes as an argument. A broker that says nothing for the session timeout is fenced; one whose connection
dropped has only a short grace, since a process that died closes its connections while one that is slow does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LOST_GRACE_MS = 300  # time for a broker that lives to connect again


@dataclass(slots=True)
class _Session:
    deadline_ms: int
    is_heard: bool  # by a heartbeat in this controller's term, and its connection stands


class BrokerSessions:
    """The time that each broker has left. Holds those only that were told to it."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def begin(self, broker_ids: Iterable[int], now: int) -> None:
        """Start a new controller's term: each of these has a whole session's time to be heard of."""
        deadline_ms = now + self.session_timeout_ms
        self._sessions = {broker_id: _Session(deadline_ms, is_heard=False) for broker_id in broker_ids}

    def touch(self, broker_id: int, now: int) -> None:
        """The broker was heard of."""
        self._sessions[broker_id] = _Session(now + self.session_timeout_ms, is_heard=True)

    def lost(self, broker_id: int, now: int) -> None:
        """Its connection dropped: it has a short grace to come back."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_heard = False
            session.deadline_ms = min(session.deadline_ms, now + LOST_GRACE_MS)

    def dead(self, broker_id: int, now: int) -> None:
        """Its machine says that nobody listens at its port: its time is up."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_heard = False
            session.deadline_ms = min(session.deadline_ms, now)

    def was_heard(self, broker_id: int) -> bool:
        """Whether it has sent a heartbeat in this term, and has not been lost since."""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_heard

    def forget(self, broker_id: int) -> None:
        """It is fenced, gone or no longer registered: wait for nothing."""
        self._sessions.pop(broker_id, None)

    def expired(self, now: int) -> list[int]:
        """Those whose time is up, until they are touched or forgotten."""
        return sorted(broker_id for broker_id, session in self._sessions.items() if session.deadline_ms <= now)

    def next_deadline(self) -> int | None:
        """When the next one's time is up; None when there is nobody to wait for."""
        return min((session.deadline_ms for session in self._sessions.values()), default=None)

    def is_alive(self, broker_id: int, now: int) -> bool:
        """Whether a heartbeat came in time and the connection stands.

        Not yet true of one that only `begin` knows: nothing is known of it, and it may be starting again.
        """
        session = self._sessions.get(broker_id)
        return session is not None and session.is_heard and now < session.deadline_ms

    def alive(self, now: int) -> frozenset[int]:
        """All that are alive."""
        return frozenset(broker_id for broker_id in self._sessions if self.is_alive(broker_id, now))
