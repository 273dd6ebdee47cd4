"""How a command finds its broker, and what it says when there is none."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.cli.commands import Cli

COMMANDS = (
    ("topic", "list"),
    ("group", "list"),
    ("produce", "t"),
    ("consume", "t"),
    ("bench", "produce"),
)


@pytest.fixture
def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_broker_is_told_at_once_with_what_to_do(cli: Cli, command: tuple[str, ...], free_address: str) -> None:
    assert cli.fails(*command, "--broker", free_address) == (
        f"no broker answers at {free_address}: start one with 'odradek serve', or name another with --broker HOST:PORT"
    )


def test_without_anything_it_is_the_address_that_serve_uses(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def refuse(host: str, port: int) -> None:
        asked.append((host, port))
        raise ConnectionRefusedError

    monkeypatch.delenv("ODRADEK_BROKER")
    monkeypatch.setattr("asyncio.open_connection", refuse)
    assert "127.0.0.1:9092" in cli.fails("topic", "list")
    assert asked == [("127.0.0.1", 9092)]


def test_the_flag_is_stronger_than_the_variable_and_may_stand_before_the_subcommand(
    cli: Cli, free_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_BROKER", free_address)
    assert free_address in cli.fails("topic", "list")
    cli.ok("topic", "list", "--broker", cli.address)
    cli.ok("topic", "--broker", cli.address, "list")
    cli.ok("topic", "list", "--broker", f"{free_address},{cli.address}")


@pytest.mark.parametrize("address", ["nowhere:port", "a:b:c", ":1", "127.0.0.1:0", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--broker: " in cli.fails("topic", "list", "--broker", address, status=2)
    monkeypatch.setenv("ODRADEK_BROKER", address)
    assert "ODRADEK_BROKER: " in cli.fails("topic", "list", status=2)


def test_the_variable_is_no_unknown_setting(cli: Cli) -> None:
    cli.ok("settings", "dir")


def test_something_else_that_listens_is_not_taken_for_a_broker(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        line = cli.fails("topic", "list", "--broker", address)
        server.shutdown(socket.SHUT_RDWR)
    assert line == (
        f"what listens at {address} does not answer as a Kafka broker does: name another with --broker HOST:PORT"
    )


@pytest.mark.parametrize(
    "command",
    [
        *(("topic", name) for name in ("create", "list", "describe", "alter", "delete", "add-partitions", "trim")),
        *(("group", name) for name in ("list", "describe", "reset", "delete")),
        *(("bench", name) for name in ("produce", "consume", "latency")),
        ("produce",),
        ("consume",),
    ],
    ids=" ".join,
)
def test_every_subcommand_explains_itself_with_examples(cli: Cli, command: tuple[str, ...]) -> None:
    text = cli.ok(*command, "--help").out
    assert text.startswith(f"usage: odradek {' '.join(command)} ")
    assert "examples:\n" in text and f"  odradek {' '.join(command)} " in text
    assert "--broker HOST:PORT" in text
