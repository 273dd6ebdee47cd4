"""What the commands about channels do: at a broker's HTTP door, or in the store itself when --store names one."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from odradek.cli.connect import check_topic_name
from odradek.cli.inputs import confirm
from odradek.cli.listing import counted, show, tell
from odradek.cli.rest import Rest, RestError, add_http_argument
from odradek.cli.terminal import CommandError
from odradek.clock import SystemClock

if TYPE_CHECKING:
    from odradek.objects.stores import ObjectStore

KEY_VARIABLE = "ODRADEK_CLIENT_KEY"
_BATCH_MESSAGES = 1_000
_PAGE_MESSAGES = 1_000
_FOLLOW_WAIT_MS = 5_000
_HOUR_MS = 3_600_000


def add_place_arguments(parser: argparse.ArgumentParser, *, store: bool = True, key: bool = False) -> None:
    """Say where the channel is: at a broker, or in a store; and with which key."""
    add_http_argument(parser)
    if store:
        parser.add_argument("--store", metavar="URL", help="no broker: straight in s3://, gs://, az:// or file://")
    if key:
        parser.add_argument(
            "--client-key", metavar="KEY", help=f"of a registered client (default: the one in {KEY_VARIABLE})"
        )


# create, list, delete


def create(args: argparse.Namespace) -> int:
    """Make a channel."""
    check_topic_name(args.name)
    times = {"channel.window.ms": args.window, "channel.slice.ms": args.slice, "channel.retention.ms": args.retention}
    config = {name: str(round(value * 1_000)) for name, value in times.items() if value is not None}
    if args.store is not None:
        _create_in_store(args, config)
    else:
        body: dict[str, Any] = {"topic": args.name, "fifo": args.fifo, "config": {**config, **dict(args.config)}}
        if args.home is not None:
            body["store"] = args.home
        with Rest(args) as rest:
            rest.ask("PUT", "create_topic", body=body)
    print(f"created channel {args.name}")
    return 0


def _create_in_store(args: argparse.Namespace, config: Mapping[str, str]) -> None:
    from odradek.objects.channels import create_channel  # noqa: PLC0415
    from odradek.objects.spec import ChannelSpec  # noqa: PLC0415

    if args.config or args.home is not None:
        raise CommandError("--config and --in are for a broker; a channel made with --store has none", 2)
    times: dict[str, Any] = {
        name.removeprefix("channel.").replace(".", "_"): int(value) for name, value in config.items()
    }
    try:
        spec = ChannelSpec(name=args.name, id=secrets.token_hex(16), fifo=args.fifo, **times)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    create_channel(_store(args), spec)


def list_channels(args: argparse.Namespace) -> int:
    """Show the channels of a broker or of a store."""
    found = list(_channels_in_store(args) if args.store is not None else _channels_of_broker(args))
    if args.json:
        for channel in found:
            print(json.dumps(channel))
        return 0
    show(list(found[0]) if found else ["channel"], [[str(value) for value in channel.values()] for channel in found])
    if not found:
        tell("there are no channels: 'odradek channel create NAME' makes one")
    return 0


def _channels_of_broker(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    guarded: list[str] = []
    with Rest(args) as rest:
        for name in rest.ask("GET", "topic")["topics"]:
            try:
                (topic,) = rest.ask("GET", "topic", name, headers=_key(args))["topics"]
            except RestError as error:
                if error.status == 401:
                    guarded.append(name)
                continue  # or it was deleted meanwhile
            config = topic["config"]
            if config["channel.store"]:
                yield _row(
                    name, config["channel.store"], config["channel.window.ms"], config["channel.slice.ms"],
                    config["channel.retention.ms"], fifo=config["channel.fifo"],
                )  # fmt: skip
    if guarded:
        tell(f"whether these are channels is told to their clients only (--client-key): {', '.join(guarded)}")


def _channels_in_store(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    from odradek.objects.channels import list_channels as names_of  # noqa: PLC0415
    from odradek.objects.channels import load_channel  # noqa: PLC0415

    store = _store(args)
    for name in names_of(store):
        spec = load_channel(store, name)
        yield _row(name, args.store, spec.window_ms, spec.slice_ms, spec.retention_ms, fifo=spec.fifo)


def _row(
    name: str, store: object, window: object, piece: object, retention: object, *, fifo: object
) -> dict[str, object]:
    return {
        "channel": name, "store": store, "window_ms": window, "slice_ms": piece, "retention_ms": retention, "fifo": fifo
    }  # fmt: skip


def delete(args: argparse.Namespace) -> int:
    """Delete a channel and all its objects."""
    asyncio.run(confirm(f"delete the channel {args.name} and all its messages?", yes=args.yes))
    if args.store is not None:
        from odradek.objects.channels import delete_channel  # noqa: PLC0415

        count = delete_channel(_store(args), args.name)
        print(f"deleted channel {args.name}, {counted(count, 'object')}")
        return 0
    with Rest(args) as rest:
        rest.ask("DELETE", "topic", args.name, headers=_key(args))
    print(f"deleted channel {args.name}; the broker removes its objects now")
    return 0


# Clients.


def register(args: argparse.Namespace) -> int:
    """Register a client; the key goes to standard output, so that a script can take it."""
    with Rest(args) as rest:
        answer = rest.ask("POST", "register", args.name, body={} if args.key is None else {"client_key": args.key})
    tell(f"client {answer['client_id']} of {args.name}; the key is not kept anywhere, only its hash")
    print(answer["client_key"])
    return 0


def revoke(args: argparse.Namespace) -> int:
    """Take a key back."""
    with Rest(args) as rest:
        rest.ask("DELETE", "register", args.name, args.client, headers=_key(args))
    print(f"client {args.client} of {args.name} is no more")
    return 0


# Messages.


def publish(args: argparse.Namespace) -> int:
    """Send messages in batches; each is in the store before the next one leaves."""
    count = 0
    with _Publisher(args) as publisher:
        for batch in _batches(_messages(args)):
            publisher.send(batch)
            count += len(batch)
    tell(f"published {counted(count, 'message')}")
    return 0


def _messages(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    lines: Iterator[str] = iter(args.messages) if args.messages else iter(sys.stdin)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError as error:
            raise CommandError(f"message {number} is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise CommandError(f"message {number} is JSON, but no object: write {{...}}")
        message.setdefault("_ts", SystemClock().now_ms())
        yield message


def _batches(messages: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Up to a thousand at a time; from a person or a slow program, one as soon as it is there."""
    is_slow = sys.stdin.isatty()
    batch: list[dict[str, Any]] = []
    for message in messages:
        batch.append(message)
        if is_slow or len(batch) == _BATCH_MESSAGES:
            yield batch
            batch = []
    if batch:
        yield batch


class _Publisher:
    """Where messages go: to a broker, or into the store."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._rest: Rest | None = None
        if args.store is None:
            self._rest = Rest(args)
            return
        from odradek.objects.channels import load_channel  # noqa: PLC0415
        from odradek.objects.writer import ChannelWriter  # noqa: PLC0415

        store = _store(args)
        self._writer = ChannelWriter(store, load_channel(store, args.name))

    def send(self, batch: list[dict[str, Any]]) -> None:
        if self._rest is not None:
            self._rest.ask("POST", self._args.name, body=batch, headers=_key(self._args))
            return
        futures = [self._writer.publish(json.dumps(each).encode(), timestamp=each["_ts"]) for each in batch]
        for future in futures:
            future.result()

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rest is not None:
            self._rest.close()
        else:
            self._writer.close()


def read(args: argparse.Namespace) -> int:
    """Show messages as they were sent."""
    now = SystemClock().now_ms()
    start = args.start if args.start is not None else now if args.follow else 0
    if args.follow and args.end is not None:
        raise CommandError("--follow has no end: leave --to out", 2)
    found = _read_store(args, start) if args.store is not None else _read_broker(args, start)
    for count, text in enumerate(found, start=1):
        print(text, flush=args.follow)
        if count == args.most:
            break
    return 0


def _read_broker(args: argparse.Namespace, start: int) -> Iterator[str]:
    skip = 0
    with Rest(args) as rest:
        while True:
            wait = f"&wait_ms={_FOLLOW_WAIT_MS}" if args.follow else ""
            answer = rest.ask(
                "GET", args.name, str(start), query=f"?o={skip}&n={_PAGE_MESSAGES}{wait}", headers=_key(args)
            )
            for message in answer["messages"]:
                if args.end is None or _time_of(message) < args.end:
                    yield json.dumps(message, ensure_ascii=False)
            start, skip = answer["next"]["timestamp"], answer["next"]["o"]
            if not answer["messages"] and not args.follow:
                return


def _read_store(args: argparse.Namespace, start: int) -> Iterator[str]:
    from odradek.objects.reader import ChannelReader  # noqa: PLC0415

    reader = ChannelReader(_store(args), args.name, start=start, end_ms=None if args.follow else _end(args))
    if not args.follow:
        for message in reader.iterate():
            yield _text(message.value)
        return
    for message in reader.follow():
        yield _text(message.value)


def _time_of(message: object) -> float:
    """When a message says that it was made; one of a Kafka producer need not say."""
    time = message.get("_ts") if isinstance(message, dict) else None
    return time if isinstance(time, (int, float)) else 0


def _end(args: argparse.Namespace) -> int:
    return args.end if args.end is not None else SystemClock().now_ms() + _HOUR_MS


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace").replace("\n", " ")


def _key(args: argparse.Namespace) -> dict[str, str]:
    key = args.client_key or os.environ.get(KEY_VARIABLE)
    return {} if key is None else {"client_key": key}


def _store(args: argparse.Namespace) -> ObjectStore:
    from odradek.objects.stores import open_store  # noqa: PLC0415 (takes longer to import than a short command to run)

    return open_store(args.store)
