"""DescribeConfigs of every version: values, sources, synonyms, types and documentation."""

from __future__ import annotations

import pytest

from odradek.apis import describe_configs as describing
from odradek.settings_rows import SETTINGS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_configs
from odradek.wire.messages.describe_configs import RequestResource, ResponseConfig
from tests.apis.houses import Visitor, versions, visiting
from tests.client.support import asynchronous

TOPIC, BROKER = 2, 4
WITH_TYPES = 3


async def ask(
    visitor: Visitor, *resources: RequestResource, version: int = 4, synonyms: bool = False, texts: bool = False
) -> list[describe_configs.ResponseResult]:
    asked = describe_configs.Request(resources=list(resources), include_synonyms=synonyms, include_documentation=texts)
    answer = await visitor.ask(describing.API, version, asked, describe_configs.Response)
    assert [(each.resource_type, each.resource_name) for each in answer.results] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return answer.results


def resource(kind: int, name: str, keys: list[str] | None = None) -> RequestResource:
    return RequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)


def by_name(result: describe_configs.ResponseResult) -> dict[str, ResponseConfig]:
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_describes_topics_and_the_broker(version: int) -> None:
    async with visiting(settings={"retention.ms": 9000}) as visitor:
        await visitor.broker.create_topic("orders", 1, {"flush": "os"})
        of_topic, of_broker = await ask(
            visitor, resource(TOPIC, "orders"), resource(BROKER, "1"), version=version, synonyms=True, texts=True
        )
        flush = by_name(of_topic)["flush"]
        assert (flush.value, flush.config_source, flush.read_only, flush.is_sensitive) == ("os", 1, False, False)
        assert [(each.name, each.value, each.source) for each in flush.synonyms] == [
            ("flush", "os", 1),
            ("flush", "group", 5),
        ]
        assert by_name(of_topic)["retention.ms"].config_source == 4
        assert by_name(of_topic)["segment.bytes"].config_source == 5
        assert set(by_name(of_topic)) == {name for name, row in SETTINGS.items() if row.scope == "topic"}
        addresses = by_name(of_broker).pop("advertised.listeners", None)
        assert addresses is not None and addresses.read_only and addresses.config_source == 4
        assert set(by_name(of_broker)) == {*SETTINGS, "advertised.listeners"}
        assert by_name(of_broker)["broker.id"].read_only
        if version >= WITH_TYPES:
            assert by_name(of_topic)["retention.ms"].config_type == 5
            for name, config in by_name(of_broker).items():
                if name in SETTINGS:
                    assert config.documentation == SETTINGS[name].summary
                assert config.config_type > 0


@asynchronous
async def test_synonyms_texts_and_other_settings_come_only_if_asked_for() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {"flush": "os"})
        (told,) = await ask(visitor, resource(TOPIC, "orders", ["flush", "unknown"]))
        assert list(by_name(told)) == ["flush"]
        assert (told.configs[0].synonyms, told.configs[0].documentation) == ([], None)


@asynchronous
async def test_every_value_can_be_read_by_the_setting_that_it_is_of() -> None:
    async with visiting() as visitor:
        (told,) = await ask(visitor, resource(BROKER, ""))
        for name, config in by_name(told).items():
            if name == "advertised.listeners":  # ours is called advertised.kafka; this is for Kafka's tools
                assert config.value is not None and config.value.startswith("PLAINTEXT://")
                continue
            assert SETTINGS[name].read(config.value, "test") == visitor.house.settings[name], name


@asynchronous
async def test_a_resource_that_is_not_here_is_refused_alone() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        told = await ask(
            visitor, resource(TOPIC, "unknown"), resource(BROKER, "2"), resource(9, "x"), resource(TOPIC, "orders")
        )
        assert [each.error_code for each in told] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
        assert all(each.error_message and not each.configs for each in told[:3])
