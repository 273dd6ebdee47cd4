"""`odradek cluster up`: a whole cluster on this machine, one `odradek serve` a broker, until Ctrl+C or SIGTERM.

What it tells goes to standard error; standard output carries the one line that scripts wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import signal
import socket
import sys
from itertools import combinations
from pathlib import Path

from odradek.cli.cluster_supervisor import BrokerSpec, Member, Probe, Starter, Stop, Supervisor
from odradek.cli.cluster_view import shown
from odradek.cli.connect import EXIT_USAGE
from odradek.cli.listing import tell
from odradek.cli.terminal import CommandError
from odradek.cli.values import assignment, number
from odradek.client.address import PORT_MAX, Address
from odradek.client.http import HttpError, HttpLink

HOST = "127.0.0.1"
BROKERS_MAX = 25
DATA_DEFAULT = "~/.odradek-cluster"
_DIRECTORY = "broker-"
_OWN_SETTINGS = ("data", "kafka", "http", "grpc", "broker.id", "voters")
# When all stop at once, the last ones find nobody to hand their partitions to: they need not look for long.
_HAND_OVER = ("controlled.shutdown.timeout.ms", "3s")
_PROBE_TIMEOUT_MS = 1_500
_PR_SET_PDEATHSIG = 1


def up_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek cluster up` takes."""
    port = number(1, PORT_MAX)
    parser.add_argument(
        "--brokers", metavar="N", type=number(1, BROKERS_MAX), default=3,
        help="how many (default 3); of 3 one may fail, of 5 two",
    )  # fmt: skip
    parser.add_argument("--data", metavar="DIR", default=DATA_DEFAULT, help=f"directories go here ({DATA_DEFAULT})")
    parser.add_argument(
        "--http-base", metavar="PORT", type=port, default=8001, help="HTTP port of broker 1, 2 has the next (8001)"
    )
    parser.add_argument(
        "--kafka-base", metavar="PORT", type=port, default=19092, help="Kafka port of broker 1, 2 has the next (19092)"
    )
    parser.add_argument(
        "--grpc-base", metavar="PORT", type=port, default=50051, help="gRPC port of broker 1, 2 has the next (50051)"
    )
    parser.add_argument("--no-restart", action="store_true", help="a broker that dies stays down")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", type=assignment, action="append", default=[],
        help="a setting of every broker; repeatable. 'odradek settings' lists them",
    )  # fmt: skip


def up(args: argparse.Namespace) -> int:
    """Run a cluster until told to stop."""
    members = [Member(spec) for spec in plan(args)]
    return asyncio.run(keep_up(members, start=start_process, probe=ask_leader, restart=not args.no_restart))


def plan(args: argparse.Namespace) -> list[BrokerSpec]:
    """Lay out the brokers that the command line asks for, or say why that cannot be."""
    for name, _ in args.set:
        if name in _OWN_SETTINGS:
            raise CommandError(f"--set {name}: 'cluster up' gives each broker its own {name}", EXIT_USAGE)
    ids = range(1, args.brokers + 1)
    bases = {"--http-base": args.http_base, "--kafka-base": args.kafka_base, "--grpc-base": args.grpc_base}
    _check_ports(bases, args.brokers)
    directory = Path(args.data).expanduser().absolute()
    _check_directory(directory, args.brokers)
    voters = ",".join(f"{id_}@{Address(HOST, args.http_base + id_ - 1)}" for id_ in ids)
    specs = []
    for id_ in ids:
        http, kafka, grpc = (Address(HOST, base + id_ - 1) for base in bases.values())
        data = directory / f"{_DIRECTORY}{id_}"
        command = [sys.executable, "-m", "odradek", "serve", "--broker-id", str(id_), "--data", str(data)]
        command += ["--kafka", str(kafka), "--http", str(http), "--grpc", str(grpc), "--voters", voters]
        command += [word for name, value in (_HAND_OVER, *args.set) for word in ("--set", f"{name}={value}")]
        specs.append(BrokerSpec(id_, kafka, http, grpc, data, tuple(command)))
    return specs


def _check_ports(bases: dict[str, int], count: int) -> None:
    for (first, low), (second, other) in combinations(bases.items(), 2):
        if abs(low - other) < count:
            raise CommandError(f"{first} {low} and {second} {other} overlap with {count} brokers: move one", EXIT_USAGE)
    for flag, base in bases.items():
        if base + count - 1 > PORT_MAX:
            raise CommandError(f"{flag} {base} leaves no ports for {count} brokers: choose a smaller one", EXIT_USAGE)
        for port in range(base, base + count):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise CommandError(
                        f"port {port} of {HOST} cannot be had: {error.strerror}; end the program that has it, or choose"
                        f" other ports with {flag}"
                    ) from None


def _check_directory(directory: Path, count: int) -> None:
    if (directory / "metadata").exists():
        raise CommandError(
            f"{directory} is the data directory of a single broker: name another with --data DIR", EXIT_USAGE
        )
    present = directory.glob(f"{_DIRECTORY}*") if directory.is_dir() else ()
    ids = {path.name.removeprefix(_DIRECTORY) for path in present}
    idle = sorted(int(id_) for id_ in ids if id_.isdigit() and int(id_) > count)
    if idle:
        tell(
            f"{directory} also has data of broker {', '.join(map(str, idle))}, which is not started: partitions that"
            f" only they hold stay offline ('--brokers {max(idle)}' starts them, too)"
        )
    directory.mkdir(parents=True, exist_ok=True)


async def keep_up(members: list[Member], *, start: Starter, probe: Probe, restart: bool) -> int:
    """Start the brokers, keep them, and stop them when a signal comes."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number_, stop.ask)
    async with shown(members) as told:

        def ready() -> None:
            kafka = ",".join(str(member.spec.kafka) for member in members)
            print(f"odradek cluster ready brokers={len(members)} kafka={kafka}", flush=True)
            told(f"all brokers are up; 'export ODRADEK_BROKER={kafka}' lets the other commands find them")

        supervisor = Supervisor(members, start=start, probe=probe, told=told, ready=ready, restart=restart)
        await supervisor.run(stop)
        told("all brokers have stopped")
    return 0


async def start_process(spec: BrokerSpec) -> asyncio.subprocess.Process:
    """Start a broker: out of reach of the terminal's Ctrl+C, and stopped with us even if we are killed."""
    prctl = ctypes.CDLL(None).prctl

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return await asyncio.create_subprocess_exec(
        *spec.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


async def ask_leader(spec: BrokerSpec) -> int | None:
    """Ask a broker's /healthcheck for the leader it knows; None if it does not answer."""
    link = HttpLink(spec.http)
    try:
        _, content = await link.get("/healthcheck", _PROBE_TIMEOUT_MS)
        return int(content["leader_broker_id"])
    except (HttpError, KeyError, TypeError, ValueError):
        return None
    finally:
        await link.close()
