"""The net that the brokers of a fault test share: plain loopback, or namespaces of the test's own that can be cut.

`RoutedNetwork` has one namespace a broker, one for the clients, and one in the middle that routes between them. A cut
is a rule in the middle that drops packets from one to another without a word, so each direction can be cut by itself
and nobody is told: neither open connections nor new ones. It needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) and the `ip`
tool. Where that is not to be had, `LoopbackNetwork` serves, and no cuts are drawn.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

CLIENTS = 0  # the number under which all clients are cut off or joined; brokers are numbered from 1
COMMAND_SECONDS_MAX = 20.0
PORTS = range(20_000, 32_000)  # below those that outgoing connections take: a broker that is down keeps its port
_CLONE_NEWNET = 0x40000000
_NETNS = Path("/var/run/netns")
_numbers = itertools.count(1)


class Network(Protocol):
    """Where brokers listen, how a process gets there, and how it is cut off."""

    can_cut: bool

    def host(self, node: int) -> str:
        """The address of a broker."""

    def port(self, node: int, door: str) -> int:
        """The port of one of its doors, `kafka`, `http` or `grpc`; always the same."""

    def prefix(self, node: int) -> list[str]:
        """What a command line must begin with to run where a broker runs."""

    def cut(self, source: int, target: int) -> None:
        """From now on nothing that the one sends reaches the other."""

    def heal(self) -> None:
        """Take back every cut."""

    def clients(self) -> contextlib.AbstractContextManager[None]:
        """Run this thread, and threads that it starts meanwhile, where the clients are."""

    def close(self) -> None:
        """Remove what was made."""


class LoopbackNetwork:
    """All on 127.0.0.1, each broker with its own ports."""

    can_cut = False

    def __init__(self, _nodes: Sequence[int] = ()) -> None:
        self._ports: dict[tuple[int, str], int] = {}

    def host(self, _node: int) -> str:
        """The same for all."""
        return "127.0.0.1"

    def port(self, node: int, door: str) -> int:
        """Chosen at the first question."""
        if (node, door) not in self._ports:
            self._ports[node, door] = self._free_port()
        return self._ports[node, door]

    def _free_port(self) -> int:
        for port in random.SystemRandom().sample(PORTS, 100):
            with socket.socket() as trial, contextlib.suppress(OSError):
                trial.bind(("127.0.0.1", port))
                if port not in self._ports.values():
                    return port
        raise AssertionError("no free port among a hundred")

    def prefix(self, _node: int) -> list[str]:
        """Nothing: they run where we run."""
        return []

    def cut(self, source: int, target: int) -> None:
        """Loopback cannot be cut."""
        raise NotImplementedError(f"no cut from {source} to {target}: this is plain loopback")

    def heal(self) -> None:
        """Nothing was cut."""

    def clients(self) -> contextlib.AbstractContextManager[None]:
        """They run where we run."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Nothing was made."""


class RoutedNetwork:
    """A namespace each, and a router in the middle."""

    can_cut = True

    def __init__(self, nodes: Sequence[int]) -> None:
        self._name = f"odradek-{os.getpid()}-{next(_numbers)}"
        self._nodes = [CLIENTS, *nodes]
        self._cuts: set[tuple[int, int]] = set()
        self._made: list[str] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        router = self._add("router")
        _run("ip", "netns", "exec", router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for node in self._nodes:
            name, inside = self._add(str(node)), f"to{node}"
            _run("ip", "-n", name, "link", "add", "up0", "type", "veth", "peer", "name", inside, "netns", router)
            for place, device, address in ((router, inside, self._gateway(node)), (name, "up0", self.host(node))):
                _run("ip", "-n", place, "addr", "add", f"{address}/24", "dev", device)
                _run("ip", "-n", place, "link", "set", device, "up")
            _run("ip", "-n", name, "route", "add", "default", "via", self._gateway(node))

    def _add(self, suffix: str) -> str:
        name = f"{self._name}-{suffix}"
        _run("ip", "netns", "add", name)
        self._made.append(name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def _gateway(self, node: int) -> str:
        return f"10.77.{node}.1"

    def host(self, node: int) -> str:
        """Each in a net of its own."""
        return f"10.77.{node}.2"

    def port(self, _node: int, door: str) -> int:
        """The same everywhere: nobody else is in the namespace."""
        return {"kafka": 9092, "http": 8080, "grpc": 50051}[door]

    def prefix(self, node: int) -> list[str]:
        """`ip netns exec` becomes the command: there is no process between."""
        return ["ip", "netns", "exec", f"{self._name}-{node}"]

    def cut(self, source: int, target: int) -> None:
        """By a rule of the router, which also holds for what is open already."""
        if (source, target) not in self._cuts:
            self._rule("add", source, target)
            self._cuts.add((source, target))

    def heal(self) -> None:
        """All ways are open again; TCP finds out by itself."""
        for source, target in sorted(self._cuts):
            self._rule("del", source, target)
        self._cuts.clear()

    def _rule(self, verb: str, source: int, target: int) -> None:
        ends = ["from", self.host(source), "to", self.host(target)]
        _run("ip", "-n", f"{self._name}-router", "rule", verb, *ends, "blackhole")

    @contextlib.contextmanager
    def clients(self) -> Iterator[None]:
        """A thread's namespace is that of the thread that started it, so librdkafka's threads come along."""
        with Path("/proc/thread-self/ns/net").open("rb") as home, self._place(CLIENTS).open("rb") as there:
            _set_namespace(there.fileno())
            try:
                yield
            finally:
                _set_namespace(home.fileno())

    def _place(self, node: int) -> Path:
        return _NETNS / f"{self._name}-{node}"

    def close(self) -> None:
        """Namespaces go with their links and rules; processes in them must have ended."""
        while self._made:
            _run("ip", "netns", "del", self._made.pop())


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
    except FileNotFoundError as error:
        raise OSError(f"{command[0]} is not installed") from error
    if done.returncode:
        raise OSError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")


def why_no_namespaces() -> str | None:
    """What keeps this machine from having a `RoutedNetwork`; None when nothing does."""
    try:
        network = RoutedNetwork([1, 2])
    except OSError as error:
        return str(error)
    try:
        network.cut(1, 2)
        network.heal()
        with network.clients():
            return None
    except OSError as error:
        return str(error)
    finally:
        network.close()


def make_network(flavour: str, nodes: Sequence[int]) -> Network:
    """`netns`, `loopback`, or `auto`: namespaces where the machine allows them."""
    if flavour == "netns" or (flavour == "auto" and why_no_namespaces() is None):
        return RoutedNetwork(nodes)
    return LoopbackNetwork(nodes)
