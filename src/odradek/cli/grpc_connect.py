"""What the commands that talk to MyKafka's gRPC door share: the broker's address, topic and partition, exit codes.

The codes are those of MyKafka's own tools. gRPC is imported only when a command has been understood.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.cli.terminal import CommandError
from odradek.client.errors import ClientError
from odradek.model import PARTITION_MAX, topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.client.grpc import AsyncMyKafka

ADDRESS_DEFAULT = "127.0.0.1:50051"

EXIT_TOPIC = 2
EXIT_PARTITION = 3
EXIT_ACTION = 4
EXIT_TRANSPORT = 5
EXIT_BROKER = 6

EXIT_STATUS = """\
exit status:
  0  done
  2  no topic, or a name that no topic can have (as for any wrong command line)
  3  no partition, or no number that one can have"""
EXIT_STATUS_MORE = """\
  5  no answer: nobody is at the address, or it is no gRPC door, or it does not answer in time
  6  the broker answered with an error, which is shown with its code"""

Action = Callable[["AsyncMyKafka"], Awaitable[int]]


def add_address_argument(parser: argparse.ArgumentParser) -> None:
    """Let a command take --broker-address."""
    parser.add_argument(
        "--broker-address", metavar="HOST:PORT", default=ADDRESS_DEFAULT,
        help=f"a broker's gRPC door; several with commas between them (default {ADDRESS_DEFAULT})",
    )  # fmt: skip


def topic_of(given: str | None) -> str:
    """The topic that a command line names."""
    if not given:
        raise CommandError("name a topic", EXIT_TOPIC)
    if (problem := topic_name_problem(given)) is not None:
        raise CommandError(problem, EXIT_TOPIC)
    return given


def partition_of(given: str | None) -> int:
    """The partition that a command line names."""
    if given is None:
        raise CommandError("name a partition with --partition N", EXIT_PARTITION)
    if not (given.isascii() and given.isdigit() and len(given) <= 10 and int(given) <= PARTITION_MAX):
        raise CommandError(f"{given!r} is no partition: write a number from 0 to {PARTITION_MAX}", EXIT_PARTITION)
    return int(given)


def run_mykafka(args: argparse.Namespace, action: Action) -> int:
    """Connect, do something, and return the exit status. Ctrl+C is a KeyboardInterrupt when it has ended."""
    return asyncio.run(_connected(args, action))


async def _connected(args: argparse.Namespace, action: Action) -> int:
    from odradek.client.grpc import AsyncMyKafka  # noqa: PLC0415 (gRPC takes longer to import than help takes to show)

    try:
        client = AsyncMyKafka(args.broker_address)
    except ValueError as error:
        raise CommandError(f"--broker-address: {error}", EXIT_TRANSPORT) from None
    with told():
        async with client:
            return await action(client)


@contextmanager
def told() -> Iterator[None]:
    """Give the errors of a client the exit codes of MyKafka's tools."""
    try:
        yield
    except ClientError as error:
        from odradek.client.grpc import MyKafkaError  # noqa: PLC0415

        is_answer = isinstance(error, MyKafkaError)
        raise CommandError(str(error), EXIT_BROKER if is_answer else EXIT_TRANSPORT) from None
