"""Settings as admin clients see them: values, sources, synonyms, types, and changes of each kind."""

from __future__ import annotations

import pytest

from odradek.broker.broker import Broker
from odradek.broker.configs import Change, Entry, Operation, ResourceType, Source, change, describe, replace
from odradek.settings_rows import SETTINGS
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import at_home, refusal_of
from tests.client.support import asynchronous

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = Operation


def entry(broker: Broker, kind: int, resource: str, name: str) -> Entry:
    (found,) = describe(broker, kind, resource, [name])
    return found


def synonyms(found: Entry) -> list[tuple[str, Source]]:
    return [(synonym.value, synonym.source) for synonym in found.synonyms]


@asynchronous
async def test_a_value_says_where_it_comes_from_and_what_would_hold_without_it() -> None:
    async with at_home(retention_ms=9000) as house:
        broker = house.broker
        await broker.create_topic("orders", 1, {"retention.ms": "2h", "flush": "os"})
        await broker.set_broker_overrides({"segment.bytes": "4KiB", "flush": "replicated"})
        own = entry(broker, TOPIC, "orders", "retention.ms")
        assert (own.value, own.source, own.read_only) == ("7200000", Source.TOPIC, False)
        assert synonyms(own) == [
            ("7200000", Source.TOPIC),
            ("9000", Source.STATIC_BROKER),
            (str(SETTINGS["retention.ms"].default), Source.DEFAULT),
        ]
        flush = entry(broker, TOPIC, "orders", "flush")
        assert synonyms(flush) == [
            ("os", Source.TOPIC),
            ("replicated", Source.DYNAMIC_BROKER_DEFAULT),
            ("group", Source.DEFAULT),
        ]
        inherited = entry(broker, TOPIC, "orders", "segment.bytes")
        assert (inherited.value, inherited.source) == ("4096", Source.DYNAMIC_BROKER_DEFAULT)
        untouched = entry(broker, TOPIC, "orders", "cleanup.policy")
        assert synonyms(untouched) == [("delete", Source.DEFAULT)]


@asynchronous
async def test_a_topic_shows_its_settings_and_the_broker_all() -> None:
    async with at_home() as house:
        await house.broker.create_topic("orders", 1, {})
        of_topic = {each.setting.name: each for each in describe(house.broker, TOPIC, "orders", None)}
        assert set(of_topic) == {name for name, row in SETTINGS.items() if row.scope == "topic"}
        assert not any(each.read_only for each in of_topic.values())
        for name in ("", "1"):
            of_broker = {each.setting.name: each for each in describe(house.broker, BROKER, name, None)}
            assert set(of_broker) == set(SETTINGS)
            assert of_broker["broker.id"].read_only and not of_broker["retention.ms"].read_only
        some = describe(house.broker, TOPIC, "orders", ["flush", "broker.id", "unknown"])
        assert [each.setting.name for each in some] == ["flush"]
        assert describe(house.broker, TOPIC, "orders", []) == []


@asynchronous
async def test_types_are_numbered_as_kafka_does() -> None:
    async with at_home() as house:
        types = {each.setting.name: each.config_type for each in describe(house.broker, BROKER, "", None)}
        assert types["auto.create.topics.enable"] == 1
        assert types["dir"] == types["flush"] == types["kafka"] == 2
        assert types["segment.bytes"] == types["num.partitions"] == 3
        assert types["retention.ms"] == types["retention.bytes"] == 5
        assert types["min.cleanable.dirty.ratio"] == 6
        assert types["cleanup.policy"] == 7


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "letters", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
    ],
)
@asynchronous
async def test_a_resource_that_is_not_here_is_refused(kind: int, name: str, code: ErrorCode) -> None:
    async with at_home() as house:
        with pytest.raises(PeerError) as refused:
            describe(house.broker, kind, name, None)
        assert refused.value.code == code
        for validate_only in (False, True):
            assert await refusal_of(replace(house.broker, kind, name, {}, validate_only)) == code
            assert await refusal_of(change(house.broker, kind, name, [], validate_only)) == code


@asynchronous
async def test_replacing_sets_exactly_what_is_named() -> None:
    async with at_home() as house:
        broker = house.broker
        topic = await broker.create_topic("orders", 1, {"flush": "os", "retention.ms": "1000"})
        await replace(broker, TOPIC, "orders", {"retention.ms": "2000", "segment.ms": None}, False)
        assert topic.overrides == {"retention.ms": "2000"}
        await replace(broker, TOPIC, "orders", {"flush": "os"}, True)
        assert topic.overrides == {"retention.ms": "2000"}, "it was only to be checked"
        for validate_only in (True, False):
            wrong = replace(broker, TOPIC, "orders", {"flush": "never"}, validate_only)
            assert await refusal_of(wrong) == ErrorCode.INVALID_CONFIG
        await replace(broker, BROKER, "1", {"retention.ms": "3000"}, False)
        await replace(broker, BROKER, "", {"retention.ms": "4000"}, True)
        assert broker.broker_overrides == {"retention.ms": "3000"}
        wrong = replace(broker, BROKER, "", {"retention.ms": "soon"}, True)
        assert await refusal_of(wrong) == ErrorCode.INVALID_CONFIG


async def changed(broker: Broker, *changes: Change, kind: int = TOPIC, name: str = "orders") -> ErrorCode:
    return await refusal_of(change(broker, kind, name, changes, False))


@asynchronous
async def test_single_settings_are_set_and_deleted_and_the_others_stay() -> None:
    async with at_home() as house:
        broker = house.broker
        topic = await broker.create_topic("orders", 1, {"flush": "os", "retention.ms": "1000"})
        ended = await changed(broker, Change("flush", DELETE, None), Change("segment.ms", SET, "50"))
        assert (ended, topic.overrides) == (ErrorCode.NONE, {"retention.ms": "1000", "segment.ms": "50"})
        assert await changed(broker, Change("never.there", DELETE, None)) == ErrorCode.NONE
        assert await changed(broker, Change("retention.ms", SET, "5"), kind=BROKER, name="") == ErrorCode.NONE
        assert await changed(broker, Change("flush", SET, "os"), kind=BROKER, name="1") == ErrorCode.NONE
        assert broker.broker_overrides == {"retention.ms": "5", "flush": "os"}
        assert await changed(broker, Change("retention.ms", DELETE, None), kind=BROKER, name="") == ErrorCode.NONE
        assert broker.broker_overrides == {"flush": "os"}


@asynchronous
async def test_lists_are_appended_to_and_subtracted_from() -> None:
    async with at_home() as house:
        broker = house.broker
        topic = await broker.create_topic("orders", 1, {})
        policy = "cleanup.policy"
        assert await changed(broker, Change(policy, APPEND, "compact")) == ErrorCode.NONE
        assert topic.overrides == {policy: "delete,compact"}, "what it inherited counts as there"
        assert await changed(broker, Change(policy, APPEND, " compact, delete")) == ErrorCode.NONE
        assert topic.overrides == {policy: "delete,compact"}
        assert await changed(broker, Change(policy, SUBTRACT, "delete")) == ErrorCode.NONE
        assert topic.overrides == {policy: "compact"}
        assert broker.partition("orders", 0).log.config.compacts
        assert await changed(broker, Change(policy, SUBTRACT, "compact")) == ErrorCode.INVALID_CONFIG
        assert await changed(broker, Change(policy, APPEND, "burn")) == ErrorCode.INVALID_CONFIG
        assert topic.overrides == {policy: "compact"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([Change("flush", SET, "os"), Change("flush", SET, "group")], ErrorCode.INVALID_REQUEST),
        ([Change("flush", SET, None)], ErrorCode.INVALID_REQUEST),
        ([Change("flush", 4, "os")], ErrorCode.INVALID_REQUEST),
        ([Change("flush", APPEND, "os")], ErrorCode.INVALID_CONFIG),
        ([Change("unknown", APPEND, "os")], ErrorCode.INVALID_CONFIG),
        ([Change("unknown", SET, "os")], ErrorCode.INVALID_CONFIG),
        ([Change("broker.id", SET, "3")], ErrorCode.INVALID_CONFIG),
        ([Change("retention.ms", SET, "1"), Change("flush", SET, "no")], ErrorCode.INVALID_CONFIG),
    ],
)
@asynchronous
async def test_a_change_that_makes_no_sense_is_refused_as_a_whole(changes: list[Change], code: ErrorCode) -> None:
    async with at_home() as house:
        topic = await house.broker.create_topic("orders", 1, {})
        for validate_only in (True, False):
            assert await refusal_of(change(house.broker, TOPIC, "orders", changes, validate_only)) == code
        assert topic.overrides == {}
