"""API numbers and header versions, compared with kio's tables."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import kio.schema
import pytest

from odradek.wire.api import FLEXIBLE_SINCE, ApiKey, is_flexible, request_header_version, response_header_version

NO_LONGER_SPOKEN = {"leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown"}
ORACLE = sorted(
    module.name for module in pkgutil.iter_modules(kio.schema.__path__) if module.name.upper() in ApiKey.__members__
)


def entity(api: str, version: str, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.{version}.{kind}")
    # Structs within the message say the same as the message.
    return next(value for value in vars(module).values() if hasattr(value, "__header_schema__"))


def test_the_oracle_knows_every_api_that_is_still_spoken() -> None:
    assert {key.name.lower() for key in ApiKey} - set(ORACLE) == NO_LONGER_SPOKEN


@pytest.mark.parametrize("api", ORACLE)
def test_number_flexibility_and_headers_are_those_of_kafka(api: str) -> None:
    key = ApiKey[api.upper()]
    package = importlib.import_module(f"kio.schema.{api}")
    for version in [module.name for module in pkgutil.iter_modules(package.__path__) if module.name[1:].isdigit()]:
        number = int(version[1:])
        request, response = (entity(api, version, kind) for kind in ("request", "response"))
        assert request.__api_key__ == key
        assert request.__flexible__ == is_flexible(key, number)
        assert request.__header_schema__.__version__ == request_header_version(key, number)
        assert response.__header_schema__.__version__ == response_header_version(key, number)


def test_the_numbers_leave_no_gap_and_all_have_an_entry() -> None:
    assert [key.value for key in ApiKey] == list(range(len(ApiKey)))
    assert set(FLEXIBLE_SINCE) == set(range(len(ApiKey)))


def test_an_answer_to_api_versions_never_has_tags_in_its_header() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert [request_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [1, 1, 1, 2, 2]


def test_an_api_without_flexible_versions_keeps_the_old_header() -> None:
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert response_header_version(ApiKey.SASL_HANDSHAKE, 1) == 0


def test_a_number_that_names_no_api_is_the_callers_bug() -> None:
    with pytest.raises(ValueError, match="9999"):
        is_flexible(9999, 0)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        FLEXIBLE_SINCE[0] = 1  # type: ignore[index]
