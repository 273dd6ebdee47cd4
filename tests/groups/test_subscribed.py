"""The topics of a group are looked at when they or the subscriptions changed, and only then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from odradek.groups.consumer_types import Subscription, TopicFacts
from odradek.groups.subscribed import SubscribedTopics
from odradek.groups.topic_pattern import PatternError
from tests.groups.consumers import FakeTopics


def subscription(*names: str, regex: str | None = None) -> Subscription:
    return Subscription(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        topic_names=names,
        topic_regex=regex,
        rebalance_timeout_ms=0,
        server_assignor=None,
    )


def facts(topics: FakeTopics, *names: str) -> Mapping[str, TopicFacts]:
    counts = topics.partition_counts()
    return {name: TopicFacts(topics.topic_id(name) or b"", counts[name]) for name in names}


def test_only_what_exists_is_found_by_name_or_by_pattern() -> None:
    topics = FakeTopics(a=1, b=2, bb=3, c=4)
    found = SubscribedTopics(topics).refreshed([subscription("a", "missing"), subscription(regex="b+")])
    assert found == facts(topics, "a", "b", "bb")


def test_the_brokers_own_topics_are_found_by_their_names_only() -> None:
    topics = FakeTopics(__consumer_offsets=50, a=1)
    subscribed = SubscribedTopics(topics)
    assert subscribed.refreshed([subscription(regex=".*")]) == facts(topics, "a")
    subscribed.expire()
    assert subscribed.refreshed([subscription("__consumer_offsets")]) == facts(topics, "__consumer_offsets")


def test_nobody_looks_twice_at_what_has_not_changed() -> None:
    topics = FakeTopics(a=1)
    subscribed = SubscribedTopics(topics)
    wanted = [subscription("a", "b")]
    assert subscribed.refreshed(wanted) == facts(topics, "a")
    assert subscribed.refreshed(wanted) is None
    topics.set("b", 2)
    assert subscribed.refreshed(wanted) == facts(topics, "a", "b")
    assert subscribed.refreshed(wanted) is None
    subscribed.expire()
    assert subscribed.refreshed([]) == {}


def test_each_member_has_its_own_topics() -> None:
    subscribed = SubscribedTopics(FakeTopics(a=1, b=2))
    by_name, by_pattern, by_both = subscription("a"), subscription(regex="b"), subscription("a", regex="b")
    subscribed.refreshed([by_name, by_pattern, by_both])
    assert [subscribed.names_of(each) for each in (by_name, by_pattern, by_both)] == [{"a"}, {"b"}, {"a", "b"}]


def test_a_pattern_that_cannot_be_used_is_refused_when_it_is_added() -> None:
    with pytest.raises(PatternError):
        SubscribedTopics(FakeTopics()).add_pattern("(")
