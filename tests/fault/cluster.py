"""A cluster of real broker processes for tests: started, killed, stopped for a while, cut off, healed.

Each broker is `odradek serve` with its own directory and addresses that stay the same over restarts. What it prints
goes to files beside its directory. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.fault.network import CLIENTS, Network
from tests.fault.unsynced import Loss, lose_unsynced, shim_environment, trim_journal
from tests.process import STOP_SECONDS_MAX, wait_until

READY = b"odradek ready"
READY_SECONDS_MAX = 60.0
LOG_TAIL_CHARACTERS = 2_000


class Broker:
    """One broker of the cluster; a process, or between two of them."""

    def __init__(
        self, node: int, directory: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.node = node
        self.environment = dict(environment or {})  # beside the test's own
        self.output = directory.with_name(f"{directory.name}.stdout")
        self.log = directory.with_name(f"{directory.name}.stderr")
        self.is_paused = False
        self.is_wanted = False  # started, and not ended by us since
        self.starts = 0
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0  # bytes of output from earlier lives

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The one that runs, or the one that ran last."""
        assert self._process is not None, f"broker {self.node} was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether it has a process, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        assert not self.is_running, f"broker {self.node} runs already"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
        with self.output.open("ab") as output, self.log.open("ab") as log:
            self._said_before = output.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env={**environment, **self.environment},
            )
        self.is_paused = False
        self.is_wanted = True
        self.starts += 1

    def is_ready(self) -> bool:
        """Whether it has said so since it was started; raises when it has ended instead."""
        status = self.process.poll()
        if status is not None:
            raise AssertionError(f"broker {self.node} ended with status {status}; it said: {self.tail()}")
        with self.output.open("rb") as output:
            output.seek(self._said_before)
            return READY in output.read()

    def tail(self) -> str:
        """The last of what it said."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return text[-LOG_TAIL_CHARACTERS:].strip() or "nothing"

    def kill(self) -> None:
        """End it as a power cut would, less the loss of the page cache."""
        self.is_wanted = False
        if self.is_running:
            self.process.kill()
        self._ended()

    def stop(self) -> int:
        """End it in good order."""
        self.is_wanted = False
        if self.is_running:
            self.resume()
            self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def pause(self) -> None:
        """Stand it still: its sockets stay open, and nothing answers."""
        if self.is_running:
            self.process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """Let it go on where it stood."""
        if self.is_running and self.is_paused:
            self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def _ended(self) -> int:
        self.is_paused = False
        return self.process.wait(STOP_SECONDS_MAX)


class ClusterProcesses:
    """Brokers 1 to N on a network, all of them voters."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        nodes: Sequence[int],
        settings: Mapping[str, str] | None = None,
        command: Callable[[Any, int], list[str]] | None = None,
        shim: Path | None = None,
        *,
        grpc: bool = False,
    ) -> None:
        self.directory = directory
        self.grpc = grpc
        self.network = network
        self.nodes = list(nodes)
        self.settings = dict(settings or {})
        self.shim = shim  # notes what is not synced, so that it can be lost
        make = command or type(self).serve_command
        self.brokers = {
            node: Broker(node, self.data(node), network.prefix(node) + make(self, node), self._environment(node))
            for node in self.nodes
        }

    def _environment(self, node: int) -> dict[str, str]:
        return {} if self.shim is None else shim_environment(self.shim, self.data(node), self.journal(node))

    def data(self, node: int) -> Path:
        """The data directory of a broker."""
        return self.directory / f"broker-{node}"

    def journal(self, node: int) -> Path:
        """Where it is noted what a broker has not synced."""
        return self.directory / f"broker-{node}.journal"

    def address(self, node: int, door: str) -> str:
        """Where one of its doors is."""
        return f"{self.network.host(node)}:{self.network.port(node, door)}"

    @property
    def bootstrap(self) -> str:
        """All of them, as Kafka clients take it."""
        return ",".join(self.address(node, "kafka") for node in self.nodes)

    @property
    def minority_max(self) -> int:
        """How many may be lost at once."""
        return (len(self.nodes) - 1) // 2

    def serve_command(self, node: int) -> list[str]:
        """The command line of one broker."""
        odradek = str(Path(sys.executable).with_name("odradek"))
        voters = ",".join(f"{voter}@{self.address(voter, 'http')}" for voter in self.nodes)
        command = [odradek, "serve", "--broker-id", str(node), "--data", str(self.data(node)), "--voters", voters]
        command += ["--kafka", self.address(node, "kafka"), "--http", self.address(node, "http")]
        command += ["--grpc", self.address(node, "grpc") if self.grpc else "off"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    # Processes

    def start(self) -> Self:
        """Start all at once, for none is ready alone; wait until all are."""
        try:
            self.restart(self.nodes)
        except BaseException:
            self.close()
            raise
        return self

    def restart(self, nodes: Iterable[int]) -> None:
        """Start those of them that do not run, and wait until they are ready."""
        down = [node for node in nodes if not self.brokers[node].is_running]
        for node in down:
            trim_journal(self.journal(node))
            self.brokers[node].start()
        for node in down:
            wait_until(self.brokers[node].is_ready, READY_SECONDS_MAX, f"'odradek ready' of broker {node}")

    def kill(self, nodes: Iterable[int]) -> None:
        """SIGKILL to all of them before any is waited for."""
        victims = [self.brokers[node] for node in nodes if self.brokers[node].is_running]
        for broker in victims:
            broker.is_wanted = False
            broker.process.kill()
        for broker in victims:
            broker.kill()

    def lose_unsynced(self, node: int, seed: int) -> Loss:
        """What a broker that was killed has not synced is lost, or a part of it: its machine's power was cut."""
        assert self.shim is not None and not self.brokers[node].is_running
        return lose_unsynced(self.data(node), self.journal(node), seed)

    def running(self) -> list[int]:
        """Those that have a process that is not paused."""
        return [node for node, broker in self.brokers.items() if broker.is_running and not broker.is_paused]

    def died(self) -> list[str]:
        """Those that ended without our doing, and what they said."""
        lost = [broker for broker in self.brokers.values() if broker.is_wanted and not broker.is_running]
        return [f"broker {one.node} ended with status {one.process.returncode}: {one.tail()}" for one in lost]

    # Network

    def isolate(self, node: int, *, clients: bool) -> None:
        """Cut a broker off from the others both ways, and from the clients too if asked."""
        for other in self._others(node, clients=clients):
            self.network.cut(node, other)
            self.network.cut(other, node)

    def deafen(self, node: int, *, clients: bool = False) -> None:
        """What others send does not reach it; what it sends arrives."""
        for other in self._others(node, clients=clients):
            self.network.cut(other, node)

    def mute(self, node: int, *, clients: bool = False) -> None:
        """What it sends does not arrive; it hears the others."""
        for other in self._others(node, clients=clients):
            self.network.cut(node, other)

    def _others(self, node: int, *, clients: bool) -> list[int]:
        return [other for other in self.nodes if other != node] + ([CLIENTS] if clients else [])

    def heal(self) -> None:
        """Every way open, every broker running and ready."""
        self.network.heal()
        for broker in self.brokers.values():
            broker.resume()
        self.restart(self.nodes)

    # The end

    def stop(self) -> dict[int, int]:
        """All in good order, asked at once; their exit statuses."""
        self.network.heal()
        for broker in self.brokers.values():
            broker.resume()
            broker.is_wanted = False
            if broker.is_running:
                broker.process.send_signal(signal.SIGTERM)
        return {node: broker.stop() for node, broker in self.brokers.items() if broker.starts}

    def close(self) -> None:
        """No process and no namespace is left, whatever state they are in."""
        with contextlib.suppress(OSError):
            self.network.heal()
        self.kill(self.nodes)
        self.network.close()

    def logs(self) -> list[Path]:
        """The files with what they said."""
        files = [file for broker in self.brokers.values() for file in (broker.output, broker.log)]
        return [file for file in files if file.exists()]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
