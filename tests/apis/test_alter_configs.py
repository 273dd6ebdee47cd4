"""AlterConfigs of every version: exactly what is named is set, or nothing."""

from __future__ import annotations

import pytest

from odradek.apis import alter_configs as altering
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import alter_configs
from odradek.wire.messages.alter_configs import RequestConfig, RequestResource
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.houses import SlowDisk
from tests.client.support import asynchronous

TOPIC, BROKER = 2, 4


def resource(kind: int, name: str, **configs: str | None) -> RequestResource:
    """Settings by their names with `_` for `.`."""
    named = [RequestConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return RequestResource(resource_type=kind, resource_name=name, configs=named)


async def ask(
    visitor: Visitor, *resources: RequestResource, version: int = 2, validate_only: bool = False
) -> list[alter_configs.ResponseResource]:
    asked = alter_configs.Request(resources=list(resources), validate_only=validate_only)
    answer = await visitor.ask(altering.API, version, asked, alter_configs.Response)
    assert [each.resource_name for each in answer.responses] == [each.resource_name for each in resources]
    return answer.responses


@pytest.mark.parametrize("version", versions(altering.API))
@asynchronous
async def test_every_version_sets_anew_or_only_checks(version: int) -> None:
    disk = SlowDisk()
    async with visiting(disk) as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {"flush": "os"})
        wanted = [resource(TOPIC, "orders", retention_ms="1000"), resource(BROKER, "", segment_bytes="4096")]
        told = await ask(visitor, *wanted, version=version, validate_only=True)
        assert [each.error_code for each in told] == [0, 0]
        assert (topic.overrides, visitor.broker.broker_overrides) == ({"flush": "os"}, {})
        told = await ask(visitor, *wanted, version=version)
        assert [each.error_code for each in told] == [0, 0]
        config = visitor.broker.partition("orders", 0).log.config
        assert (config.retention_ms, config.segment_bytes, config.flush.value) == (1000, 4096, "group")
    async with visiting(disk) as visitor:
        config = visitor.broker.partition("orders", 0).log.config
        assert (config.retention_ms, config.segment_bytes) == (1000, 4096), "also in the next life"


@asynchronous
async def test_what_cannot_be_set_is_refused_alone() -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {})
        for validate_only in (True, False):
            told = await ask(
                visitor,
                resource(TOPIC, "unknown", retention_ms="1"),
                resource(TOPIC, "orders", retention_ms="1", flush="never"),
                resource(BROKER, "1", broker_id="9"),
                resource(BROKER, "2", retention_ms="1"),
                resource(8, "1", retention_ms="1"),
                validate_only=validate_only,
            )
            assert [each.error_code for each in told] == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_CONFIG,
                ErrorCode.INVALID_CONFIG,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.INVALID_REQUEST,
            ]
            assert all(each.error_message for each in told)
        assert topic.overrides == {}


@asynchronous
async def test_a_null_value_means_the_default() -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic("orders", 1, {"flush": "os"})
        (told,) = await ask(visitor, resource(TOPIC, "orders", flush=None))
        assert (told.error_code, topic.overrides) == (0, {})
