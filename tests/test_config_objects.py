"""The settings of object stores: what follows from what, and what contradicts each other."""

from __future__ import annotations

import pytest

from odradek.broker.objects_config import TopicObjects
from odradek.config import SettingError, default_settings, load_settings


def test_objects_go_into_the_data_directory_unless_a_store_is_named() -> None:
    own = load_settings(None, {}, {"--data": "/data"}).objects_config()
    assert (own.store_url, own.store_is_own) == ("file:///data/objects", True)
    shared = load_settings(None, {}, {"store.url": "s3://bucket/there"}).objects_config()
    assert (shared.store_url, shared.store_is_own) == ("s3://bucket/there", False)


def test_local_retention_is_retention_unless_it_says_otherwise() -> None:
    settings = default_settings()
    same = TopicObjects.of(settings.with_overrides({"retention.ms": "7000"}).values)
    other = TopicObjects.of(settings.with_overrides({"local.retention.ms": "5", "local.retention.bytes": "-1"}).values)
    assert (same.local_retention_ms, same.local_retention_bytes) == (7_000, -1)
    assert (other.local_retention_ms, other.local_retention_bytes) == (5, -1)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"channel.slice.ms": "7"}, "no multiple"),
        ({"channel.fifo": "true"}, "LogAppendTime"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact,delete"}, "compact"),
        ({"channel.store": "s3://bucket", "cleanup.policy": "compact"}, "every message"),
    ],
)
def test_settings_of_channels_and_archives_that_contradict_each_other_are_refused(
    overrides: dict[str, str], problem: str
) -> None:
    with pytest.raises(SettingError, match=problem):
        default_settings().with_overrides(overrides)
