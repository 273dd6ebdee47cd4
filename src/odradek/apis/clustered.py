"""How handlers have the controller do something once for each of many partitions, and answer for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from odradek.controller.controller import Controller
from odradek.wire.errors import ErrorCode, PeerError

CALL_TIMEOUT_MS_MAX = 30_000


def change_timeout_ms(asked_ms: int) -> int:
    """How long a change may take: what the client gives, within a bound; 0 is given by those who do not care."""
    return min(asked_ms, CALL_TIMEOUT_MS_MAX) if asked_ms > 0 else CALL_TIMEOUT_MS_MAX


class Outcome(NamedTuple):
    """What became of one command."""

    code: ErrorCode
    message: str | None


async def call_each(
    metadata: Controller, command: str, many: Iterable[dict[str, Any]], timeout_ms: int
) -> list[Outcome]:
    """Give a command once for each of the arguments, and tell what became of each."""
    return list(await asyncio.gather(*(call_one(metadata, command, args, timeout_ms) for args in many)))


async def call_one(metadata: Controller, command: str, args: dict[str, Any], timeout_ms: int) -> Outcome:
    """Give a command, with the time that the client allows, and tell what became of it."""
    try:
        await metadata.call(command, args, timeout_ms=change_timeout_ms(timeout_ms))
    except PeerError as error:
        return Outcome(error.code, error.message)
    return Outcome(ErrorCode.NONE, None)
