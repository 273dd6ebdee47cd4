from __future__ import annotations

import pytest

from odradek.client.errors import ClientError
from odradek.client.versions import ApiRanges, api_name
from odradek.wire.api import ApiKey
from odradek.wire.messages import fetch, metadata, produce

OUR_HIGH = metadata.Request.versions[1]


def ranges(low: int, high: int) -> ApiRanges:
    return ApiRanges("broker:9092", {ApiKey.METADATA: (low, high)})


def test_the_highest_version_that_both_know_is_chosen() -> None:
    assert ranges(0, OUR_HIGH + 5).choose(metadata.Request) == OUR_HIGH
    assert ranges(0, 7).choose(metadata.Request) == 7
    assert ranges(0, OUR_HIGH).choose(metadata.Request, version_max=9) == 9


def test_an_api_that_the_broker_does_not_have_is_named() -> None:
    with pytest.raises(ClientError, match="broker:9092 does not offer Fetch"):
        ranges(0, 5).choose(fetch.Request)
    assert not ranges(0, 5).offers(fetch.Request)


def test_ranges_that_do_not_meet_are_both_named() -> None:
    with pytest.raises(ClientError, match=f"versions {OUR_HIGH + 1} to {OUR_HIGH + 2}, but 4 to {OUR_HIGH} are needed"):
        ranges(OUR_HIGH + 1, OUR_HIGH + 2).choose(metadata.Request)
    with pytest.raises(ClientError, match="upgraded"):
        ranges(10, OUR_HIGH).choose(metadata.Request, version_max=9)
    assert not ranges(OUR_HIGH + 1, OUR_HIGH + 2).offers(metadata.Request)
    assert ranges(OUR_HIGH, OUR_HIGH + 2).offers(metadata.Request)


def test_a_broker_that_takes_only_messages_of_old_is_refused() -> None:
    with pytest.raises(ClientError, match="offers Produce in versions 0 to 2, but 3 to"):
        ApiRanges("broker:9092", {ApiKey.PRODUCE: (0, 2)}).choose(produce.Request)


def test_an_api_has_the_name_that_kafkas_documentation_uses() -> None:
    assert api_name(ApiKey.LIST_OFFSETS) == "ListOffsets"
