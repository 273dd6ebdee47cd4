"""Stores that obstore speaks to: S3, Google Cloud Storage, Azure, and one in memory.

Its errors become ours; its retries are kept short, since whoever calls has its own back-off and must know soon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import obstore
import obstore.store
from obstore import exceptions

from odradek.objects.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreUnavailableError,
    StoreURLError,
)
from odradek.objects.stores import PAGE_KEYS, ObjectInfo, ObjectStore

PART_BYTES = 32 * 1024 * 1024  # an object larger than this goes up in parts, unless it must be new
RETRIES_MAX = 2
CONNECT_TIMEOUT_MS = 5_000
# Options of the connection; all others are the store's own.
CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
})  # fmt: skip
_FLAGS = frozenset({"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"})
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_BULK_DELETE = {"s3": 1_000, "az": 256}  # objects in one request to delete them; elsewhere one


class RemoteStore(ObjectStore):
    """A store behind obstore."""

    def __init__(self, url: str, options: Mapping[str, str], timeout_ms: int) -> None:
        super().__init__(url)
        self._bulk = _BULK_DELETE.get(url.partition("://")[0].lower(), 1)
        self._store: Any = _connect(url, options, timeout_ms)

    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None:
        in_parts = not only_new and sum(map(len, parts)) > PART_BYTES
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        with self._explained("PUT", key):
            self._store.put(
                key, data, mode="create" if only_new else "overwrite", use_multipart=in_parts, chunk_size=PART_BYTES
            )

    def _get(self, key: str) -> bytes:
        with self._explained("GET", key):
            return bytes(self._store.get(key).bytes())

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        with self._explained("GET", key):
            try:
                return bytes(self._store.get_range(key, start=start, length=length))
            except exceptions.GenericError as error:
                if _is_behind_the_end(str(error)):
                    return b""
                raise

    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]:
        with self._explained("LIST", prefix):
            for page in self._store.list(prefix.rstrip("/"), offset=after, chunk_size=PAGE_KEYS):
                yield [
                    ObjectInfo(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000)) for one in page
                ]

    def _folders(self, prefix: str) -> Sequence[str]:
        with self._explained("LIST", prefix):
            found = self._store.list_with_delimiter(prefix.rstrip("/"))["common_prefixes"]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def _delete(self, keys: Sequence[str]) -> int:
        with self._explained("DELETE", keys[0]):
            try:
                self._store.delete(list(keys))
                return -(-len(keys) // self._bulk)
            except FileNotFoundError:
                for key in keys:  # one of them was gone: which, it does not say
                    self._delete_one(key)
                return len(keys)

    def _delete_one(self, key: str) -> None:
        try:
            self._store.delete([key])
        except FileNotFoundError:
            return

    @contextmanager
    def _explained(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ObjectExistsError(f"{self.url}: {key} is there already") from None
        except FileNotFoundError as error:
            if what == "GET":
                raise ObjectMissingError(f"{self.url}: there is no object {key}") from None
            raise StoreError(f"{self.url}: {what} {key}: {_brief(error)}; does the bucket exist?") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StoreError(
                f"{self.url}: {what} {key} is not allowed: {_brief(error)};"
                " look at the credentials in the environment or the options, and at the bucket's rules"
            ) from None
        except (exceptions.InvalidPathError, exceptions.NotSupportedError) as error:
            raise StoreError(f"{self.url}: {what} {key} cannot be done: {_brief(error)}") from None
        except exceptions.BaseError as error:
            raise StoreUnavailableError(
                f"{self.url}: {what} {key}: {_brief(error)}; is the store up, and is this its address?"
            ) from None


class MemoryStore(RemoteStore):
    """A store in the memory of this process: whoever opens the same URL has the same objects."""

    def __init__(self, url: str) -> None:
        ObjectStore.__init__(self, url)
        self._bulk = 1
        self._store = _memory(url.rstrip("/"))


@cache
def _memory(url: str) -> Any:
    return obstore.store.MemoryStore()


def _connect(url: str, options: Mapping[str, str], timeout_ms: int) -> Any:
    client: dict[str, Any] = {
        "timeout": f"{timeout_ms}ms",
        "connect_timeout": f"{min(timeout_ms, CONNECT_TIMEOUT_MS)}ms",
    }
    config: dict[str, Any] = {}
    for name, value in options.items():
        bare = name.lower().removeprefix("aws_") if name.lower() == "aws_allow_http" else name.lower()
        if bare in CLIENT_OPTIONS:
            client[bare] = value.lower() in ("true", "1", "yes") if bare in _FLAGS else value
        else:
            config[name] = value
    endpoints = [value for name, value in config.items() if "endpoint" in name.lower()]
    endpoints += [os.environ.get(variable, "") for variable in _ENDPOINT_VARIABLES]
    if any(endpoint.startswith("http://") for endpoint in endpoints):
        client.setdefault("allow_http", True)  # who names such an endpoint means it
    try:
        from_url: Any = obstore.store.from_url  # its types want each option by name
        return from_url(
            url,
            config=config or None,
            client_options=client,
            retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(milliseconds=timeout_ms)},
        )
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise StoreURLError(f"{url}: the store cannot be opened: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    """The first line of obstore's words; what follows is for its own authors."""
    return str(error).partition("\n")[0].strip().rstrip(".")


def _is_behind_the_end(text: str) -> bool:
    return "StartTooLarge" in text or "416" in text
