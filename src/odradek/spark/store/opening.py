"""One open store a process and URL, and patience with a store that is away.

Spark reuses its Python processes, so a task finds the connections of the one before it. They do not survive a fork:
each is kept under the number of the process that made it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from odradek.objects.errors import StoreError, StoreUnavailableError, StoreURLError
from odradek.objects.stores import ObjectStore, open_store
from odradek.spark.errors import OptionError, SparkError, UnreachableError
from odradek.spark.store.options import StoreTarget

PATIENCE_S = 60.0  # a store may be away for this long while something is read; not when a query begins
ROLE_ADDRESSES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")  # asked by who has no credentials
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 5.0

_T = TypeVar("_T")
_stores: dict[tuple[int, StoreTarget], ObjectStore] = {}  # by the number of the process


def opened(target: StoreTarget) -> ObjectStore:
    """The store of this process for a URL."""
    key = (os.getpid(), target)
    store = _stores.get(key)
    if store is None:
        _check_directory(target.url)
        try:
            store = open_store(target.url, dict(target.settings))
        except StoreURLError as error:
            raise OptionError(without_secrets(f"store: {error}", target)) from None
        store = _stores.setdefault(key, store)
    return store


def asked(target: StoreTarget, ask: Callable[[], _T], *, patience_s: float = 0.0) -> _T:
    """What a store answers. Its errors become ours, without secrets; one that is away is asked again for a while."""
    ends = time.monotonic() + patience_s
    pause = PAUSE_S_MIN
    while True:
        try:
            return ask()
        except StoreUnavailableError as error:
            if time.monotonic() + pause > ends:
                waited = f" (it was asked for {patience_s:g} s)" if patience_s else ""
                text = f"the store cannot be read{waited}: {_advised(str(error))}"
                raise UnreachableError(without_secrets(text, target)) from None
        except StoreError as error:
            raise SparkError(without_secrets(f"the store cannot be read: {error}", target)) from None
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_S_MAX)


def _advised(text: str) -> str:
    """Say what it means that a store's client asks the cloud's machine who it is."""
    if not any(address in text for address in ROLE_ADDRESSES):
        return text
    return (
        "no credentials were found. Give them with store.<name>, as in store.aws_access_key_id and"
        " store.aws_secret_access_key, or in the environment of the driver and of the executors (AWS_ACCESS_KEY_ID"
        f" and so on), or run where the cloud gives a role to the machine. {text}"
    )


def without_secrets(text: str, target: StoreTarget) -> str:
    """A text in which the values of the store's settings are blacked out."""
    for name, value in target.settings:
        if len(value) > 3 and ("key" in name or "secret" in name or "token" in name or "password" in name):
            text = text.replace(value, "***")
    return text


def _check_directory(url: str) -> None:
    """A store that is only read is there already: a path with a typing error must not become a directory."""
    scheme, _, path = url.partition("://")
    if scheme.lower() == "file" and path.startswith("/") and not Path(unquote(path)).is_dir():
        raise OptionError(
            f"store: there is no directory {unquote(path)!r} on this machine. Correct the path; on a cluster every"
            " machine must see it"
        )
