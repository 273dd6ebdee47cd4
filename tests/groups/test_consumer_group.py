"""One group of the consumer protocol, heartbeat by heartbeat: joining, reconciling, leaving, being fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.groups.consumer_types import GroupState, Heartbeat, MemberState
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.consumers import CONFIG, REBALANCE_MS, SESSION_MS, Consumer, Driver, FakeTopics


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(orders=4)


@pytest.fixture
def driver(topics: FakeTopics) -> Driver:
    return Driver(topics)


def joined(driver: Driver, member_id: str, *names: str, **said: str | None) -> Consumer:
    names = names or (() if "topic_regex" in said else ("orders",))
    consumer = Consumer(driver, member_id, *names, **said)
    consumer.join()
    consumer.obey()
    return consumer


def settled(*consumers: Consumer) -> None:
    """Let heartbeats come and go until all have been through every step of a rebalance."""
    for _ in range(4):
        for consumer in consumers:
            consumer.live()


def state(driver: Driver) -> str:
    return driver.group.state


def refused(code: ErrorCode) -> pytest.RaisesExc[PeerError]:
    return pytest.RaisesExc(PeerError, check=lambda error: error.code is code)


# Joining and sharing


def test_the_first_member_gets_everything_at_once(driver: Driver, topics: FakeTopics) -> None:
    assert state(driver) == GroupState.EMPTY
    answer = Consumer(driver, "a", "orders").join()
    assert (answer.member_id, answer.member_epoch) == ("a", 1)
    assert answer.assignment == topics.partitions("orders")
    assert state(driver) == GroupState.STABLE


def test_a_partition_goes_over_only_when_its_owner_has_given_it_up(driver: Driver) -> None:
    a = joined(driver, "a")
    b = Consumer(driver, "b", "orders")
    assert b.join().assignment == frozenset()
    assert state(driver) == GroupState.RECONCILING
    assert b.beat().assignment is None

    told = a.beat()  # a learns what it has to give up, and still owns it
    assert told.member_epoch == 1
    assert told.assignment is not None
    assert len(told.assignment) == 2
    assert b.beat().assignment is None

    a.obey()
    assert a.beat().member_epoch == 2
    assert b.beat().assignment == driver.topics.partitions("orders") - a.owned
    b.obey()
    assert state(driver) == GroupState.STABLE


def test_a_member_says_and_hears_only_what_is_new(driver: Driver) -> None:
    a = joined(driver, "a")
    written = len(driver.journal)
    for _ in range(3):
        answer = a.beat()
        assert answer.assignment is None
        assert answer.member_epoch == 1
    assert len(driver.journal) == written


def test_a_full_heartbeat_is_answered_with_the_whole_assignment(driver: Driver) -> None:
    a = joined(driver, "a")
    assert a.beat_in_full().assignment == a.owned


def test_a_member_without_topics_of_its_own_is_welcome(driver: Driver) -> None:
    assert Consumer(driver, "a").join().assignment == frozenset()
    assert state(driver) == GroupState.STABLE


def test_the_server_assignor_that_most_members_ask_for_is_used(driver: Driver) -> None:
    assert driver.group.assignor_name == "uniform"
    members = [joined(driver, name, server_assignor="range") for name in ("a", "b")]
    members.append(joined(driver, "c"))
    settled(*members)
    assert driver.group.assignor_name == "range"
    assert [sorted(at.partition for at in member.owned) for member in members] == [[0, 1], [2], [3]]


def test_what_stays_the_same_is_not_stored_again(driver: Driver) -> None:
    settled(joined(driver, "a"), joined(driver, "b"))
    written = len(driver.journal)
    joined(driver, "c", "elsewhere")  # takes nothing from the others
    kinds = [record.key[1] for record in driver.journal[written:] if record.key is not None]
    assert kinds == [5, 3, 6, 8]


# Requests that no member may send


@pytest.mark.parametrize(
    "changed",
    [
        {"member_id": ""},
        {"member_id": "m" * 1025},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": -5},
        {"owned": None},
        {"owned": FakeTopics(orders=1).partitions("orders")},
        {"topic_names": None},
        {"topic_names": tuple(map(str, range(10_001)))},
        {"member_epoch": -3},
        {"member_epoch": -2},  # without an instance id
    ],
    ids=str,
)
def test_a_request_that_makes_no_sense_is_invalid(driver: Driver, changed: dict[str, object]) -> None:
    good = Heartbeat(
        member_id="a", member_epoch=0, topic_names=("orders",), rebalance_timeout_ms=1_000, owned=frozenset()
    )
    with refused(ErrorCode.INVALID_REQUEST):
        driver.send(replace(good, **changed))  # type: ignore[arg-type]
    assert driver.group.is_empty
    driver.send(good)


def test_an_unknown_assignor_is_refused_with_the_names_of_the_known(driver: Driver) -> None:
    with pytest.raises(PeerError, match="uniform, range") as caught:
        Consumer(driver, "a", "orders", server_assignor="sticky").join()
    assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_but_its_own_members(topics: FakeTopics) -> None:
    driver = Driver(topics, replace(CONFIG, group_consumer_max_size=1))
    a = joined(driver, "a", instance_id="one")
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Consumer(driver, "b", "orders").join()
    a.join()
    a.leave(-2)
    Consumer(driver, "c", "orders", instance_id="one").join()


# Epochs


def test_a_stranger_is_told_to_join(driver: Driver) -> None:
    joined(driver, "a")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.send(Heartbeat(member_id="b", member_epoch=1))
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.send(Heartbeat(member_id="b", member_epoch=-1))


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_that_was_never_given_out_is_fenced(driver: Driver, epoch: int) -> None:
    a = joined(driver, "a")
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        a.beat(member_epoch=epoch)


def test_the_answer_to_a_heartbeat_may_be_lost(driver: Driver, topics: FakeTopics) -> None:
    a = joined(driver, "a")
    topics.set("orders", 6)
    before = (a.epoch, a.owned)
    lost = a.beat()
    a.epoch, a.owned = before
    assert lost.member_epoch == 2
    assert a.beat_in_full() == lost
    assert len(lost.assignment or ()) == 6


def test_the_previous_epoch_is_fenced_without_a_word_on_what_is_owned(driver: Driver, topics: FakeTopics) -> None:
    a = joined(driver, "a")
    topics.set("orders", 6)
    a.beat()
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        driver.send(Heartbeat(member_id="a", member_epoch=1))


def test_the_previous_epoch_is_fenced_for_one_who_owns_what_it_was_not_given(driver: Driver) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    everything = driver.topics.partitions("orders")
    settled(a, b)
    topics = driver.topics
    topics.set("orders", 6)
    a.beat()
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        a.beat_in_full(member_epoch=a.epoch - 1, owned=everything)


def test_a_fenced_member_may_join_again_under_its_id(driver: Driver) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    a.beat()  # has two partitions to give up; joining anew it owns nothing, so they are free
    answer = a.join()
    assert answer.member_epoch == 2
    assert answer.assignment is not None
    assert len(answer.assignment) == 2
    assert len(b.beat().assignment or ()) == 2


def test_an_epoch_never_falls_when_a_member_joins_again(driver: Driver, topics: FakeTopics) -> None:
    a = joined(driver, "a")
    topics.set("orders", 5)
    a.live()
    assert (a.epoch, a.join().member_epoch) == (2, 2)


# Subscriptions and topics


def test_new_partitions_and_new_topics_raise_the_epoch(driver: Driver, topics: FakeTopics) -> None:
    a = joined(driver, "a", "orders", "later")
    topics.set("orders", 5)
    assert a.beat().assignment == topics.partitions("orders")
    topics.set("later", 1)
    assert a.beat().assignment == topics.partitions("orders") | topics.partitions("later")
    topics.set("unrelated", 1)
    assert a.beat().assignment is None
    assert driver.group.image.epoch == 3


def test_a_deleted_topic_is_given_up(driver: Driver, topics: FakeTopics) -> None:
    topics.set("other", 2)
    a = joined(driver, "a", "orders", "other")
    topics.delete("other")
    assert a.beat().assignment == topics.partitions("orders")
    a.obey()
    assert a.beat().member_epoch == 2


def test_a_topic_made_anew_under_its_name_is_another_one(driver: Driver, topics: FakeTopics) -> None:
    a = joined(driver, "a")
    before = a.owned
    topics.delete("orders")
    topics.set("orders", 4)
    settled(a)
    assert a.owned == topics.partitions("orders")
    assert not a.owned & before


def test_a_changed_subscription_brings_other_partitions(driver: Driver, topics: FakeTopics) -> None:
    topics.set("other", 2)
    a = joined(driver, "a")
    assert a.beat(topic_names=("other", "other")).assignment == frozenset()
    a.obey()
    assert a.beat().assignment == topics.partitions("other")


def test_a_regular_expression_matches_topics_old_and_new(driver: Driver, topics: FakeTopics) -> None:
    topics.set("__consumer_offsets", 50)
    a = joined(driver, "a", topic_regex="ord.*|_.*")
    b = Consumer(driver, "b", topic_regex=".*-eu")
    assert a.owned == topics.partitions("orders")
    b.join()
    topics.set("orders-eu", 2)
    settled(a, b)
    assert a.owned | b.owned == topics.partitions("orders") | topics.partitions("orders-eu")
    assert driver.group.is_subscribed("orders-eu")
    assert not driver.group.is_subscribed("__consumer_offsets")


def test_a_regular_expression_and_names_add_up_and_an_empty_one_unsubscribes(
    driver: Driver, topics: FakeTopics
) -> None:
    topics.set("other", 1)
    a = joined(driver, "a", "other", topic_regex="ord.+")
    assert a.owned == topics.partitions("orders") | topics.partitions("other")
    a.beat(topic_regex="")
    settled(a)
    assert a.owned == topics.partitions("other")
    joined(driver, "b", topic_regex="")
    assert {member.subscription.topic_regex for member in driver.group.image.members.values()} == {None}


def test_a_bad_regular_expression_is_refused_and_changes_nothing(driver: Driver) -> None:
    with pytest.raises(PeerError, match="missing") as caught:
        Consumer(driver, "a", topic_regex="(a").join()
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.group.is_empty
    assert driver.journal == []


# Leaving and being given up


def test_the_partitions_of_one_who_leaves_go_to_the_others(driver: Driver, topics: FakeTopics) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    settled(a, b)
    assert b.leave().member_epoch == -1
    assert state(driver) == GroupState.ASSIGNING
    assert a.beat().assignment == topics.partitions("orders")
    a.leave()
    assert state(driver) == GroupState.EMPTY


def test_a_silent_member_is_given_up_after_its_session(driver: Driver, topics: FakeTopics) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    settled(a, b)
    driver.pass_time(SESSION_MS - 1)
    a.beat()
    assert len(driver.group.image.members) == 2
    driver.pass_time(1)
    assert driver.group.image.members.keys() == {"a"}
    assert a.beat().assignment == topics.partitions("orders")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        b.beat()


def test_one_who_will_not_give_up_its_partitions_is_fenced_in_time(driver: Driver, topics: FakeTopics) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    a.beat()
    for _ in range(4):
        driver.pass_time(REBALANCE_MS // 4 - 1)
        a.beat()
        b.beat()
    driver.pass_time(4)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        a.beat()
    assert b.beat().assignment == topics.partitions("orders")


def test_one_who_gives_up_in_time_is_not_fenced(driver: Driver) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    a.beat()
    driver.pass_time(REBALANCE_MS - 1)
    a.live()
    b.live()
    driver.pass_time(REBALANCE_MS)
    assert state(driver) == GroupState.STABLE


# Static members


def test_a_static_member_that_comes_back_gets_its_partitions_and_disturbs_nobody(driver: Driver) -> None:
    a, b = joined(driver, "a", instance_id="one"), joined(driver, "b")
    settled(a, b)
    owned, epoch = a.owned, b.epoch
    assert a.leave(-2).member_epoch == -2
    b.live()
    successor = joined(driver, "c", instance_id="one")
    assert (successor.owned, successor.epoch) == (owned, epoch)
    for _ in range(3):
        driver.pass_time(SESSION_MS // 2)
        b.live()
        successor.live()
    assert (b.epoch, successor.epoch) == (epoch, epoch)
    assert state(driver) == GroupState.STABLE


def test_a_static_member_that_stays_away_is_given_up(driver: Driver, topics: FakeTopics) -> None:
    a, b = joined(driver, "a", instance_id="one"), joined(driver, "b")
    settled(a, b)
    a.leave(-2)
    driver.pass_time(SESSION_MS - 1)
    b.beat()
    driver.pass_time(1)
    assert b.beat().assignment == topics.partitions("orders")


def test_an_instance_id_in_use_is_not_given_to_another(driver: Driver) -> None:
    joined(driver, "a", instance_id="one")
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        Consumer(driver, "b", "orders", instance_id="one").join()


def test_the_predecessor_of_a_static_member_is_fenced(driver: Driver) -> None:
    a = joined(driver, "a", instance_id="one")
    a.leave(-2)
    joined(driver, "b", instance_id="one")
    for epoch in (1, -1, -2):
        with refused(ErrorCode.FENCED_INSTANCE_ID):
            driver.send(Heartbeat(member_id="a", member_epoch=epoch, instance_id="one"))


def test_a_static_member_that_left_for_a_while_frees_what_it_was_to_give_up(driver: Driver) -> None:
    a, b = joined(driver, "a", instance_id="one"), joined(driver, "b")
    a.beat()
    a.leave(-2)
    assert len(b.beat().assignment or ()) == 2
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        driver.send(Heartbeat(member_id="a", member_epoch=1, instance_id="one"))


def test_a_late_heartbeat_does_not_bring_back_a_static_member_that_left_for_a_while(
    driver: Driver, topics: FakeTopics
) -> None:
    a = joined(driver, "a", instance_id="one")
    topics.set("orders", 5)
    a.live()
    a.leave(-2)
    for epoch in (1, 2):
        with refused(ErrorCode.FENCED_MEMBER_EPOCH):
            a.beat_in_full(member_epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_member_cannot_change_its_instance_id(driver: Driver, epoch: int) -> None:
    a = joined(driver, "a", instance_id="one")
    with refused(ErrorCode.INVALID_REQUEST):
        a.beat_in_full(member_epoch=epoch, instance_id="two", owned=frozenset())


def test_a_member_cannot_take_the_place_of_another_besides_its_own(driver: Driver) -> None:
    joined(driver, "a", instance_id="one").leave(-2)
    b = joined(driver, "b")
    with refused(ErrorCode.INVALID_REQUEST):
        b.beat_in_full(member_epoch=0, instance_id="one", owned=frozenset())


# Offsets


def test_only_a_member_in_its_epoch_may_commit_and_fetch(driver: Driver) -> None:
    group = driver.group
    group.check_commit("", None, -1, 0)
    a = joined(driver, "a")
    group.check_commit("a", None, a.epoch, 0)
    group.check_fetch("a", a.epoch)
    group.check_fetch(None, -1)
    for epoch in (a.epoch - 1, a.epoch + 1):
        with refused(ErrorCode.STALE_MEMBER_EPOCH):
            group.check_commit("a", None, epoch, 0)
        with refused(ErrorCode.STALE_MEMBER_EPOCH):
            group.check_fetch("a", epoch)
    for stranger in ("", "b"):
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            group.check_commit(stranger, None, -1, 0)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.check_fetch("b", 1)


def test_topics_that_are_read_are_known(driver: Driver) -> None:
    a = joined(driver, "a", "orders", "not-yet")
    assert driver.group.is_subscribed("orders")
    assert driver.group.is_subscribed("not-yet")
    assert not driver.group.is_subscribed("other")
    a.leave()
    assert not driver.group.is_subscribed("orders")


# Deleting


def test_only_an_empty_group_can_be_deleted(driver: Driver) -> None:
    a = joined(driver, "a")
    with refused(ErrorCode.NON_EMPTY_GROUP):
        driver.group.delete(0)
    a.leave()
    driver.journal += driver.group.tombstones(driver.now_ms)
    driver.group.delete(0)
    assert state(driver) == GroupState.DEAD
    for call in (a.join, lambda: driver.group.check_commit("", None, -1, 0)):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            call()


def test_the_tombstones_of_a_group_leave_nothing(driver: Driver) -> None:
    joined(driver, "a"), joined(driver, "b")
    last = {record.key: record.value for record in [*driver.journal, *driver.group.tombstones(driver.now_ms)]}
    assert set(last.values()) == {None}


def test_a_member_state_is_shown_as_it_is(driver: Driver) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    a.beat()
    members = driver.group.image.members
    assert members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    settled(a, b)
    assert {member.current.state for member in members.values()} == {MemberState.STABLE}
