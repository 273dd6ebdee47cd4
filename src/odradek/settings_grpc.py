"""The rows of the table of settings about the gRPC door; `odradek.settings_rows` takes them in."""

from __future__ import annotations

from odradek.settings_table import GIB, INT_MAX, KIB, MIB, Kind, Setting

GRPC_ROWS = (
    Setting(
        "grpc", "broker", Kind.ADDRESS, "127.0.0.1:50051",
        "Where gRPC clients connect (MyKafka's and Eeylops' services). If nothing is said and this port is taken, the "
        "broker starts without the door.",
        choices=("off",), flag="--grpc",
    ),
    Setting(
        "advertised.grpc", "broker", Kind.ADDRESS, "auto",
        "The address that gRPC clients and the other brokers are told to use, where it differs from the one that is "
        "listened on: behind a proxy, in a container.",
        choices=("auto",),
    ),
    Setting(
        "max.grpc.message.bytes", "broker", Kind.SIZE, 8 * MIB,
        "A larger gRPC message is refused with RESOURCE_EXHAUSTED; answers are made smaller than this.",
        low=64 * KIB, high=GIB,
    ),
    Setting(
        "max.grpc.calls", "broker", Kind.COUNT, 4_096,
        "So many gRPC calls, streams included, may be under way; more are refused with RESOURCE_EXHAUSTED.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "max.grpc.stream.bytes", "broker", Kind.SIZE, 4 * MIB,
        "A Publish stream is not read on while it has so many bytes that are not stored yet, nor a Subscribe stream "
        "written on while its reader has so many to take.",
        low=64 * KIB, high=GIB,
    ),
)  # fmt: skip
