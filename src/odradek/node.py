"""The composition root: the only place that knows all parts of a broker and puts them together.

`Node.start` takes the addresses, opens the data directory and serves; `stop` undoes it in the opposite order. It
starts no process and reads no environment: that is the command's business.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis.context import Door
from odradek.apis.table import APIS, SERVED
from odradek.broker.archive_reading import ArchiveReader
from odradek.broker.archiving import Archiving
from odradek.broker.broker import Broker
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.channels import Channels
from odradek.broker.clients import Clients
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader
from odradek.broker.kraft_port import KraftBroker
from odradek.broker.limits import partition_config
from odradek.broker.membership import Membership, is_broker
from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.broker.plain import PlainBroker
from odradek.broker.rama import RamaBroker
from odradek.broker.watermarks import Watermarks
from odradek.client.http import HttpError, HttpLink
from odradek.clock import Clock, SystemClock
from odradek.config import Settings
from odradek.controller.config import QuorumConfig
from odradek.controller.controller import Controller
from odradek.controller.files import journal_path, read_image
from odradek.controller.image import MetadataError
from odradek.controller.registration import Identity
from odradek.controller.transport import cluster_headers
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.disk.real import RealDisk
from odradek.edge.config import KafkaDoorConfig
from odradek.edge.http import HttpServer
from odradek.edge.kafka import KafkaServer
from odradek.edge.metrics_page import MetricsPage
from odradek.edge.rest import kraft, openapi
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.katar import KatarDoor
from odradek.edge.rest.rama import RamaDoor
from odradek.edge.rest.sskafka import SSKafkaDoor
from odradek.edge.routing import Route, RouteDoc, Router
from odradek.groups.coordinator import Coordinator
from odradek.log.store import LogStore
from odradek.metrics import DoorStats
from odradek.model import parse_partition_directory

if TYPE_CHECKING:
    from odradek.edge.grpc.server import GrpcServer

# `pipelines` is where odradek.spark keeps the state of pipelines that run on this machine.
_OWN_NAMES = frozenset({"metadata", "odradek.log", ".lock", "clean-stop", "objects", "pipelines"})
_MEMBER_ID_BYTES = 16
_DESCRIPTORS_KEPT = 64  # for the journal, directories, the HTTP door
_GRPC_CONNECTIONS_MAX = 1_024
_START_SECONDS = 60.0  # for a broker that stands alone to be ready
_JOIN_SECONDS = 3.0  # for one of many, before it says that it is ready all the same
_TWIN_TIMEOUT_MS = 1_000
_IDLE_SECONDS_MAX = 5.0  # for the flushes under way when the Kafka door closes
_METRICS = RouteDoc("Numbers for Prometheus.", "Broker", {200: "Its text format."})

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Address(NamedTuple):
    """Where something listens, or is said to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class Node:
    """A broker that serves."""

    settings: Settings
    broker: Broker
    groups: Coordinator
    stats: DoorStats
    kafka: Address | None
    http: Address | None
    grpc: Address | None
    _parts: AsyncExitStack
    refused: asyncio.Future[str]  # why the cluster does not want this broker
    channels: Channels

    @classmethod
    async def start(
        cls, settings: Settings, clock: Clock | None = None, on_open: Callable[[Path], None] | None = None
    ) -> Node:
        """Take the addresses, open the data directory, serve. StartError if any of it cannot be.

        `on_open` is told when the data directory is there and nobody else's.
        """
        async with AsyncExitStack() as parts:
            node = await _assemble(settings, clock or SystemClock(), parts, on_open)
            node._parts = parts.pop_all()
            return node

    @property
    def ready_line(self) -> str:
        """What `odradek serve` prints when it serves; scripts wait for it."""
        doors = {"kafka": self.kafka, "http": self.http, "grpc": self.grpc}
        shown = (f"{name}={'off' if address is None else address}" for name, address in doors.items())
        return f"odradek ready broker={self.broker.node_id} {' '.join(shown)}"

    async def stop(self) -> None:
        """Answer what was promised, flush, close everything."""
        await self._parts.aclose()


async def _assemble(
    settings: Settings, clock: Clock, parts: AsyncExitStack, on_open: Callable[[Path], None] | None
) -> Node:
    quorum = settings.quorum_config()
    stats = DoorStats()
    disk = RealDisk(settings.store_config().log_open_files_max)
    kafka_config, grpc_connections_max = _within_limits(settings, disk)
    server = KafkaServer(kafka_config, APIS, stats)
    kafka = await _listen("kafka", server, settings, parts)
    router = Router()
    web = HttpServer(router)
    http = await _listen("http", web, settings, parts)
    _check_voters(settings, http)
    calls, grpc = _listen_grpc(settings, grpc_connections_max, parts)
    store = _open_data(settings, clock, disk)
    parts.callback(store.close)
    if on_open is not None:
        on_open(settings.directory)
    broker = _make_broker(settings, clock, disk, store)
    parts.push_async_callback(broker.close)
    parts.push_async_callback(broker.metadata.close)
    channels = _make_channels(settings, broker, disk, parts)
    port = _add_routes(router, broker, channels, settings, parts)
    if http is not None:
        await web.open()
        await _refuse_twin(broker, quorum)
    try:
        await broker.metadata.start()
    except (MetadataError, DiskError) as error:
        raise StartError(str(error)) from error
    port.is_started = True
    broker.start()
    _start_background(broker, channels.stores, parts)
    groups = _start_groups(settings, clock, broker, parts)
    advertised = None if kafka is None else Address(*(settings.address("advertised.kafka") or kafka))
    own_grpc = None if grpc is None else settings.address("advertised.grpc") or grpc
    identity = Identity(
        broker.node_id, broker.incarnation, advertised, _own_http(settings, http), settings.rack or None, own_grpc
    )
    loader = broker.hosting.offsets = _Loader(groups)
    membership = Membership(broker, identity, settings.replication_config(), quorum.secret)
    parts.push_async_callback(membership.close)
    await _join(membership, broker, quorum, loader)
    if broker.stands_alone:
        groups.load()  # also of a topic that is not made before it is needed
    if kafka is not None and advertised is not None:
        await _open_kafka(server, broker, groups, advertised, quorum.secret, parts)
    if calls is not None:
        await _open_grpc(calls, broker, groups, settings, parts)
    call_stats = None if calls is None else calls.stats
    _add_metrics(router, MetricsPage(broker, groups, stats, channels=channels.gauges, calls=call_stats))
    parts.push_async_callback(membership.leave, settings.controlled_shutdown_timeout_ms)
    channels.start()
    parts.push_async_callback(channels.close)
    return Node(settings, broker, groups, stats, kafka, http, grpc, parts, membership.registration.refused, channels)


def _make_channels(settings: Settings, broker: Broker, disk: Disk, parts: AsyncExitStack) -> Channels:
    config = settings.objects_config()
    stores = ChannelStores(config)
    parts.callback(stores.close)
    return Channels(broker, config, disk, stores)


def _start_background(broker: Broker, stores: ChannelStores, parts: AsyncExitStack) -> None:
    """What the broker does on its own: looking after its logs, and archiving."""
    housekeeping = Housekeeping(broker)
    housekeeping.start()
    parts.push_async_callback(housekeeping.close)
    broker.archive = ArchiveReader(stores, stores.config.store_url)
    archiving = Archiving(broker, stores.config, stores)
    archiving.start()
    parts.push_async_callback(archiving.close)


def _start_groups(settings: Settings, clock: Clock, broker: Broker, parts: AsyncExitStack) -> Coordinator:
    """The consumer groups, with their offsets in a topic of this broker's."""
    offsets = OffsetsTopic(broker)
    parts.push_async_callback(offsets.close)
    groups = Coordinator(settings.group_config(), clock, offsets, KnownTopics(broker), _new_member_id)
    broker.on_topic_deleted = groups.offsets.forget_topic
    broker.on_partition_deleted = groups.offsets.forget_partition
    groups.start()
    parts.push_async_callback(groups.close)
    return groups


async def _open_kafka(
    server: KafkaServer,
    broker: Broker,
    groups: Coordinator,
    advertised: Address,
    secret: str | None,
    parts: AsyncExitStack,
) -> None:
    sessions = FetchSessions(broker.config.max_incremental_fetch_session_cache_slots)
    recognise = partial(is_broker, secret=secret)
    door = Door(broker, groups, sessions, server.room, SERVED, *advertised, is_broker=recognise)
    parts.push_async_callback(_close_door, server, broker)
    await server.open(door)


async def _open_grpc(
    server: GrpcServer, broker: Broker, groups: Coordinator, settings: Settings, parts: AsyncExitStack
) -> None:
    from odradek.edge.grpc.doors import services  # noqa: PLC0415

    config, secret = settings.grpc_door_config(), settings.quorum_config().secret
    wired = services(broker, groups, config, secret, parts)
    parts.push_async_callback(server.close)
    await server.open(*wired)


def _add_metrics(router: Router, metrics: MetricsPage) -> None:
    router.add(Route("GET", "/metrics", lambda _request: metrics(), _METRICS))


def _make_broker(settings: Settings, clock: Clock, disk: Disk, store: LogStore) -> Broker:
    failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    controller = Controller(
        config=settings.controller_config(),
        quorum=settings.quorum_config(),
        disk=disk,
        directory=str(settings.directory),
        clock=clock,
        chance=random.SystemRandom(),
        failed=lambda error: None if failure.done() else failure.set_result(error),
    )
    watermarks = Watermarks(disk, str(settings.directory))
    broker = Broker(settings.broker_config(), settings, clock, controller, store, watermarks)
    failure.add_done_callback(lambda done: broker.stop_for(done.result()))
    return broker


def _add_routes(
    router: Router, broker: Broker, channels: Channels, settings: Settings, parts: AsyncExitStack
) -> KraftBroker:
    config = settings.objects_config()
    port = KraftBroker(broker, settings.quorum_config().secret)
    guard = Guard(port)
    clients = Clients(broker, config.client_failures_max)
    parts.push_async_callback(clients.close)
    door = SSKafkaDoor(PlainBroker(broker), guard, lambda: not broker.failed.done(), clients)
    parts.push_async_callback(door.close)
    katar = KatarDoor(KatarBroker(broker), KatarReader(broker), guard, clients)
    parts.push_async_callback(katar.close)
    router.add(*door.routes(), *kraft.routes(port), *katar.routes())
    router.add(*openapi.routes(router))
    rama = RamaDoor(RamaBroker(broker, channels), clients, guard, router, config.rama_max_skew_ms)
    parts.push_async_callback(rama.close)
    router.add(*rama.routes())  # behind all others: a channel may be called anything else
    return port


class _Loader:
    """Has groups loaded and dropped as their partitions come and go."""

    def __init__(self, groups: Coordinator) -> None:
        self._groups = groups
        self._tasks: set[asyncio.Task[None]] = set()

    def lead(self, index: int, epoch: int) -> None:
        """The partition is ours."""
        task = asyncio.create_task(self._groups.load_partition(index, epoch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resign(self, index: int, epoch: int | None) -> None:
        """It is not ours any more."""
        self._groups.unload_partition(index, epoch)

    async def idle(self) -> None:
        """Wait until all that is ours is loaded."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _check_voters(settings: Settings, http: Address | None) -> None:
    if settings.voters and http is None:
        raise StartError("a broker of a cluster needs its HTTP door, where the others ask it: give --http HOST:PORT")


def _own_http(settings: Settings, http: Address | None) -> tuple[str, int] | None:
    """Where the other brokers find this one's HTTP door."""
    return settings.address("advertised.http") or settings.voters.get(settings.broker_id) or http


async def _refuse_twin(broker: Broker, quorum: QuorumConfig) -> None:
    """Do not start beside another process that answers as this broker: two would vote with one voice."""
    address = quorum.voters.get(broker.node_id)
    if quorum.is_alone or address is None:
        return
    link = HttpLink(address, headers=cluster_headers("", quorum.secret))
    try:
        _, answer = await link.get("/kraft/v1/status", _TWIN_TIMEOUT_MS)
    except HttpError as error:
        logger.warning("broker %d is not reached at its own address in `voters`: %s", broker.node_id, error)
        return
    finally:
        await link.close()
    incarnation = answer.get("incarnation") if isinstance(answer, dict) else None
    if incarnation is not None and incarnation != broker.incarnation:
        raise StartError(
            f"another process answers as broker {broker.node_id} at {Address(*address)}; stop it, or give this one "
            "another --broker-id and its own address in --voters"
        )


async def _join(membership: Membership, broker: Broker, quorum: QuorumConfig, loader: _Loader) -> None:
    """Wait until the cluster counts on this broker; without a majority that may take long, and is not waited for."""
    has_joined = await membership.join(_START_SECONDS if quorum.is_alone else _JOIN_SECONDS)
    if membership.registration.refused.done():
        raise StartError(membership.registration.refused.result())
    if broker.failed.done():
        raise StartError(str(broker.failed.result()))
    if not has_joined:
        logger.warning(
            "no majority of the voters %s has answered yet: the broker serves as soon as one does",
            sorted(quorum.voters),
        )
    await loader.idle()


def _within_limits(settings: Settings, disk: RealDisk) -> tuple[KafkaDoorConfig, int]:
    """What the Kafka door is told, and how many connections the gRPC door takes.

    Let clients not take the descriptors that the logs need: a segment that cannot be opened stops the broker.
    """
    config, grpc_max = settings.kafka_door_config(), _GRPC_CONNECTIONS_MAX
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return config, grpc_max
    left = soft - disk.open_files_max - _DESCRIPTORS_KEPT
    if settings.address("grpc") is not None:
        grpc_max = max(min(grpc_max, left // 4), 1)
        left -= grpc_max
    return replace(config, max_connections_per_broker=max(min(config.max_connections_per_broker, left), 1)), grpc_max


async def _close_door(server: KafkaServer, broker: Broker) -> None:
    """Take no more requests, let flushes under way be answered, then hang up."""
    server.stop_reading()
    with suppress(TimeoutError):  # copies of what others lead may keep it busy
        async with asyncio.timeout(_IDLE_SECONDS_MAX):
            await broker.flusher.idle()
    await server.close()


def _new_member_id() -> str:
    return secrets.token_hex(_MEMBER_ID_BYTES)


async def _listen(
    name: str, server: KafkaServer | HttpServer, settings: Settings, parts: AsyncExitStack
) -> Address | None:
    wanted = settings.address(name)
    if wanted is None:
        return None
    parts.push_async_callback(server.close)
    try:
        return Address(*await server.listen(*wanted))
    except OSError as error:
        raise _taken(name, Address(*wanted), error) from error


def _listen_grpc(
    settings: Settings, connections_max: int, parts: AsyncExitStack
) -> tuple[GrpcServer | None, Address | None]:
    """Take the address of the gRPC door; without one if nobody asked for it and its default address is taken."""
    wanted = settings.address("grpc")
    if wanted is None:
        return None, None
    # grpc takes longer to import than all the rest, and many brokers never need it.
    from odradek.edge.grpc.server import GrpcServer  # noqa: PLC0415

    server = GrpcServer(settings.grpc_door_config(), connections_max)
    parts.push_async_callback(server.close)
    try:
        return server, Address(*server.listen(*wanted))
    except OSError as error:
        if settings.source("grpc") != "default":
            raise _taken("grpc", Address(*wanted), error) from error
        logger.warning("the gRPC door stays closed: %s", _taken("grpc", Address(*wanted), error))
        return None, None


def _taken(door: str, address: Address, error: OSError) -> StartError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StartError(
        f"cannot listen on {address}: {reason}; end the program that has it, or choose another address "
        f"with --{door} HOST:PORT (port 0 takes any free one)"
    )


def _open_data(settings: Settings, clock: Clock, disk: RealDisk) -> LogStore:
    directory = str(settings.directory)
    config = settings.store_config()
    try:
        _refuse_foreign(disk, directory)
        image, _, _ = read_image(disk, directory)
        defaults = settings.with_overrides(image.broker_configs, "broker")
        return LogStore(disk, directory, config, clock, partial(partition_config, defaults, image))
    except MetadataError as error:
        raise StartError(str(error)) from error
    except DiskError as error:
        raise StartError(f"{error}; choose another data directory with --data DIR") from error


def _refuse_foreign(disk: Disk, directory: str) -> None:
    """Do not move into a directory that is somebody else's."""
    if disk.exists(journal_path(directory)):
        return
    names = [entry.name for entry in disk.list(directory)]
    if "meta.properties" in names:
        raise StartError(
            f"{directory} is a data directory of Apache Kafka; name an empty one with --data DIR and copy the "
            "topics with a client"
        )
    strangers = [name for name in names if name not in _OWN_NAMES and parse_partition_directory(name) is None]
    if strangers:
        raise StartError(
            f"{directory} is not a data directory of Odradek: it has {strangers[0]!r} in it; name an empty one with "
            "--data DIR"
        )


async def run_until(node: Node, stop: asyncio.Event) -> Exception | None:
    """Wait until somebody asks to stop, or the disk fails; say what failed."""
    failed, refused = node.broker.failed, node.refused
    failed.add_done_callback(lambda _: stop.set())
    refused.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if refused.done() and not refused.cancelled():
        return StartError(refused.result())
    return failed.result() if failed.done() else None
