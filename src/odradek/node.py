"""The composition root: the only place that knows all parts of a broker and puts them together.

`Node.start` takes the addresses, opens the data directory and serves; `stop` undoes it in the opposite order. It
starts no process and reads no environment: that is the command's business.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from odradek.apis.context import Door
from odradek.apis.table import APIS, SERVED
from odradek.broker.broker import Broker
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.clock import Clock, SystemClock
from odradek.config import Settings
from odradek.controller.journal import MetadataJournal, journal_path, read_image
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.disk.real import RealDisk
from odradek.edge.config import KafkaDoorConfig
from odradek.edge.http import HttpServer, Page, Route, json_page
from odradek.edge.kafka import KafkaServer
from odradek.edge.metrics_page import MetricsPage
from odradek.groups.coordinator import Coordinator
from odradek.log.store import LogStore
from odradek.metrics import DoorStats
from odradek.model import parse_partition_directory

# `pipelines` is where odradek.spark keeps the state of pipelines that run on this machine.
_OWN_NAMES = frozenset({"metadata", "odradek.log", ".lock", "clean-stop", "pipelines"})
_MEMBER_ID_BYTES = 16
_DESCRIPTORS_KEPT = 64  # for the journal, directories, the HTTP door

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
    _parts: AsyncExitStack

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
        doors = {"kafka": self.kafka, "http": self.http, "grpc": None}
        shown = (f"{name}={'off' if address is None else address}" for name, address in doors.items())
        return f"odradek ready broker={self.broker.node_id} {' '.join(shown)}"

    async def stop(self) -> None:
        """Answer what was promised, flush, close everything."""
        await self._parts.aclose()


async def _assemble(
    settings: Settings, clock: Clock, parts: AsyncExitStack, on_open: Callable[[Path], None] | None
) -> Node:
    if settings.address("grpc") is not None:
        raise StartError("the gRPC door is not there yet: leave --grpc off")
    stats = DoorStats()
    disk = RealDisk(settings.store_config().log_open_files_max)
    server = KafkaServer(_within_limits(settings.kafka_door_config(), disk), APIS, stats)
    kafka = await _listen("kafka", server, settings, parts)
    pages: dict[str, Route] = {}
    web = HttpServer(pages)
    http = await _listen("http", web, settings, parts)
    store, journal = _open_data(settings, clock, disk)
    parts.callback(store.close)
    if on_open is not None:
        on_open(settings.directory)
    broker = Broker(settings.broker_config(), settings, clock, journal, store)
    parts.push_async_callback(broker.close)
    await broker.start()
    housekeeping = Housekeeping(broker)
    housekeeping.start()
    parts.push_async_callback(housekeeping.close)
    offsets = OffsetsTopic(broker)
    parts.push_async_callback(offsets.close)
    groups = Coordinator(settings.group_config(), clock, offsets, KnownTopics(broker), _new_member_id)
    groups.load()
    broker.on_topic_deleted = groups.offsets.forget_topic
    groups.start()
    parts.push_async_callback(groups.close)
    if kafka is not None:
        advertised = settings.address("advertised.kafka") or kafka
        sessions = FetchSessions(broker.config.max_incremental_fetch_session_cache_slots)
        door = Door(broker, groups, sessions, server.room, SERVED, *advertised)
        parts.push_async_callback(_close_door, server, broker)
        await server.open(door)
    pages["/metrics"] = MetricsPage(broker, groups, stats)
    pages["/healthcheck"] = partial(_health, broker)
    if http is not None:
        await web.open()
    return Node(settings, broker, groups, stats, kafka, http, parts)


def _health(broker: Broker) -> Page:
    """What SSKafka's /healthcheck says: a broker that stands alone leads itself."""
    is_up = not broker.failed.done()
    content = {"status": "up" if is_up else "down", "broker_id": broker.node_id, "leader_broker_id": broker.node_id}
    return json_page(content, 200 if is_up else 503)


def _within_limits(config: KafkaDoorConfig, disk: RealDisk) -> KafkaDoorConfig:
    """Let clients not take the descriptors that the logs need: a segment that cannot be opened stops the broker."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return config
    left = soft - disk.open_files_max - _DESCRIPTORS_KEPT
    return replace(config, max_connections_per_broker=max(min(config.max_connections_per_broker, left), 1))


async def _close_door(server: KafkaServer, broker: Broker) -> None:
    """Take no more requests, let flushes under way be answered, then hang up."""
    server.stop_reading()
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


def _taken(door: str, address: Address, error: OSError) -> StartError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StartError(
        f"cannot listen on {address}: {reason}; end the program that has it, or choose another address "
        f"with --{door} HOST:PORT (port 0 takes any free one)"
    )


def _open_data(settings: Settings, clock: Clock, disk: RealDisk) -> tuple[LogStore, MetadataJournal]:
    directory = str(settings.directory)
    config = settings.store_config()
    try:
        _refuse_foreign(disk, directory)
        image, _, _ = read_image(disk, directory)
        defaults = settings.with_overrides(image.broker_configs, "broker")
        overrides = {name: topic.configs for name, topic in image.topics.items()}
        store = LogStore(disk, directory, config, clock, lambda topic: defaults.log_config(overrides.get(topic, {})))
        try:
            return store, MetadataJournal(disk, directory)
        except BaseException:
            store.close()
            raise
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
    failed = node.broker.failed
    failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    return failed.result() if failed.done() else None
