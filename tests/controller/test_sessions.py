"""A broker's session lasts as long as it is heard of, and ends soon after its connection drops."""

from __future__ import annotations

from odradek.controller.sessions import LOST_GRACE_MS, BrokerSessions


def test_a_session_ends_when_the_broker_is_silent_for_the_timeout() -> None:
    sessions = BrokerSessions(1000)
    assert sessions.next_deadline() is None
    sessions.touch(1, 0)
    sessions.touch(2, 500)
    assert sessions.next_deadline() == 1000
    assert sessions.expired(999) == []
    assert sessions.alive(999) == {1, 2}
    assert sessions.expired(1000) == [1]
    assert sessions.alive(1000) == {2}
    sessions.touch(1, 1000)
    assert sessions.expired(1499) == []
    assert sessions.expired(5000) == [1, 2]
    sessions.forget(1)
    assert sessions.expired(5000) == [2]


def test_a_lost_connection_leaves_a_short_grace() -> None:
    sessions = BrokerSessions(1000)
    sessions.touch(1, 0)
    sessions.lost(1, 100)
    assert not sessions.is_alive(1, 100)
    assert sessions.expired(100 + LOST_GRACE_MS - 1) == []
    assert sessions.expired(100 + LOST_GRACE_MS) == [1]
    sessions.touch(1, 350)
    assert sessions.is_alive(1, 350)
    assert sessions.expired(100 + LOST_GRACE_MS) == []


def test_a_lost_connection_gives_no_more_time_than_there_was() -> None:
    sessions = BrokerSessions(1000)
    sessions.touch(1, 0)
    sessions.lost(1, 900)
    assert sessions.next_deadline() == 1000
    sessions.lost(1, 950)
    assert sessions.next_deadline() == 1000


def test_a_connection_of_a_broker_that_is_not_known_is_no_session() -> None:
    sessions = BrokerSessions(1000)
    sessions.lost(9, 0)
    sessions.forget(9)
    assert sessions.next_deadline() is None
    assert not sessions.is_alive(9, 0)


def test_a_new_controller_waits_for_all_brokers_and_takes_none_for_alive() -> None:
    sessions = BrokerSessions(1000)
    sessions.touch(7, 0)
    sessions.begin([1, 2], 5000)
    assert sessions.alive(5000) == set()
    assert sessions.expired(5999) == []
    sessions.touch(2, 5500)
    assert sessions.alive(5500) == {2}
    assert sessions.expired(6000) == [1]
