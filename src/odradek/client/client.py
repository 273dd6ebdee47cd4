"""The way in: a Client knows a cluster; producers, consumers and the admin share its knowledge of topics and leaders.

It negotiates versions with every broker it talks to, so any Kafka from 2.1 on will do. No SASL and no TLS yet.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from odradek.client.address import parse_addresses
from odradek.client.cluster import Cluster, Timeouts
from odradek.client.producer import Acks, Producer
from odradek.client.retry import retry
from odradek.client.sender import ProducerSettings
from odradek.clock import Clock, SystemClock
from odradek.records.compression import Codec, codec_from_name

CONNECT_TIMEOUT_MS = 5_000


class Client:
    """A client of one cluster. Use it with `async with`, or call start() and close()."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "odradek",
        timeout_ms: int = 30_000,
        request_timeout_ms: int = 15_000,
        clock: Clock | None = None,
    ) -> None:
        """`timeout_ms` bounds an operation with all its retries, `request_timeout_ms` the wait for one answer."""
        self._addresses = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        connect_ms = min(CONNECT_TIMEOUT_MS, timeout_ms)
        self._timeouts = Timeouts(timeout_ms, min(request_timeout_ms, timeout_ms), connect_ms)
        self._clock = SystemClock() if clock is None else clock
        self._cluster: Cluster | None = None

    async def start(self) -> None:
        """Find the cluster."""
        cluster = self._cluster = Cluster(self._addresses, self._client_id, self._timeouts, self._clock)
        try:
            await retry(cluster.refresh, what="finding the cluster", timeout_ms=self._timeouts.total_ms)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections. Producers and consumers are closed before, by those who made them."""
        if self._cluster is not None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def cluster(self) -> Cluster:
        """Nodes, topics and requests: for those who need more than producers, consumers and the admin."""
        if self._cluster is None:
            raise RuntimeError("the client is not started: use it within `async with Client(...) as client:`")
        return self._cluster

    def producer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec | str = Codec.NONE,
        linger_ms: float = 0,
        batch_bytes: int = 256 * 1024,
        request_bytes_max: int = 4 * 1024 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        delivery_timeout_ms: int | None = None,
        idempotent: bool | None = None,
    ) -> Producer:
        """A producer, to be used with `async with`. Idempotent where possible: with acks="all".

        A record fails when it is not acknowledged within `delivery_timeout_ms` (by default the client's `timeout_ms`).
        """
        if acks not in ("all", 0, 1, -1):
            raise ValueError(f'acks is "all", 1 or 0, not {acks!r}')
        wants_all = acks in ("all", -1)
        if idempotent and not wants_all:
            raise ValueError('an idempotent producer needs acks="all"')
        if min(batch_bytes, request_bytes_max, buffer_bytes) <= 0 or linger_ms < 0:
            raise ValueError("the sizes of a producer are positive, and linger_ms is not negative")
        settings = ProducerSettings(
            acks=-1 if acks == "all" else acks,
            codec=codec if isinstance(codec, Codec) else codec_from_name(codec),
            linger_s=linger_ms / 1000,
            batch_bytes=batch_bytes,
            request_bytes_max=request_bytes_max,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=self._timeouts.total_ms if delivery_timeout_ms is None else delivery_timeout_ms,
            idempotent=wants_all if idempotent is None else idempotent,
        )
        return Producer(self.cluster, settings)
