"""Clusters of three under measurement: odradek's and Apache Kafka's, with the same addresses, clients and disk.

Kafka's nodes are broker and controller in one process each, as ours are, with the values of the server.properties that
Kafka ships and the replication factors that three nodes allow; only the heap is bounded, for three share a machine.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.kafka_peers import FORMAT_SECONDS, JAVA_OPTIONS, KAFKA_PROPERTIES
from bench.kafka_process import run_tool
from bench.kafka_tools import KAFKA_VERSION, MissingError, kafka_jars, need, version_of

NODES = (1, 2, 3)
HEAP = ("-Xmx512M", "-Xms512M")


class Cluster(Protocol):
    """A system of three nodes, not yet running."""

    name: str
    durability: str

    def find(self) -> None:
        """Make sure that it can be started; raise `MissingError` if not."""

    def version(self) -> str:
        """What it calls itself."""

    def prepare(self, directory: Path, ports: Sequence[tuple[int, int]]) -> list[list[str]]:
        """What is done once in a cluster's life; the commands that start the nodes. Ports for clients and quorum."""


@dataclass
class OdradekThree:
    """Ours."""

    name: str
    executable: Path
    settings: tuple[str, ...] = ()
    durability: str = ""

    def find(self) -> None:
        """It must know clusters."""
        if not self.executable.is_file():
            raise MissingError(f"{self.executable} not found; `make setup` makes it, --odradek PATH names another")
        if "--voters" not in run_tool([str(self.executable), "serve", "--help"], 30):
            raise MissingError(f"{self.executable} serve knows no --voters")

    def version(self) -> str:
        """As its command line says."""
        return version_of([str(self.executable), "--version"])

    def prepare(self, directory: Path, ports: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Nothing to prepare."""
        voters = ",".join(f"{node}@127.0.0.1:{quorum}" for node, (_, quorum) in zip(NODES, ports, strict=True))
        commands = []
        for node, (kafka, quorum) in zip(NODES, ports, strict=True):
            command = [str(self.executable), "serve", "--broker-id", str(node), "--voters", voters]
            command += ["--data", str(directory / f"data-{node}")]
            command += ["--kafka", f"127.0.0.1:{kafka}", "--http", f"127.0.0.1:{quorum}", "--grpc", "off"]
            for setting in self.settings:
                command += ["--set", setting]
            commands.append(command)
        return commands


@dataclass
class KafkaThree:
    """Apache Kafka."""

    cache: Path
    name: str = "kafka"
    durability: str = "no fsync before the answer (its default)"
    _jars: Path = field(default=Path(), repr=False)

    def find(self) -> None:
        """Fetch the jars if need be."""
        need("java", hint="on Debian: apt-get install default-jre-headless (17 or newer)")
        self._jars = kafka_jars(self.cache)

    def version(self) -> str:
        """Kafka's and Java's."""
        return f"Apache Kafka {KAFKA_VERSION}, {version_of(['java', '-version'])}, heap {HEAP[0][4:]} each"

    def prepare(self, directory: Path, ports: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Format the storage of each, as Kafka demands."""
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        classes = f"{self._jars}/*"
        commands = []
        for node in NODES:
            properties = directory / f"server-{node}.properties"
            properties.write_text(kafka_properties(node, directory / f"data-{node}", ports), encoding="utf-8")
            tool = ["java", "-Xmx256M", "-cp", classes, "kafka.tools.StorageTool"]
            run_tool([*tool, "format", "-t", cluster, "-c", str(properties)], FORMAT_SECONDS)
            options = [option for option in JAVA_OPTIONS if not option.startswith("-Xm")]
            commands.append(["java", *HEAP, *options, "-cp", classes, "kafka.Kafka", str(properties)])
        return commands


def kafka_properties(node: int, data: Path, ports: Sequence[tuple[int, int]]) -> str:
    """The properties of one node of three."""
    kafka, quorum = ports[node - 1]
    text = KAFKA_PROPERTIES.format(port=kafka, controller_port=quorum, data=data)
    changed = {
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{voter}@127.0.0.1:{port}" for voter, (_, port) in zip(NODES, ports, strict=True)
        ),
        "offsets.topic.replication.factor": "3",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    lines = []
    for line in text.splitlines():
        name, _, value = line.partition("=")
        lines.append(f"{name}={changed.get(name, value)}")
    return "\n".join(lines) + "\n"
