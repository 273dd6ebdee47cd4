"""Asks a store for several objects at once: most of the time of a request is its way there and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 8

T = TypeVar("T")


def fetch_all(get: Callable[[str], T], keys: Sequence[str]) -> list[T]:
    """Call `get` for all keys, in a few threads, and return the results in the order of the keys."""
    if len(keys) <= 1:
        return [get(key) for key in keys]
    with ThreadPoolExecutor(min(THREADS, len(keys)), thread_name_prefix="store") as threads:
        return list(threads.map(get, keys))
