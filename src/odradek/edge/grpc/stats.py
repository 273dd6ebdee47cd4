"""How many gRPC calls there were and are. Imports no grpc: the page of metrics reads it also where the door is off."""

from __future__ import annotations

from collections import Counter


class CallStats:
    """What the gRPC door counts."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()  # that have ended, by method and code
        self.open = 0  # under way now, streams included
        self.request_bytes = 0  # since the start
        self.held_bytes = 0  # of requests under way that are no streams
