"""The Python client of Odradek and of any other Kafka broker: produce, consume, administer, on asyncio.

    async with Client("127.0.0.1:9092") as client, client.producer() as producer:
        await producer.send("greetings", b"hello")

`odradek.client.sync` is the same for programs without an event loop. Names are looked up when they are first used: a
broker, which needs two files of this package, starts without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.accumulator import Delivery
    from odradek.client.admin import Admin
    from odradek.client.admin_types import (
        ClusterDescription,
        ConfigEntry,
        ConfigSource,
        GroupDescription,
        GroupListing,
        MemberDescription,
        PartitionLag,
        ResourceKind,
    )
    from odradek.client.client import Client
    from odradek.client.cluster import Node, PartitionInfo, TopicInfo
    from odradek.client.commits import CommittedOffset
    from odradek.client.consumer import Consumer
    from odradek.client.errors import (
        BrokerUnavailableError,
        BufferFullError,
        ClientError,
        RequestError,
        TimedOutError,
        UnknownTopicError,
    )
    from odradek.client.fetched import ConsumerRecord
    from odradek.client.offsets import OffsetInfo
    from odradek.client.producer import Producer
    from odradek.client.start import Start, parse_start
    from odradek.model import TopicPartition
    from odradek.records.record import Header, NewRecord

__all__ = [
    "Admin",
    "BrokerUnavailableError",
    "BufferFullError",
    "Client",
    "ClientError",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "GroupDescription",
    "GroupListing",
    "Header",
    "MemberDescription",
    "NewRecord",
    "Node",
    "OffsetInfo",
    "PartitionInfo",
    "PartitionLag",
    "Producer",
    "RequestError",
    "ResourceKind",
    "Start",
    "TimedOutError",
    "TopicInfo",
    "TopicPartition",
    "UnknownTopicError",
    "parse_start",
]

_HOMES = {
    "Admin": "odradek.client.admin",
    "BrokerUnavailableError": "odradek.client.errors",
    "BufferFullError": "odradek.client.errors",
    "Client": "odradek.client.client",
    "ClientError": "odradek.client.errors",
    "ClusterDescription": "odradek.client.admin_types",
    "CommittedOffset": "odradek.client.commits",
    "ConfigEntry": "odradek.client.admin_types",
    "ConfigSource": "odradek.client.admin_types",
    "Consumer": "odradek.client.consumer",
    "ConsumerRecord": "odradek.client.fetched",
    "Delivery": "odradek.client.accumulator",
    "GroupDescription": "odradek.client.admin_types",
    "GroupListing": "odradek.client.admin_types",
    "Header": "odradek.records.record",
    "MemberDescription": "odradek.client.admin_types",
    "NewRecord": "odradek.records.record",
    "Node": "odradek.client.cluster",
    "OffsetInfo": "odradek.client.offsets",
    "PartitionInfo": "odradek.client.cluster",
    "PartitionLag": "odradek.client.admin_types",
    "Producer": "odradek.client.producer",
    "RequestError": "odradek.client.errors",
    "ResourceKind": "odradek.client.admin_types",
    "Start": "odradek.client.start",
    "TimedOutError": "odradek.client.errors",
    "TopicInfo": "odradek.client.cluster",
    "TopicPartition": "odradek.model",
    "UnknownTopicError": "odradek.client.errors",
    "parse_start": "odradek.client.start",
}


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
