"""Fields of a JSON body, read with care: what is wrong is told by the field's name, with 400.

A number may come as a string, everywhere: SSKafka's document writes broker ids both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.edge.routing import RequestError

_SHOWN_CHARACTERS_MAX = 60
_DIGITS_MAX = 20


def text(body: Mapping[str, Any], name: str) -> str:
    """A string that must be there."""
    found = optional_text(body, name)
    if found is None:
        raise RequestError(400, f"{name} is missing")
    return found


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    """A string, or None where it is null or not there."""
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise RequestError(400, f"{name} must be a string, not {_shown(found)}")
    return found


def encoded(body: Mapping[str, Any], name: str) -> bytes | None:
    """A string as UTF-8, or None."""
    found = optional_text(body, name)
    try:
        return None if found is None else found.encode()
    except UnicodeEncodeError:
        raise RequestError(400, f"{name} has half of a surrogate pair in it, which no text may have") from None


def number(body: Mapping[str, Any], name: str, default: int | None, low: int, high: int) -> int:
    """A whole number within bounds; without a default it must be there."""
    found = body.get(name)
    if found is None:
        if default is None:
            raise RequestError(400, f"{name} is missing")
        return default
    value = _whole(found)
    if value is None or not low <= value <= high:
        raise RequestError(400, f"{name} must be a whole number from {low} to {high}, not {_shown(found)}")
    return value


def _whole(found: object) -> int | None:
    if isinstance(found, bool):
        return None
    if isinstance(found, int):
        return found
    if isinstance(found, str) and len(found) <= _DIGITS_MAX and found.isascii() and found.removeprefix("-").isdigit():
        return int(found)
    return None


def _shown(found: object) -> str:
    shown = repr(found) if isinstance(found, (str, int, float, bool)) else f"a {type(found).__name__}"
    return shown if len(shown) <= _SHOWN_CHARACTERS_MAX else f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
