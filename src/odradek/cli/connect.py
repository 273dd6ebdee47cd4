"""What the commands that talk to a broker share: its address, the connection, and errors that say what to do.

They work with any Kafka broker, so nothing here expects Odradek's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches

from odradek.cli.terminal import CommandError
from odradek.client.address import Address, parse_addresses
from odradek.client.client import Client
from odradek.client.cluster import TopicInfo
from odradek.client.errors import BrokerUnavailableError, UnknownTopicError, check
from odradek.model import topic_name_problem
from odradek.wire.errors import ErrorCode

BROKER_VARIABLE = "ODRADEK_BROKER"
BROKER_DEFAULT = "127.0.0.1:9092"
CLIENT_ID = "odradek-cli"
EXIT_USAGE = 2

_CONNECT_SECONDS_MAX = 5
_START_SECONDS_MAX = 5

Action = Callable[[Client], Awaitable[int]]


def add_broker_argument(parser: argparse.ArgumentParser) -> None:
    """Let a command take --broker."""
    parser.add_argument(
        "--broker",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS,  # so that it may stand before a subcommand, too
        help=f"a Kafka broker (default: the one in {BROKER_VARIABLE}, or {BROKER_DEFAULT})",
    )


def run_client(args: argparse.Namespace, action: Action, *, fast: bool = False) -> int:
    """Connect, do something with the client, and return the exit status. `fast` is for those who move many records.

    Ctrl+C cancels it, and is a KeyboardInterrupt when it has ended.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if fast:
        import uvloop  # noqa: PLC0415 (takes longer to import than a short command takes to run)

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_connected(broker_addresses(args), action))


def broker_addresses(args: argparse.Namespace) -> list[Address]:
    """What --broker names, or else the environment."""
    given: str | None = getattr(args, "broker", None)
    text = given or os.environ.get(BROKER_VARIABLE) or BROKER_DEFAULT
    try:
        return parse_addresses(text)
    except ValueError as error:
        source = "--broker" if given else BROKER_VARIABLE
        raise CommandError(f"{source}: {error}", EXIT_USAGE) from None


async def _connected(addresses: list[Address], action: Action) -> int:
    client = await connected_client(addresses)
    try:
        return await action(client)
    except UnknownTopicError as error:
        raise await _no_topic(client, error.topic) from None
    finally:
        await client.close()


async def connected_client(addresses: list[Address]) -> Client:
    """A client that has found its cluster; unlike the client itself, nobody here waits for a broker to come up."""
    written = ",".join(map(str, addresses))
    await _knock(addresses, written)
    client = Client(written, client_id=CLIENT_ID)
    try:
        async with asyncio.timeout(_START_SECONDS_MAX):
            await client.start()
    except (TimeoutError, BrokerUnavailableError):
        raise CommandError(
            f"what listens at {written} does not answer as a Kafka broker does: name another with --broker HOST:PORT"
        ) from None
    return client


async def _knock(addresses: Iterable[Address], written: str) -> None:
    """Fail at once if nobody listens."""
    for host, port in addresses:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                _, writer = await asyncio.open_connection(host, port)
        except (TimeoutError, OSError):
            continue
        writer.close()
        await writer.wait_closed()
        return
    raise CommandError(
        f"no broker answers at {written}: start one with 'odradek serve', or name another with --broker HOST:PORT"
    )


async def find_topic(client: Client, name: str) -> TopicInfo:
    """A topic as it is now, or an error that names the nearest one."""
    check_topic_name(name)
    cluster = client.cluster
    if len(cluster.nodes) > 1:
        return await cluster.topic(name)  # waits a little: the brokers learn of a new topic one after the other
    await cluster.refresh([name])
    info = cluster.topics.get(name)
    if info is None or info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise await _no_topic(client, name)
    check(info.error, f"topic {name}")
    return info


def check_topic_name(name: str) -> None:
    """Refuse what no topic can be called."""
    if (problem := topic_name_problem(name)) is not None:
        raise CommandError(problem, EXIT_USAGE)


async def _no_topic(client: Client, name: str) -> CommandError:
    topics = await client.admin.list_topics(internal=True)
    names = [topic.name for topic in topics if not topic.error]
    hint = nearest(name, names) or f"'odradek topic list' shows what is there, 'odradek topic create {name}' makes it"
    return CommandError(f"there is no topic '{name}': {hint}")


def nearest(name: str, names: Iterable[str]) -> str:
    """`did you mean 'orders'?`, or nothing."""
    known = {known.lower(): known for known in names}
    matches = get_close_matches(name.lower(), known, n=1)
    return f"did you mean '{known[matches[0]]}'?" if matches else ""
