"""The Python client of Odradek and of any other Kafka broker: produce, consume, administer, on asyncio.

    async with Client("127.0.0.1:9092") as client, client.producer() as producer:
        await producer.send("greetings", b"hello")

`odradek.client.sync` is the same for programs without an event loop.
"""

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
