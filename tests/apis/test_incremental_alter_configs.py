"""IncrementalAlterConfigs of every version: single settings are set, deleted, added to and taken from."""

from __future__ import annotations

import asyncio

import pytest

from odradek.apis import incremental_alter_configs as altering
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import incremental_alter_configs
from odradek.wire.messages.incremental_alter_configs import RequestConfig, RequestResource
from tests.apis.houses import Visitor, versions, visiting
from tests.client.support import asynchronous

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> RequestResource:
    configs = [RequestConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return RequestResource(resource_type=kind, resource_name=name, configs=configs)


async def ask(
    visitor: Visitor, *resources: RequestResource, version: int = 1, validate_only: bool = False
) -> list[int]:
    asked = incremental_alter_configs.Request(resources=list(resources), validate_only=validate_only)
    answer = await visitor.ask(altering.API, version, asked, incremental_alter_configs.Response)
    assert [each.resource_name for each in answer.responses] == [each.resource_name for each in resources]
    assert all(bool(each.error_message) == bool(each.error_code) for each in answer.responses)
    return [each.error_code for each in answer.responses]


@pytest.mark.parametrize("version", versions(altering.API))
@asynchronous
async def test_every_version_changes_single_settings_or_only_checks(version: int) -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {"flush": "os", "retention.ms": "1000"})
        wanted = [
            resource(TOPIC, "orders", ("flush", DELETE, None), ("cleanup.policy", APPEND, "compact")),
            resource(BROKER, "", ("segment.bytes", SET, "4096")),
        ]
        assert await ask(visitor, *wanted, version=version, validate_only=True) == [0, 0]
        assert topic.overrides == {"flush": "os", "retention.ms": "1000"}
        assert await ask(visitor, *wanted, version=version) == [0, 0]
        assert topic.overrides == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
        assert visitor.broker.broker_overrides == {"segment.bytes": "4096"}
        assert await ask(visitor, resource(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")), version=version)
        assert visitor.broker.partition("orders", 0).log.config.compacts


@asynchronous
async def test_what_makes_no_sense_is_refused_alone() -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {})
        codes = await ask(
            visitor,
            resource(TOPIC, "unknown", ("flush", SET, "os")),
            resource(TOPIC, "orders", ("flush", SET, "os"), ("flush", SET, "os")),
            resource(TOPIC, "orders", ("flush", SET, None)),
            resource(TOPIC, "orders", ("flush", 9, "os")),
            resource(TOPIC, "orders", ("flush", APPEND, "os")),
            resource(TOPIC, "orders", ("unknown", SET, "1")),
            resource(BROKER, "7", ("flush", SET, "os")),
            resource(TOPIC, "orders", ("retention.ms", SET, "1000")),
        )
        assert codes == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
        assert topic.overrides == {"retention.ms": "1000"}


@asynchronous
async def test_changes_at_the_same_time_do_not_undo_each_other() -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {})
        changes = {"retention.ms": "1000", "segment.bytes": "4096", "flush": "os", "segment.ms": "5000"}
        done = await asyncio.gather(
            *(ask(visitor, resource(TOPIC, "orders", (name, SET, value))) for name, value in changes.items())
        )
        assert done == [[0]] * len(changes)
        assert topic.overrides == changes
