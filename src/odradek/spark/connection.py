"""One blocking client a process and address, kept for as long as the process lives.

Spark reuses its Python processes, so a task finds the connection of the one before it. A client does not survive a
fork: each is kept under the number of the process that made it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import uvloop

from odradek.client.errors import ClientError
from odradek.client.sync import Client
from odradek.spark.errors import UnreachableError

REQUEST_TIMEOUT_MS = 15_000
TIMEOUT_MS = 120_000  # a broker may take this long to come back
FIRST_CONTACT_MS = 6_000  # a wrong address is not worth more


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach a cluster, and how patient to be."""

    bootstrap: str
    client_id: str = "odradek-spark"
    request_timeout_ms: int = REQUEST_TIMEOUT_MS  # for the answer to one request
    timeout_ms: int = TIMEOUT_MS  # for an operation with all its retries


class _Slot:
    """A place for a client, and the lock of those who wait for it to be made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.client: Client | None = None


_slots: dict[tuple[int, ConnectionOptions], _Slot] = {}  # by the number of the process


def connect(options: ConnectionOptions) -> Client:
    """The client of this process for an address. It waits for a broker that is away; for tasks."""
    return _client(options, is_first_contact=False)


def connect_first(options: ConnectionOptions) -> Client:
    """The same for the driver, where a first contact that fails is more likely a wrong address than a broker's rest."""
    return _client(options, is_first_contact=True)


def _client(options: ConnectionOptions, *, is_first_contact: bool) -> Client:
    slot = _slots.setdefault((os.getpid(), options), _Slot())
    with slot.lock:
        if slot.client is None:
            if is_first_contact:
                _knock(options)
            slot.client = _started(options, options.timeout_ms)
        return slot.client


def _knock(options: ConnectionOptions) -> None:
    """See whether anybody is there at all."""
    _started(options, min(FIRST_CONTACT_MS, options.timeout_ms)).close()


def _started(options: ConnectionOptions, timeout_ms: int) -> Client:
    try:
        client = Client(
            options.bootstrap,
            loop_factory=uvloop.new_event_loop,
            client_id=options.client_id,
            timeout_ms=timeout_ms,
            request_timeout_ms=options.request_timeout_ms,
        )
        client.start()
    except (ClientError, ValueError) as error:
        raise UnreachableError(
            f"no Kafka broker answered at kafka.bootstrap.servers = {options.bootstrap} within {timeout_ms / 1000:g} s:"
            f" {error}"
        ) from None
    return client
