"""What the parts that use object stores can be told; `odradek.config` makes it from the table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, cast

from odradek.settings_table import Value

_SAME = -2  # of local.retention.*


@dataclass(frozen=True, slots=True)
class ObjectsConfig:
    """The settings of one broker, named as in the table with `_` for `.`."""

    store_url: str  # never empty: without a setting it is a directory of the broker's own
    store_is_own: bool  # it is that directory, which no other broker reads
    store_threads: int
    channel_backlog_bytes: int
    channel_timeout_ms: int
    rama_max_skew_ms: int
    client_failures_max: int
    remote_log_manager_task_interval_ms: int


@dataclass(frozen=True, slots=True)
class TopicObjects:
    """The settings of one topic."""

    remote_storage_enable: bool
    local_retention_ms: int  # -1: unlimited
    local_retention_bytes: int  # -1: unlimited
    channel_store: str  # "": it is no channel
    channel_window_ms: int
    channel_slice_ms: int
    channel_slice_bytes: int
    channel_grace_ms: int
    channel_fifo: bool
    channel_retention_ms: int
    clients_required: bool

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Self:
        """Take them from the values of all settings, the topic's own laid over the broker's."""

        def number(name: str) -> int:
            return cast("int", values[name])

        def local(name: str) -> int:
            own = number(f"local.{name}")
            return number(name) if own == _SAME else own

        return cls(
            remote_storage_enable=bool(values["remote.storage.enable"]),
            local_retention_ms=local("retention.ms"),
            local_retention_bytes=local("retention.bytes"),
            channel_store=cast("str", values["channel.store"]),
            channel_window_ms=number("channel.window.ms"),
            channel_slice_ms=number("channel.slice.ms"),
            channel_slice_bytes=number("channel.slice.bytes"),
            channel_grace_ms=number("channel.grace.ms"),
            channel_fifo=bool(values["channel.fifo"]),
            channel_retention_ms=number("channel.retention.ms"),
            clients_required=bool(values["clients.required"]),
        )
