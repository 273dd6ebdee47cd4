"""curl, as people type it: the answer's status, its JSON and its headers."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

SECONDS_MAX = 60.0


class Answer(NamedTuple):
    """What curl was answered."""

    status: int
    content: Any  # its JSON; None when it is empty
    headers: dict[str, str]


def curl(*arguments: str, body: bytes | None = None) -> Answer:
    """Run curl with these arguments; `body` is what `--data-binary @-` reads."""
    command = ["curl", "--silent", "--show-error", "--include", "--http1.1", *arguments]
    done = subprocess.run(command, input=body, capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr.decode()
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, content = content.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), json.loads(content) if content else None, headers)


def now_ms() -> int:
    """The present time as a message carries it."""
    return time.time_ns() // 1_000_000


class Door:
    """A broker's HTTP door, and what people do there."""

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, topic: str, **more: Any) -> Answer:
        """`PUT /create_topic`."""
        return curl("-XPUT", f"{self.url}/create_topic", "-d", json.dumps({"topic": topic, **more}))

    def register(self, topic: str, key: str) -> Answer:
        """`POST /register/<topic>`."""
        return curl("-XPOST", f"{self.url}/register/{topic}", "-d", json.dumps({"client_key": key}))

    def channel(self, topic: str, key: str = "key", **more: Any) -> str:
        """A channel with a client."""
        made = self.create(topic, **more)
        assert made.status == 201, made.content
        assert self.register(topic, key).status == 201
        return topic

    def publish(self, topic: str, content: object, key: str = "key") -> Answer:
        """`PUT /<topic>`."""
        return curl("-XPUT", f"{self.url}/{topic}", "-H", f"client_key: {key}", "-d", json.dumps(content))

    def read(self, topic: str, start: int = 0, query: str = "", key: str = "key") -> Answer:
        """`GET /<topic>/<time_stamp>`."""
        return curl("-XGET", f"{self.url}/{topic}/{start}{query}", "-H", f"client_key: {key}")

    def numbers(self, topic: str, key: str = "key") -> list[int]:
        """The field `x` of all messages."""
        answer = self.read(topic, 0, "?n=10000", key)
        assert answer.status == 200, answer.content
        return [message["x"] for message in answer.content["messages"]]


def objects(directory: Path) -> list[str]:
    """The keys of a channel's objects in a store that is a directory, without those of its own affairs."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(directory)) for path in files if "!" not in str(path.relative_to(directory)))
