"""What the Kafka and gRPC doors can be told: the bounds that keep one client from harming the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaDoorConfig:
    """Named as in the table of settings with `_` for `.`."""

    socket_request_max_bytes: int
    socket_first_request_max_bytes: int  # until a client has shown that it speaks Kafka
    socket_frame_timeout_ms: int  # for a request to arrive in full
    socket_stall_timeout_ms: int  # for a client to read its answers
    connections_max_idle_ms: int
    max_connections_per_broker: int
    max_connections_per_ip: int
    connection_requests_max: int  # unanswered, of one connection
    connection_queued_max_bytes: int  # answers that one client has not read
    queued_answers_max_bytes: int  # answers that slow clients have not read, all together


@dataclass(frozen=True, slots=True)
class GrpcDoorConfig:
    """Named as in the table of settings with `_` for `.`."""

    max_grpc_message_bytes: int
    max_grpc_calls: int  # under way at once, streams included
    max_grpc_stream_bytes: int  # of one stream: taken and not stored, or given and not read
