"""Settings as Kafka's admin clients see them: a resource's entries, where each value comes from, and how to change it.

Topics have the settings of scope `topic`. The broker shows all; while it runs only the topics' defaults can be
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.broker.broker import Broker, Overrides
from odradek.broker.settings import SettingsView
from odradek.settings_rows import SETTINGS
from odradek.settings_table import INT_MAX, Kind, Setting
from odradek.wire.errors import ErrorCode, PeerError


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a value comes from, as the protocol numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What an incremental change does (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One incremental change."""

    name: str
    operation: int
    value: str | None


class Synonym(NamedTuple):
    """A value that would hold if those before it did not."""

    value: str
    source: Source


class Entry(NamedTuple):
    """One setting of a resource."""

    setting: Setting
    value: str
    source: Source
    read_only: bool
    synonyms: list[Synonym]  # the value in force first

    @property
    def config_type(self) -> int:
        """The number of its type in DescribeConfigs version 3."""
        if self.setting.kind in (Kind.SIZE, Kind.DURATION, Kind.COUNT):
            return 3 if self.setting.high <= INT_MAX else 5
        return {Kind.BOOLEAN: 1, Kind.RATIO: 6, Kind.CHOICES: 7}.get(self.setting.kind, 2)


def describe(broker: Broker, resource_type: int, name: str, wanted: Sequence[str] | None) -> list[Entry]:
    """The entries of a resource; all of them unless some are named."""
    if resource_type == ResourceType.TOPIC:
        overrides: Mapping[str, str] | None = broker.topic(name).overrides
    else:
        _check_broker(broker, resource_type, name)
        overrides = None
    names = [
        setting.name
        for setting in SETTINGS.values()
        if (overrides is None or setting.scope == "topic") and (wanted is None or setting.name in wanted)
    ]
    return [_entry(SETTINGS[each], broker.settings, overrides) for each in names]


def _check_broker(broker: Broker, resource_type: int, name: str) -> None:
    if resource_type != ResourceType.BROKER:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
    if name not in ("", str(broker.node_id)):
        raise PeerError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}")


def _entry(setting: Setting, settings: SettingsView, overrides: Mapping[str, str] | None) -> Entry:
    synonyms = list(_synonyms(setting, settings, overrides or {}))
    first = synonyms[0]
    return Entry(setting, first.value, first.source, overrides is None and setting.scope != "topic", synonyms)


def _synonyms(setting: Setting, settings: SettingsView, overrides: Mapping[str, str]) -> Iterator[Synonym]:
    if setting.name in overrides:
        value = setting.read(overrides[setting.name], "topic")
        yield Synonym(setting.text(value), Source.TOPIC)
    source = settings.source(setting.name)
    if source == "broker":
        yield Synonym(setting.text(settings.values[setting.name]), Source.DYNAMIC_BROKER_DEFAULT)
    elif source != "default":
        yield Synonym(setting.text(settings.values[setting.name]), Source.STATIC_BROKER)
    yield Synonym(setting.text(setting.default), Source.DEFAULT)


async def replace(
    broker: Broker, resource_type: int, name: str, configs: Mapping[str, str | None], validate_only: bool
) -> None:
    """Set exactly these, and nothing else, for a resource; a null value means its default."""
    overrides = {key: value for key, value in configs.items() if value is not None}
    await _set(broker, resource_type, name, overrides, validate_only)


async def change(broker: Broker, resource_type: int, name: str, changes: Sequence[Change], validate_only: bool) -> None:
    """Change single settings of a resource."""
    if len({each.name for each in changes}) < len(changes):
        raise PeerError(ErrorCode.INVALID_REQUEST, "a setting is changed twice in one request")
    entries = {entry.setting.name: entry for entry in describe(broker, resource_type, name, None)}

    def changed(present: Mapping[str, str]) -> Mapping[str, str]:
        overrides = dict(present)
        for each in changes:
            _apply(overrides, each, entries.get(each.name))
        return overrides

    await _set(broker, resource_type, name, changed, validate_only)


def _apply(overrides: dict[str, str], each: Change, entry: Entry | None) -> None:
    if each.operation == Operation.DELETE:
        overrides.pop(each.name, None)
        return
    if each.value is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{each.name} needs a value")
    if each.operation == Operation.SET:
        overrides[each.name] = each.value
        return
    if each.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise PeerError(ErrorCode.INVALID_REQUEST, f"there is no operation {each.operation}")
    if entry is None or entry.setting.kind is not Kind.CHOICES:
        raise PeerError(ErrorCode.INVALID_CONFIG, f"{each.name} is not a list: it cannot be added to or taken from")
    present = [word for word in overrides.get(each.name, entry.value).split(",") if word]
    given = [word.strip() for word in each.value.split(",")]
    if each.operation == Operation.APPEND:
        present += [word for word in given if word not in present]
    else:
        present = [word for word in present if word not in given]
    overrides[each.name] = ",".join(present)


async def _set(broker: Broker, resource_type: int, name: str, change: Overrides, validate_only: bool) -> None:
    """Change a resource's own settings; the broker computes them anew from what they are when their turn comes."""
    if resource_type == ResourceType.TOPIC:
        topic = broker.topic(name)
        if validate_only:
            broker.check_overrides(change(topic.overrides) if callable(change) else change)
        else:
            await broker.set_topic_overrides(name, change)
        return
    _check_broker(broker, resource_type, name)
    if validate_only:
        broker.check_broker_overrides(change(broker.broker_overrides) if callable(change) else change)
    else:
        await broker.set_broker_overrides(change)
