"""What the core asks of the settings in force; `odradek.config.Settings` is what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek.broker.objects_config import ObjectsConfig
from odradek.log.config import LogConfig
from odradek.settings_table import Value


class SettingsView(Protocol):
    """Every setting's value and where it came from."""

    @property
    def values(self) -> Mapping[str, Value]:
        """By name."""

    def source(self, name: str) -> str:
        """Say where a value came from: `default`, `topic`, `broker`, or a place outside."""

    def log_config(self, overrides: Mapping[str, object] = ...) -> LogConfig:
        """What the logs of a topic read that has these settings for itself; SettingError if it cannot have them."""

    def objects_config(self) -> ObjectsConfig:
        """What channels and archived segments read."""

    def with_overrides(self, overrides: Mapping[str, object], source: str = ...) -> SettingsView:
        """Lay a topic's settings over these."""
