"""Channels in an object store: written and read by any program, with no broker running.

    from odradek.objects import ChannelReader, ChannelSpec, ChannelWriter, create_channel, open_store

    store = open_store("s3://bucket/path")  # or gs://, az://, file:///directory, memory://name
    spec = ChannelSpec("orders", id="a random name")
    create_channel(store, spec)
    with ChannelWriter(store, spec) as writer:
        writer.publish({"x": 42}).result()  # in the store when it returns
    for message in ChannelReader(store, "orders", start=0, end_ms=2_000_000_000_000).iterate():
        print(message.timestamp, message.value)

`ChannelReader.poll` and `follow` read what comes, `QueueReader` shares a channel among several readers. Names are
looked up when they are first used, so that a broker loads only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.objects.channels import create_channel, delete_channel, list_channels, load_channel, save_channel
    from odradek.objects.errors import (
        BufferFullError,
        ChannelMissingError,
        DamagedObjectError,
        ObjectExistsError,
        ObjectMissingError,
        StoreError,
        StoreUnavailableError,
        StoreURLError,
    )
    from odradek.objects.queue import Leased, QueueReader
    from odradek.objects.reader import ChannelReader, Position, ReadMessage, expire_channel, objects_between
    from odradek.objects.spec import ChannelSpec
    from odradek.objects.stores import ObjectInfo, ObjectStore, Requests, open_store
    from odradek.objects.writer import ChannelWriter

__all__ = [
    "BufferFullError",
    "ChannelMissingError",
    "ChannelReader",
    "ChannelSpec",
    "ChannelWriter",
    "DamagedObjectError",
    "Leased",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectMissingError",
    "ObjectStore",
    "Position",
    "QueueReader",
    "ReadMessage",
    "Requests",
    "StoreError",
    "StoreURLError",
    "StoreUnavailableError",
    "create_channel",
    "delete_channel",
    "expire_channel",
    "list_channels",
    "load_channel",
    "objects_between",
    "open_store",
    "save_channel",
]

_HOMES = {
    "BufferFullError": "errors",
    "ChannelMissingError": "errors",
    "ChannelReader": "reader",
    "ChannelSpec": "spec",
    "ChannelWriter": "writer",
    "DamagedObjectError": "errors",
    "Leased": "queue",
    "ObjectExistsError": "errors",
    "ObjectInfo": "stores",
    "ObjectMissingError": "errors",
    "ObjectStore": "stores",
    "Position": "reader",
    "QueueReader": "queue",
    "ReadMessage": "reader",
    "Requests": "stores",
    "StoreError": "errors",
    "StoreURLError": "errors",
    "StoreUnavailableError": "errors",
    "create_channel": "channels",
    "delete_channel": "channels",
    "expire_channel": "reader",
    "list_channels": "channels",
    "load_channel": "channels",
    "objects_between": "reader",
    "open_store": "stores",
    "save_channel": "channels",
}


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
