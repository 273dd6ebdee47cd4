"""ApiVersions of every version; and every API of the table, in every version, over a real socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from odradek import testing
from odradek.apis import api_versions as telling
from odradek.apis.registry import Api
from odradek.apis.table import APIS, SERVED
from odradek.wire.api import ApiKey
from odradek.wire.messages import api_versions
from odradek.wire.schema import Message
from tests.apis.houses import versions, visiting
from tests.client.support import asynchronous
from tests.edge.raw import RawClient


@pytest.mark.parametrize("version", versions(telling.API))
@asynchronous
async def test_every_version_lists_exactly_what_is_served(version: int) -> None:
    async with visiting() as visitor:
        asked = api_versions.Request(client_software_name="test", client_software_version="1")
        answer = await visitor.ask(telling.API, version, asked, api_versions.Response)
        assert answer.error_code == 0
        told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert told == {int(key): tuple(each) for key, each in SERVED.items()}
        assert len(answer.api_keys) == len(APIS)
        if version >= 3:
            assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [("group.version", 1)]
            assert answer.finalized_features_epoch == 0


def test_what_clients_cannot_do_without_is_served() -> None:
    """The least versions that Java clients 4 insist on (KIP-896), and Produce 0 for librdkafka's sake."""
    assert SERVED[ApiKey.PRODUCE].low == 0 and SERVED[ApiKey.PRODUCE].high >= 9
    for key, version in (
        (ApiKey.FETCH, 4),
        (ApiKey.LIST_OFFSETS, 1),
        (ApiKey.METADATA, 0),
        (ApiKey.JOIN_GROUP, 2),
        (ApiKey.API_VERSIONS, 0),
    ):
        assert SERVED[key].low <= version <= SERVED[key].high


def test_only_what_can_be_decoded_and_encoded_is_served() -> None:
    for key, api in APIS.items():
        low, high = api.request.versions
        assert low <= api.versions.low <= api.versions.high <= high, ApiKey(key).name
        assert api.key == key == api.request.api_key


def response_of(api: Api) -> type[Message]:
    """The class of an API's answers, which stands beside that of its requests."""
    response = sys.modules[api.request.__module__].Response
    assert isinstance(response, type) and issubclass(response, Message)
    return response


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with testing.broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield int(broker.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize(
    ("api", "version"),
    [pytest.param(api, version, id=f"{api.key.name}-{version}") for api in APIS.values() for version in versions(api)],
)
def test_every_version_of_every_api_answers_an_empty_request_over_a_socket(port: int, api: Api, version: int) -> None:
    with RawClient(port) as client:
        asked = api.request(acks=-1) if api.key is ApiKey.PRODUCE else api.request()
        client.ask(asked, response_of(api), version)
        again = client.ask(api_versions.Request(), api_versions.Response, 0)
        assert isinstance(again, api_versions.Response) and again.error_code == 0, "and the connection goes on"
