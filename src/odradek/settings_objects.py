"""The rows of the table of settings about object stores: channels, archived segments, and who may use a topic by REST.

They stand apart from the other rows (`odradek.settings_rows`, which takes them in) because there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from odradek.settings_table import DAY_MS, GIB, INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, TIB, Kind, Setting, Value

_UNLIMITED = (-1, "unlimited")
_SAME = -2
_SAME_AS_RETENTION = (_SAME, "the same as without `local.`")

OBJECT_TOPIC_ROWS = (
    Setting(
        "remote.storage.enable", "topic", Kind.BOOLEAN, False,
        "Closed segments are copied into the object store of `store.url`; the disk then keeps only what "
        "`local.retention.ms` and `local.retention.bytes` say, and older offsets are read from the store.",
    ),
    Setting(
        "local.retention.ms", "topic", Kind.DURATION, -2,
        "With `remote.storage.enable`, how long a closed segment stays on the disk after it was copied; "
        "`retention.ms` says when the copy goes.",
        low=-1, special=_SAME_AS_RETENTION,
    ),
    Setting(
        "local.retention.bytes", "topic", Kind.SIZE, -2,
        "With `remote.storage.enable`, how much of a partition stays on the disk; `retention.bytes` bounds the whole.",
        low=-1, special=_SAME_AS_RETENTION,
    ),
    Setting(
        "channel.store", "topic", Kind.TEXT, "",
        "The URL of the object store that a channel's messages are kept in; a topic without one is no channel.",
    ),
    Setting(
        "channel.window.ms", "topic", Kind.DURATION, MINUTE_MS,
        "The time that one bucket of a channel spans; messages of different buckets are read in order.",
        low=1, high=MINUTE_MS,
    ),
    Setting(
        "channel.slice.ms", "topic", Kind.DURATION, SECOND_MS,
        "How long a channel's messages are collected before they are put into the store as one object; the window "
        "is a multiple of it.",
        low=1, high=MINUTE_MS,
    ),
    Setting(
        "channel.slice.bytes", "topic", Kind.SIZE, 64 * MIB,
        "Messages of this many bytes are put into the store without waiting for the end of the slice.",
        low=KIB, high=GIB,
    ),
    Setting(
        "channel.grace.ms", "topic", Kind.DURATION, 30 * SECOND_MS,
        "How long after the end of a slice a reader that follows a channel in the store still looks for late objects.",
        high=DAY_MS,
    ),
    Setting(
        "channel.fifo", "topic", Kind.BOOLEAN, False,
        "Messages of a channel are kept strictly in the order of their arrival; it needs one partition and "
        "`message.timestamp.type` = LogAppendTime.",
    ),
    Setting(
        "channel.retention.ms", "topic", Kind.DURATION, -1,
        "Buckets of a channel that are older than this are deleted from the store.",
        special=_UNLIMITED,
    ),
    Setting(
        "clients.required", "topic", Kind.BOOLEAN, False,
        "Only clients that are registered with the topic may publish and read by REST, with their key in the header "
        "`client_key`.",
    ),
)  # fmt: skip

OBJECT_BROKER_ROWS = (
    Setting(
        "store.url", "broker", Kind.TEXT, "",
        "The object store for channels and archived segments: s3://, gs://, az:// or file://, the same for all brokers "
        "of a cluster; without one it is the folder `objects` in the data directory.",
    ),
    Setting(
        "store.threads", "broker", Kind.COUNT, 8,
        "Requests to object stores that may be under way at the same time.",
        low=1, high=256,
    ),
    Setting(
        "channel.backlog.bytes", "broker", Kind.SIZE, 256 * MIB,
        "Bytes of a channel's partition that may wait for the store; beyond them publishing is refused until some "
        "are stored.",
        low=KIB, high=TIB,
    ),
    Setting(
        "channel.timeout.ms", "broker", Kind.DURATION, 10 * SECOND_MS,
        "How long a publisher of a channel waits for the store before it is told that the store is away.",
        low=100, high=INT_MAX,
    ),
    Setting(
        "rama.max.skew.ms", "broker", Kind.DURATION, 10 * SECOND_MS,
        "A message whose `_ts` is further than this from the broker's clock is refused.",
        low=1,
    ),
    Setting(
        "client.failures.max", "broker", Kind.COUNT, 10,
        "Wrong client keys a minute from one address on one topic, beyond which it has to wait.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "remote.log.manager.task.interval.ms", "broker", Kind.DURATION, 30 * SECOND_MS,
        "How often a broker looks for closed segments that are to be copied into the object store, and for copies "
        "that are too old.",
        low=10, high=INT_MAX,
    ),
)  # fmt: skip


def contradiction(values: Mapping[str, Value]) -> str | None:
    """Say what is wrong with values of these rows that are right each for itself; None if nothing is."""
    window, piece = values["channel.window.ms"], values["channel.slice.ms"]
    if isinstance(window, int) and isinstance(piece, int) and window % piece:
        return f"channel.window.ms = {window} is no multiple of channel.slice.ms = {piece}: a slice lies in one bucket"
    if values["channel.fifo"] and values["message.timestamp.type"] != "LogAppendTime":
        return "channel.fifo = true needs message.timestamp.type = LogAppendTime: the order is that of arrival"
    if values["channel.store"] and "compact" in cast("frozenset[str]", values["cleanup.policy"]):
        return "a channel.store and cleanup.policy = compact: a channel keeps every message; choose one of the two"
    return _archive_contradiction(values) if values["remote.storage.enable"] else None


def _archive_contradiction(values: Mapping[str, Value]) -> str | None:
    if "compact" in cast("frozenset[str]", values["cleanup.policy"]):
        return (
            "remote.storage.enable = true and cleanup.policy = compact: segments are copied as they are, and cannot be "
            "compacted afterwards; choose one of the two"
        )
    if values["channel.store"]:
        return (
            "remote.storage.enable = true and a channel.store: the messages of a channel are in its store already; "
            "choose one of the two"
        )
    for name in ("retention.ms", "retention.bytes"):
        local, whole = cast("int", values[f"local.{name}"]), cast("int", values[name])
        if local != _SAME and whole >= 0 and not 0 <= local <= whole:
            return (
                f"local.{name} = {local} is more than {name} = {whole}: the disk cannot keep what the archive has "
                "let go; lower the first or raise the second"
            )
    return None
