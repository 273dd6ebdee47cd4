"""ListConfigResources of every version: what has settings here."""

from __future__ import annotations

import pytest

from odradek.apis import list_config_resources as listing
from odradek.wire.messages import list_config_resources
from tests.apis.houses import versions, visiting
from tests.client.support import asynchronous

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16


@pytest.mark.parametrize("version", versions(listing.API))
@pytest.mark.parametrize("kinds", [[], [TOPIC], [BROKER], [TOPIC, BROKER], [CLIENT_METRICS]])
@asynchronous
async def test_every_version_lists_what_it_can_ask_for(version: int, kinds: list[int]) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        asked = list_config_resources.Request(resource_types=kinds)
        answer = await visitor.ask(listing.API, version, asked, list_config_resources.Response)
        found = {(each.resource_type, each.resource_name) for each in answer.config_resources} if version else set()
        every = {(TOPIC, "orders"), (BROKER, "1")} if version else set()
        assert found == {each for each in every if not kinds or each[0] in kinds}
        assert answer.error_code == 0
