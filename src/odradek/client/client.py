"""The way in: a Client knows a cluster; producers, consumers and the admin share its knowledge of topics and leaders.

It negotiates versions with every broker it talks to, so any Kafka from 2.1 on will do. No SASL and no TLS yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Literal, Self, TypeAlias, TypeVar

from odradek.client.address import parse_addresses
from odradek.client.admin import Admin
from odradek.client.assignors import ASSIGNORS
from odradek.client.cluster import Cluster, Timeouts
from odradek.client.consumer import Consumer, ConsumerSettings, Listener
from odradek.client.fetcher import FetchSettings
from odradek.client.group_membership import GroupSettings
from odradek.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.producer import Acks, Producer
from odradek.client.retry import retry
from odradek.client.sender import ProducerSettings
from odradek.client.start import Start, StartLike, parse_start
from odradek.clock import Clock, SystemClock
from odradek.model import TopicPartition
from odradek.records.compression import Codec, codec_from_name
from odradek.wire.schema import Message

CONNECT_TIMEOUT_MS = 5_000

Answer = TypeVar("Answer", bound=Message)

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Mapping[str, int] = MappingProxyType(
    {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
)


class Client:
    """A client of one cluster. Use it with `async with`, or call start() and close()."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "odradek",
        timeout_ms: int = 30_000,
        request_timeout_ms: int = 15_000,
        metadata_max_age_ms: int = 60_000,
        clock: Clock | None = None,
    ) -> None:
        """`timeout_ms` bounds an operation with all its retries, `request_timeout_ms` the wait for one answer.

        After `metadata_max_age_ms` producers and consumers look whether their topics have got more partitions.
        """
        self._addresses = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        connect_ms = min(CONNECT_TIMEOUT_MS, timeout_ms)
        self._timeouts = Timeouts(timeout_ms, min(request_timeout_ms, timeout_ms), connect_ms, metadata_max_age_ms)
        self._clock = SystemClock() if clock is None else clock
        self._cluster: Cluster | None = None
        self._admin: Admin | None = None

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

    async def request(
        self, node_id: int | None, message: Message, answer: type[Answer], *, timeout_ms: int | None = None
    ) -> Answer:
        """Send any request to a node, or for None to any, at the highest common version; once, without retries."""
        if node_id is None:
            return await self.cluster.ask_any(message, answer)
        return await self.cluster.ask(node_id, message, answer, timeout_ms=timeout_ms)

    @property
    def admin(self) -> Admin:
        """Topics, settings and groups."""
        if self._admin is None:
            self._admin = Admin(self.cluster)
        return self._admin

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
        delivery_ms = self._timeouts.total_ms if delivery_timeout_ms is None else delivery_timeout_ms
        if delivery_ms <= linger_ms:
            raise ValueError(f"linger_ms={linger_ms} leaves no time to send: a record fails after {delivery_ms} ms")
        settings = ProducerSettings(
            acks=-1 if acks == "all" else acks,
            codec=codec if isinstance(codec, Codec) else codec_from_name(codec),
            linger_s=linger_ms / 1000,
            batch_bytes=batch_bytes,
            request_bytes_max=request_bytes_max,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_ms,
            idempotent=wants_all if idempotent is None else idempotent,
        )
        return Producer(self.cluster, settings)

    def consumer(
        self,
        topics: str | Iterable[str] | Iterable[TopicPartition] | Mapping[TopicPartition, StartLike],
        *,
        group: str | None = None,
        start: StartLike = "start",
        reset: Literal["start", "end", "error"] | None = None,
        isolation: Isolation = "read_uncommitted",
        follow: bool = True,
        auto_commit_ms: int | None = None,
        commit_on_close: bool = False,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        instance_id: str | None = None,
        assignors: Iterable[str] = ("range", "roundrobin"),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        fetch_bytes: int = 32 * 1024 * 1024,
        partition_bytes: int = 4 * 1024 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
    ) -> Consumer:
        """A consumer of topics, or of certain partitions (perhaps each with a start), to be used with `async with`.

        `start` is where to begin in a partition without a committed offset: "start", "end", "+10", "-10", an offset, or
        "@milliseconds". `reset` is where to go on when the log no longer has an offset; by default the end for
        start="end", else the start. Without `follow` reading stops at the ends that the partitions have when it begins.
        With a group and topics the consumer is a member and gets a share; with a group and partitions it only commits.
        """
        names, partitions = _sources(topics, parse_start(start))
        if group is None and (auto_commit_ms is not None or commit_on_close):
            raise ValueError("there is nothing to commit to without a group")
        if isolation not in ISOLATION_LEVELS:
            raise ValueError(f"isolation is read_uncommitted or read_committed, not {isolation!r}")
        chosen = tuple(assignors)
        if not chosen or not ASSIGNORS.keys() >= set(chosen):
            raise ValueError(f"assignors are one or more of {', '.join(ASSIGNORS)}")
        wanted_reset = reset or ("end" if start == "end" else "start")
        settings = ConsumerSettings(
            topics=names,
            partitions=partitions,
            start=parse_start(start),
            reset=None if wanted_reset == "error" else parse_start(wanted_reset),
            follow=follow,
            auto_commit_ms=auto_commit_ms,
            commit_on_close=commit_on_close,
            fetch=FetchSettings(
                ISOLATION_LEVELS[isolation], max_wait_ms, min_bytes, fetch_bytes, partition_bytes, buffer_bytes
            ),
            group=None
            if group is None
            else GroupSettings(
                group, instance_id, chosen, session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms
            ),
            on_assign=on_assign,
            on_revoke=on_revoke,
        )
        return Consumer(self.cluster, settings)


def _sources(
    given: str | Iterable[str] | Iterable[TopicPartition] | Mapping[TopicPartition, StartLike], start: Start
) -> tuple[tuple[str, ...], dict[TopicPartition, Start]]:
    """Tell topics from partitions."""
    if isinstance(given, str):
        return (given,), {}
    if isinstance(given, Mapping):
        return (), {TopicPartition(*partition): parse_start(place) for partition, place in given.items()}
    items = list(given)
    names = tuple(item for item in items if isinstance(item, str))
    partitions = {item: start for item in items if isinstance(item, TopicPartition)}
    if not items or (names and partitions) or len(names) + len(partitions) < len(items):
        raise ValueError("consume one or more topics (by name), or one or more partitions (as TopicPartition)")
    return names, partitions
