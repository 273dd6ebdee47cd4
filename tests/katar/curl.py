"""The real curl, as Katar's document has people use it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

SECONDS_MAX = 60


def curl(url: str, method: str = "GET", body: object = None, *headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer, None when it is empty; curl says that the body is a form."""
    status, answer = curl_bytes(url, method, body, *headers)
    return status, json.loads(answer) if answer else None


def curl_bytes(url: str, method: str = "GET", body: object = None, *headers: str) -> tuple[int, bytes]:
    """The status and the bytes of an answer."""
    command = ["curl", "-sS", "--max-time", str(SECONDS_MAX), "-X", method, "-w", "\n%{http_code}", url]
    for header in headers:
        command += ["-H", header]
    if body is not None:
        command += ["--data-binary", "@-"]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    done = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS_MAX + 5, check=True)
    answer, _, status = done.stdout.rpartition(b"\n")
    return int(status), answer


class Events:
    """`curl -N` on a stream of events."""

    def __init__(self, url: str, body: object, *headers: str) -> None:
        command = ["curl", "-sSN", "--max-time", str(SECONDS_MAX), "-H", "Accept: text/event-stream", url]
        for header in headers:
            command += ["-H", header]
        command += ["-d", json.dumps(body)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def next(self) -> tuple[str, Any]:
        """The id and the data of the next record; signs of life are passed over."""
        found: dict[str, str] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif found.get("event") == "record":
                return found["id"], json.loads(found["data"])
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        """Hang up."""
        self._process.kill()
        self._process.wait(SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()
