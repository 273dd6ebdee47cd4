"""No answer tells of what is not durable; what a failed write lost is written again; a restart loses nothing."""

from __future__ import annotations

import pytest

from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_records import decode
from odradek.groups.consumer_types import Heartbeat, HeartbeatAnswer
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.consumers import CONFIG, REBALANCE_MS, SESSION_MS, Consumer, Driver, FakeTopics

JOIN = Heartbeat(
    member_id="a", member_epoch=0, topic_names=("orders",), rebalance_timeout_ms=REBALANCE_MS, owned=frozenset()
)


@pytest.fixture
def driver() -> Driver:
    return Driver(FakeTopics(orders=4))


def test_an_answer_waits_for_its_records() -> None:
    group = ConsumerGroup("readers", CONFIG, FakeTopics(orders=1))
    effects = group.heartbeat(JOIN, 7, 0)
    assert effects.answers == []
    assert effects.records
    ((ticket, answer),) = group.stored(effects.token, ErrorCode.NONE, 0).answers
    assert (ticket, answer) == (
        7,
        HeartbeatAnswer(member_id="a", member_epoch=1, assignment=group.image.members["a"].target),
    )


def test_an_answer_without_records_does_not_overtake_those_under_way() -> None:
    group = ConsumerGroup("readers", CONFIG, FakeTopics(orders=1))
    first = group.heartbeat(JOIN, 1, 0)
    second = group.heartbeat(Heartbeat(member_id="a", member_epoch=1), 2, 0)
    assert (second.answers, second.records) == ([], [])
    assert [ticket for ticket, _ in group.stored(first.token, ErrorCode.NONE, 0).answers] == [1, 2]
    third = group.heartbeat(Heartbeat(member_id="a", member_epoch=1), 3, 0)
    assert [ticket for ticket, _ in third.answers] == [3]


def test_a_lost_write_is_an_error_for_all_who_waited_for_it() -> None:
    group = ConsumerGroup("readers", CONFIG, FakeTopics(orders=1))
    first = group.heartbeat(JOIN, 1, 0)
    group.heartbeat(Heartbeat(member_id="a", member_epoch=1), 2, 0)
    answers = group.stored(first.token, ErrorCode.NOT_COORDINATOR, 0).answers
    assert [(ticket, answer.error) for ticket, answer in answers if isinstance(answer, HeartbeatAnswer)] == [
        (1, ErrorCode.NOT_COORDINATOR),
        (2, ErrorCode.NOT_COORDINATOR),
    ]


def test_what_a_lost_write_would_have_told_is_written_with_the_next_one(driver: Driver) -> None:
    a, b, c = (Consumer(driver, name, "orders") for name in "abc")
    a.join()
    c.join()
    lost = driver.group.heartbeat(Heartbeat(member_id="c", member_epoch=-1), 99, driver.now_ms)
    driver.settle(lost, ErrorCode.NOT_COORDINATOR)
    assert driver.reloaded().image != driver.group.image
    b.join()
    assert driver.reloaded().image == driver.group.image
    assert driver.group.image.members.keys() == {"a", "b"}


def test_an_unknown_token_is_nobodys() -> None:
    group = ConsumerGroup("readers", CONFIG, FakeTopics())
    assert group.stored("a token", ErrorCode.NONE, 0).answers == []


# Loading


def test_a_group_that_was_loaded_goes_on_where_it_was(driver: Driver) -> None:
    a, b = Consumer(driver, "a", "orders"), Consumer(driver, "b", topic_regex="ord.*")
    a.join()
    a.obey()
    b.join()
    a.beat()
    driver.group = driver.reloaded()
    written = len(driver.journal)
    b.beat()
    assert len(driver.journal) == written  # nothing has changed by the restart, not even an epoch
    a.obey()
    a.beat()
    assert len(b.beat().assignment or ()) == 2


def test_members_that_were_loaded_have_a_session_to_show_themselves(driver: Driver) -> None:
    Consumer(driver, "a", "orders").join()
    driver.now_ms += SESSION_MS
    driver.group = driver.reloaded()
    driver.pass_time(SESSION_MS - 1)
    assert not driver.group.is_empty
    driver.pass_time(1)
    assert driver.group.is_empty


def test_a_revocation_that_was_under_way_is_timed_anew_after_a_restart(driver: Driver) -> None:
    a, b = Consumer(driver, "a", "orders"), Consumer(driver, "b", "orders")
    a.join()
    a.obey()
    b.join()
    a.beat()
    driver.group = driver.reloaded()
    driver.pass_time(REBALANCE_MS - 1)
    a.beat()
    driver.pass_time(1)
    with pytest.raises(PeerError):
        a.beat()


def test_every_prefix_of_the_log_loads_and_can_go_on(driver: Driver) -> None:
    members = [Consumer(driver, name, "orders", instance_id=f"i{name}") for name in "abc"]
    for member in members:
        member.join()
    for _ in range(3):
        for member in members:
            member.live()
    members[0].leave(-2)
    Consumer(driver, "d", "orders", instance_id="ia").join()
    members[1].leave()
    for end in range(len(driver.journal) + 1):
        after = Driver(driver.topics)
        after.group = loaded(driver.topics, driver.journal[:end])
        survivor = Consumer(after, "z", "orders")
        survivor.join()
        after.pass_time(SESSION_MS - 1)
        survivor.beat()
        after.pass_time(SESSION_MS - 1)
        survivor.live()
        assert survivor.owned == driver.topics.partitions("orders")


def loaded(topics: FakeTopics, journal: list[NewRecord]) -> ConsumerGroup:
    group = ConsumerGroup("readers", CONFIG, topics)
    for record in journal:
        assert record.key is not None
        group.apply(decode(record.key, record.value))
    group.resume(0)
    return group


def test_what_a_lost_record_left_of_a_member_is_dropped(driver: Driver) -> None:
    Consumer(driver, "a", "orders").join()
    driver.journal = [record for record in driver.journal if record.key is not None and record.key[1] != 5]
    group = driver.reloaded()
    assert group.is_empty
    assert group.image.owners == {}


def test_a_stored_pattern_that_is_no_longer_supported_matches_nothing(driver: Driver) -> None:
    Consumer(driver, "a", topic_regex="ord.*").join()
    driver.journal = [
        record._replace(value=record.value.replace(b"ord.*", b"(?=or")) if record.value else record
        for record in driver.journal
    ]
    driver.group = driver.reloaded()
    a = Consumer(driver, "a")
    a.epoch = 1
    assert a.beat().assignment == frozenset()
