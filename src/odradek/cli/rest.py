"""Talks to a broker's HTTP door for the commands that need it: one request after another, errors in one line."""

from __future__ import annotations

import argparse
import http.client
import json
import os
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import quote

from odradek.cli.terminal import CommandError
from odradek.settings_table import split_address

HTTP_VARIABLE = "ODRADEK_REST"  # not ODRADEK_HTTP: that says where a broker listens
HTTP_DEFAULT = "127.0.0.1:8080"
_SECONDS_MAX = 60.0


def add_http_argument(parser: argparse.ArgumentParser) -> None:
    """Let a command take --http."""
    parser.add_argument(
        "--http", metavar="HOST:PORT", help=f"a broker's HTTP door (default: {HTTP_VARIABLE}, or {HTTP_DEFAULT})"
    )


class RestError(CommandError):
    """The broker has refused; `status` is HTTP's."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Rest:
    """One connection to an HTTP door."""

    def __init__(self, args: argparse.Namespace) -> None:
        text = args.http or os.environ.get(HTTP_VARIABLE) or HTTP_DEFAULT
        address = split_address(text)
        if address is None:
            raise CommandError(f"{text!r} is no address: write HOST:PORT, as in {HTTP_DEFAULT}", 2)
        self._name = text
        self._connection = http.client.HTTPConnection(*address, timeout=_SECONDS_MAX)

    def ask(
        self, method: str, *pieces: str, body: bytes | object = None, headers: Mapping[str, str] | None = None,
        query: str = "",
    ) -> Any:  # fmt: skip
        """Ask for a path made of these pieces; give the answer's JSON. RestError if it is refused."""
        path = "/" + "/".join(quote(piece, safe="") for piece in pieces) + query
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, content, {**(headers or {}), "Content-Type": "application/json"})
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise CommandError(
                f"no answer from {self._name}: {error or type(error).__name__}; is a broker's HTTP door there? "
                f"'odradek serve' runs one, --http or {HTTP_VARIABLE} names another"
            ) from None
        content_of = _json(answer)
        if response.status >= 400:
            detail = content_of.get("detail") if isinstance(content_of, dict) else None
            raise RestError(response.status, str(detail or f"{self._name} answers {response.status} to {path}"))
        return content_of

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _json(answer: bytes) -> Any:
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        return None
