"""The services behind the gRPC door, put together."""

from __future__ import annotations

from contextlib import AsyncExitStack

from odradek.broker.broker import Broker
from odradek.broker.consumers import Consumers
from odradek.broker.eeylops_reading import EeylopsReading
from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.eeylops import EeylopsDoor
from odradek.edge.grpc.mykafka import MyKafkaDoor
from odradek.edge.grpc.server import Service
from odradek.groups.coordinator import Coordinator


def services(
    broker: Broker, groups: Coordinator, config: GrpcDoorConfig, secret: str | None, parts: AsyncExitStack
) -> list[Service]:
    """What the gRPC door of a broker serves; what must be closed when no call is under way any more goes to `parts`."""
    consumers = Consumers(broker, groups, secret)
    parts.push_async_callback(consumers.close)
    reading = EeylopsReading(broker, consumers, config)
    return [MyKafkaDoor(broker, config), EeylopsDoor(broker, reading, consumers, config)]
