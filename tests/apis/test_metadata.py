"""Metadata of every version: the cluster, topics by name and by id, and topics made on first use."""

from __future__ import annotations

import errno

import pytest

from odradek.apis import metadata as describing
from odradek.apis.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from odradek.model import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import metadata
from odradek.wire.messages.metadata import RequestTopic
from tests.apis.houses import HOST, PORT, Visitor, versions, visiting
from tests.broker.houses import SlowDisk
from tests.client.support import asynchronous

NOT_SAID = -(2**31)
WITH_IDS, BY_ID = 10, 12


async def ask(
    visitor: Visitor, version: int, *topics: RequestTopic | str, every: bool = False, create: bool = True
) -> metadata.Response:
    named = [RequestTopic(name=each) if isinstance(each, str) else each for each in topics]
    asked = metadata.Request(topics=None if every else named, allow_auto_topic_creation=create)
    return await visitor.ask(describing.API, version, asked, metadata.Response)


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_describes_the_broker_and_a_topic(version: int) -> None:
    async with visiting(settings={"broker.id": 7}) as visitor:
        topic = await visitor.broker.create_topic("orders", 3, {})
        await visitor.broker.create_topic("other", 1, {})
        answer = await ask(visitor, version, "orders")
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(7, HOST, PORT)]
        assert answer.controller_id == (7 if version >= 1 else -1)
        assert answer.cluster_id == (visitor.broker.cluster_id if version >= 2 else None)
        (told,) = answer.topics
        assert (told.name, told.error_code, told.is_internal) == ("orders", 0, False)
        assert told.topic_id == (topic.id if version >= WITH_IDS else bytes(16))
        assert told.topic_authorized_operations == NOT_SAID
        assert [each.partition_index for each in told.partitions] == [0, 1, 2]
        for each in told.partitions:
            assert (each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes) == (0, 7, [7], [7])
            assert each.leader_epoch == (0 if version >= 7 else -1)
            assert each.offline_replicas == []


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_can_ask_for_all_topics(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("a", 1, {})
        await visitor.broker.create_topic("b", 1, {})
        answer = await ask(visitor, version, every=version > 0)
        assert sorted(topic.name or "" for topic in answer.topics) == ["a", "b"]
        if version > 0:
            assert (await ask(visitor, version)).topics == [], "from version 1 on an empty list means none"


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_makes_a_topic_that_is_asked_for(version: int) -> None:
    async with visiting(settings={"num.partitions": 2}) as visitor:
        (told,) = (await ask(visitor, version, "new")).topics
        assert (told.error_code, len(told.partitions)) == (0, 2)
        assert sorted(visitor.broker.topics["new"].partitions) == [0, 1]


@asynchronous
async def test_no_topic_is_made_if_the_client_or_the_broker_does_not_want_it() -> None:
    async with visiting() as visitor:
        (told,) = (await ask(visitor, 9, "new", create=False)).topics
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with visiting(settings={"auto.create.topics.enable": "false"}) as visitor:
        for version in (1, 9):
            (told,) = (await ask(visitor, version, "new")).topics
            assert (told.name, told.error_code) == ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert visitor.broker.topics == {}


@asynchronous
async def test_asking_for_the_brokers_own_topic_does_not_make_it_in_a_wrong_form() -> None:
    async with visiting() as visitor:
        (told,) = (await ask(visitor, 9, OFFSETS_TOPIC)).topics
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert visitor.broker.topics == {}
        await visitor.broker.create_topic(OFFSETS_TOPIC, 1, {}, internal=True)
        (told,) = (await ask(visitor, 9, OFFSETS_TOPIC)).topics
        assert (told.error_code, told.is_internal) == (0, True)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("one.too.many", ErrorCode.INVALID_PARTITIONS),
    ],
)
@asynchronous
async def test_a_topic_that_cannot_be_made_is_told_and_the_others_are_described(name: str, code: ErrorCode) -> None:
    async with visiting(settings={"partitions.max": 2}) as visitor:
        await visitor.broker.create_topic("a.b", 2, {})
        bad, good = (await ask(visitor, 9, name, "a.b")).topics
        assert (bad.name, bad.error_code) == (name, code)
        assert (good.error_code, len(good.partitions)) == (0, 2)


@pytest.mark.parametrize("version", [12, 13])
@asynchronous
async def test_topics_are_found_by_id(version: int) -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {})
        by_id = RequestTopic(topic_id=topic.id, name=None)
        unknown = RequestTopic(topic_id=b"\7" * 16, name=None)
        found, missing = (await ask(visitor, version, by_id, unknown)).topics
        assert (found.name, found.topic_id, found.error_code) == ("orders", topic.id, 0)
        assert (missing.error_code, missing.name, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\7" * 16)
        await visitor.broker.delete_topic("orders")
        (gone,) = (await ask(visitor, version, by_id)).topics
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert visitor.broker.topics == {}, "nothing is made by id"


@pytest.mark.parametrize("version", [10, 11])
@asynchronous
async def test_a_look_up_by_id_before_its_time_is_refused_in_a_form_that_can_be_sent(version: int) -> None:
    async with visiting() as visitor:
        (told,) = (await ask(visitor, version, RequestTopic(topic_id=b"\7" * 16, name=None))).topics
        assert told.error_code != 0


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
@asynchronous
async def test_what_a_client_may_do_is_told_if_it_asks(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        named = [RequestTopic(name="orders"), RequestTopic(name="../x")]
        asked = metadata.Request(
            topics=named, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        answer = await visitor.ask(describing.API, version, asked, metadata.Response)
        assert [topic.topic_authorized_operations for topic in answer.topics] == [TOPIC_OPERATIONS, NOT_SAID]
        assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if version <= 10 else NOT_SAID)


@asynchronous
async def test_a_partition_with_damaged_files_has_no_leader() -> None:
    disk = SlowDisk()
    async with visiting(disk) as visitor:
        await visitor.broker.create_topic("orders", 2, {})
        await visitor.house.produce("orders", b"a")
    disk.fail_next("open", errno.EIO, ending="orders-0/00000000000000000000.log")
    async with visiting(disk) as visitor:
        (told,) = (await ask(visitor, 9, "orders")).topics
        by_index = {each.partition_index: each for each in told.partitions}
        assert (by_index[0].error_code, by_index[0].leader_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (by_index[0].isr_nodes, by_index[0].offline_replicas) == ([], [1])
        assert (by_index[1].error_code, by_index[1].leader_id) == (0, 1)
