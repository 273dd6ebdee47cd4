"""The systems of the comparison: how each is found, prepared, started and asked for its version.

All listen on loopback, keep their data on the same disk and run with the settings they come with; what differs is named
in `durability`. A system that is not installed says how to install it and is left out.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Protocol

from bench.kafka_nats import publish_one
from bench.kafka_process import Process, free_port, run_tool
from bench.kafka_tools import KAFKA_VERSION, MissingError, kafka_jars, need, version_of
from bench.kafka_wire import produce_one

START_SECONDS = 90.0
FORMAT_SECONDS = 120.0
# What kafka-server-start.sh and kafka-run-class.sh pass when nothing is set in the environment.
JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# The values of the server.properties that Kafka ships, with one node's addresses.
KAFKA_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


class Peer(Protocol):
    """One system, not yet running."""

    name: str
    kafka: bool  # whether it speaks Kafka's protocol
    durability: str

    def find(self) -> None:
        """Make sure that it can be started; raise `MissingError` if not."""

    def version(self) -> str:
        """What it calls itself."""

    def prepare(self, directory: Path, port: int) -> list[str]:
        """Do in an empty directory what is done once in a broker's life; give the command that starts it."""


@dataclass
class Odradek:
    """Ours, in one of its two ways to flush."""

    name: str
    executable: Path
    settings: tuple[str, ...] = ()
    durability: str = ""
    kafka: bool = True

    def find(self) -> None:
        """It must have `serve`."""
        if not self.executable.is_file():
            raise MissingError(f"{self.executable} not found; `make setup` makes it, --odradek PATH names another")
        usage = run_tool([str(self.executable), "serve", "--help"], 30)
        if "--kafka" not in usage:
            raise MissingError(f"{self.executable} serve knows no --kafka")

    def version(self) -> str:
        """As its command line says."""
        return version_of([str(self.executable), "--version"])

    def prepare(self, directory: Path, port: int) -> list[str]:
        """Nothing to prepare."""
        command = [str(self.executable), "serve", "--data", str(directory / "data"), "--kafka", f"127.0.0.1:{port}"]
        command += ["--http", "off", "--grpc", "off"]
        for setting in self.settings:
            command += ["--set", setting]
        return command


@dataclass
class Kafka:
    """Apache Kafka: one KRaft node, broker and controller in one process."""

    cache: Path
    name: str = "kafka"
    durability: str = "no fsync before the answer (its default)"
    kafka: bool = True
    _jars: Path = field(default=Path(), repr=False)

    def find(self) -> None:
        """Fetch the jars if need be."""
        need("java", hint="on Debian: apt-get install default-jre-headless (17 or newer)")
        self._jars = kafka_jars(self.cache)

    def version(self) -> str:
        """Kafka's and Java's."""
        return f"Apache Kafka {KAFKA_VERSION}, {version_of(['java', '-version'])}"

    def prepare(self, directory: Path, port: int) -> list[str]:
        """Format the storage, as Kafka demands."""
        properties = directory / "server.properties"
        values = {"port": port, "controller_port": free_port(), "data": directory / "data"}
        properties.write_text(KAFKA_PROPERTIES.format(**values), encoding="utf-8")
        classes = f"{self._jars}/*"
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["java", "-Xmx256M", "-cp", classes, "kafka.tools.StorageTool"]
        run_tool([*tool, "format", "-t", cluster, "-c", str(properties)], FORMAT_SECONDS)
        return ["java", *JAVA_OPTIONS, "-cp", classes, "kafka.Kafka", str(properties)]


@dataclass
class Nats:
    """NATS JetStream with file storage; its own protocol, so its own driver."""

    name: str = "nats"
    durability: str = "fsync every two minutes (its default)"
    kafka: bool = False

    def find(self) -> None:
        """It must be on the path."""
        need("nats-server", hint="on Debian: apt-get install nats-server")

    def version(self) -> str:
        """As it says."""
        return version_of(["nats-server", "--version"])

    def prepare(self, directory: Path, port: int) -> list[str]:
        """Nothing to prepare."""
        return ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "data")]


def all_peers(cache: Path, executable: Path | None) -> dict[str, Peer]:
    """Every system by name, in the order of the table."""
    odradek = executable or Path(sys.executable).with_name("odradek")
    peers: list[Peer] = [
        Odradek("odradek", odradek, durability="fsync before the answer, for many at once (its default)"),
        Odradek("odradek-replicated", odradek, ("flush=replicated",), "no fsync before the answer (flush=replicated)"),
        Kafka(cache),
        Nats(),
    ]
    return {peer.name: peer for peer in peers}


@dataclass
class Running:
    """A started system that has acknowledged its first record."""

    peer: Peer
    process: Process
    port: int
    directory: Path
    start_ms: float


def start(peer: Peer, directory: Path) -> Running:
    """Start a system in an empty directory; `start_ms` is from the spawn to the first acknowledged record."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    command = peer.prepare(directory, port)
    begin = perf_counter()
    process = Process(peer.name, command, directory)
    try:
        first = produce_one if peer.kafka else publish_one
        first(port, "first", process.check, START_SECONDS)
    except BaseException:
        process.stop()
        raise
    return Running(peer, process, port, directory, (perf_counter() - begin) * 1000)


def stop(running: Running) -> None:
    """Stop it and remove what it wrote."""
    running.process.stop()
    shutil.rmtree(running.directory, ignore_errors=True)
