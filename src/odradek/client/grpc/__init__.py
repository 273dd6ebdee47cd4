"""Python clients of the gRPC doors, for coroutines and for programs without an event loop.

    with MyKafka("127.0.0.1:50051") as mykafka:
        mykafka.create_partition("orders", 0)
        offset = mykafka.send_message("orders", 0, b"three spools")

Names are looked up when they are first used: gRPC itself is imported by the first client that is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.grpc.eeylops import AsyncEeylops
    from odradek.client.grpc.eeylops_publisher import AsyncPublisher
    from odradek.client.grpc.eeylops_subscription import AsyncSubscription
    from odradek.client.grpc.eeylops_sync import Eeylops, Publisher
    from odradek.client.grpc.eeylops_types import Batch, ClusterConfig, Node, Topic, Value
    from odradek.client.grpc.errors import Code, EeylopsError, ErrorCodes, GrpcError, MyKafkaError
    from odradek.client.grpc.mykafka import AsyncMyKafka, Offsets
    from odradek.client.grpc.mykafka_sync import MyKafka

__all__ = [
    "AsyncEeylops",
    "AsyncMyKafka",
    "AsyncPublisher",
    "AsyncSubscription",
    "Batch",
    "ClusterConfig",
    "Code",
    "Eeylops",
    "EeylopsError",
    "ErrorCodes",
    "GrpcError",
    "MyKafka",
    "MyKafkaError",
    "Node",
    "Offsets",
    "Publisher",
    "Topic",
    "Value",
]

_HOMES = {
    "eeylops": ("AsyncEeylops",),
    "eeylops_publisher": ("AsyncPublisher",),
    "eeylops_subscription": ("AsyncSubscription",),
    "eeylops_sync": ("Eeylops", "Publisher"),
    "eeylops_types": ("Batch", "ClusterConfig", "Node", "Topic", "Value"),
    "errors": ("Code", "EeylopsError", "ErrorCodes", "GrpcError", "MyKafkaError"),
    "mykafka": ("AsyncMyKafka", "Offsets"),
    "mykafka_sync": ("MyKafka",),
}


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
