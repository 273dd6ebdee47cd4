"""What every API of groups tells a client in every version when another broker coordinates, or this one is loading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from odradek.apis import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from odradek.apis.registry import Api
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_group_describe as describe_message
from odradek.wire.messages import consumer_group_heartbeat as live_message
from odradek.wire.messages import delete_groups as delete_message
from odradek.wire.messages import describe_groups as classic_message
from odradek.wire.messages import heartbeat as heartbeat_message
from odradek.wire.messages import join_group as join_message
from odradek.wire.messages import leave_group as leave_message
from odradek.wire.messages import list_groups as list_message
from odradek.wire.messages import offset_commit as commit_message
from odradek.wire.messages import offset_delete as forget_message
from odradek.wire.messages import offset_fetch as fetch_message
from odradek.wire.messages import sync_group as sync_message
from odradek.wire.schema import Message
from tests.apis.houses import Visitor, versions, visiting
from tests.groups.brokers import run


class Case(NamedTuple):
    """A request about group g, and where its answer has the error."""

    api: Api
    request: Callable[[], Message]
    answer: type[Message]
    error: Callable[[Any], int] = lambda answer: answer.error_code


def _sync() -> Message:
    return sync_message.Request(
        group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range", assignments=[]
    )


def _leave() -> Message:
    return leave_message.Request(group_id="g", member_id="m", members=[leave_message.RequestMember(member_id="m")])


def _join() -> Message:
    return join_message.Request(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[join_message.RequestProtocol(name="range", metadata=b"")],
    )


def _commit() -> Message:
    partition = commit_message.RequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return commit_message.Request(
        group_id="g", member_id="", topics=[commit_message.RequestTopic(name="orders", partitions=[partition])]
    )


def _forget() -> Message:
    partition = forget_message.RequestPartition(partition_index=0)
    return forget_message.Request(
        group_id="g", topics=[forget_message.RequestTopic(name="orders", partitions=[partition])]
    )


def _fetch() -> Message:
    return fetch_message.Request(
        group_id="g",
        topics=[fetch_message.RequestTopic(name="orders", partition_indexes=[0])],
        groups=[fetch_message.RequestGroup(group_id="g", topics=None)],
        require_stable=True,
    )


def _fetch_error(answer: fetch_message.Response) -> int:
    if answer.groups:
        return answer.groups[0].error_code
    return answer.error_code or answer.topics[0].partitions[0].error_code


CASES = {
    "join": Case(join_group.API, _join, join_message.Response),
    "sync": Case(sync_group.API, _sync, sync_message.Response),
    "heartbeat": Case(
        heartbeat.API,
        lambda: heartbeat_message.Request(group_id="g", generation_id=1, member_id="m"),
        heartbeat_message.Response,
    ),
    "leave": Case(leave_group.API, _leave, leave_message.Response),
    "live": Case(
        consumer_group_heartbeat.API,
        lambda: live_message.Request(group_id="g", member_id="m", member_epoch=1),
        live_message.Response,
    ),
    "commit": Case(
        offset_commit.API, _commit, commit_message.Response, lambda answer: answer.topics[0].partitions[0].error_code
    ),
    "fetch": Case(offset_fetch.API, _fetch, fetch_message.Response, _fetch_error),
    "forget": Case(offset_delete.API, _forget, forget_message.Response),
    "delete": Case(
        delete_groups.API,
        lambda: delete_message.Request(groups_names=["g"]),
        delete_message.Response,
        lambda answer: answer.results[0].error_code,
    ),
    "describe": Case(
        describe_groups.API,
        lambda: classic_message.Request(groups=["g"]),
        classic_message.Response,
        lambda answer: answer.groups[0].error_code,
    ),
    "describe consumer": Case(
        consumer_group_describe.API,
        lambda: describe_message.Request(group_ids=["g"]),
        describe_message.Response,
        lambda answer: answer.groups[0].error_code,
    ),
}


async def told(visitor: Visitor, case: Case) -> set[int]:
    """The errors of all versions."""
    answers = [await visitor.ask(case.api, each, case.request(), case.answer) for each in versions(case.api)]
    return set(map(case.error, answers))


@pytest.mark.parametrize("name", CASES)
def test_a_group_that_moved_is_looked_for_elsewhere_and_one_that_is_loading_waited_for(name: str) -> None:
    async def scene() -> None:
        async with visiting() as visitor:
            await visitor.broker.create_topic("orders", 1, {})
            groups = visitor.door.groups
            count = visitor.broker.config.offsets_topic_num_partitions
            for index in range(count):
                groups.unload_partition(index, 1)
            assert await told(visitor, CASES[name]) == {ErrorCode.NOT_COORDINATOR}
            loads = [groups.load_partition(index, 2) for index in range(count)]
            assert await told(visitor, CASES[name]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            await asyncio.gather(*loads)
            assert not await told(visitor, CASES[name]) & {
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            }

    run(scene())


def test_there_is_no_list_of_groups_while_some_are_loading() -> None:
    case = Case(list_groups.API, list_message.Request, list_message.Response)

    async def scene() -> None:
        async with visiting() as visitor:
            groups = visitor.door.groups
            groups.unload_partition(0, 1)
            assert await told(visitor, case) == {ErrorCode.NONE}
            load = groups.load_partition(0, 2)
            assert await told(visitor, case) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            await load
            assert await told(visitor, case) == {ErrorCode.NONE}

    run(scene())
