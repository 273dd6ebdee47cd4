"""Who may use a topic by REST: clients with a key, each registered with one topic (RAMA's client identity, seed 002).

The guard of every door is `Clients.check(topic, key, peer)`: it returns when the key is good for the topic, and raises
a PeerError else, which `edge.rest.errors.problem_of` makes 401, 404 or 429 of. Ask `is_required(topic)` first where a
topic need not be guarded.

The metadata has hashes of keys only (scrypt, salted with the topic's id, which is random and never used again). To
hash takes some 50 ms of a processor and 16 MiB, so it is done in threads, few at once, and a key that was found good
is remembered by a quick keyed hash until it is revoked.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from odradek.broker.broker import Broker
from odradek.broker.objects_config import TopicObjects
from odradek.controller.image import TopicImage
from odradek.model import INTERNAL_TOPICS
from odradek.wire.errors import ErrorCode, PeerError

KEY_CHARACTERS_MAX = 200
_REQUIRED = "clients.required"
_KEY_BYTES = 16  # of a key that is made here
_HASH_BYTES = 32
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
_HASHES_AT_ONCE = 2
_REMEMBERED_MAX = 10_000  # keys, and addresses that have failed
_WINDOW_MS = 60_000
_LOOK_UP_TIMEOUT_MS = 5_000


class UnknownClientError(PeerError):
    """No key, or one that is not registered with the topic: 401."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class TooManyFailuresError(PeerError):
    """An address has shown too many wrong keys: 429."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        self.retry_after_seconds = retry_after_seconds


class Registered(NamedTuple):
    """A client after its registration."""

    client_id: str
    key: str
    is_new: bool


class Clients:
    """The clients of all topics."""

    def __init__(self, broker: Broker, failures_max: int) -> None:
        self._broker = broker
        self._failures = _Failures(failures_max)
        self._secret = secrets.token_bytes(32)  # of this process: what is remembered is of no use elsewhere
        self._good: OrderedDict[bytes, bytes] = OrderedDict()  # fingerprints of good keys -> their hashes
        self._hashing: dict[bytes, asyncio.Task[bytes]] = {}  # by fingerprint
        self._settings = broker.settings
        self._required: dict[str, bool] = {}  # what a topic's own setting means, under these settings
        self._turns = asyncio.Semaphore(_HASHES_AT_ONCE)
        self._threads: ThreadPoolExecutor | None = None  # most brokers need none

    async def close(self) -> None:
        """End the threads."""
        for task in self._hashing.values():
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def is_required(self, topic: str) -> bool:
        """Say whether only registered clients may use a topic; False for one that does not exist."""
        image = self._broker.metadata.image.topics.get(topic)
        if image is None:
            return False
        own = image.configs.get(_REQUIRED, "")
        if self._settings is not self._broker.settings:
            self._settings = self._broker.settings
            self._required.clear()
        if own not in self._required:
            settings = self._settings.with_overrides({_REQUIRED: own} if own else {})
            self._required[own] = TopicObjects.of(settings.values).clients_required
        return self._required[own]

    async def register(self, topic: str, key: str | None = None) -> Registered:
        """Register a client with its own key, or with one that is made here; a key may be registered many times."""
        image = await self.find(topic)
        if topic in INTERNAL_TOPICS:
            raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the brokers' own, and has no clients")
        key = secrets.token_hex(_KEY_BYTES) if key is None else key
        problem = _key_problem(key)
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_REQUEST, problem)
        hashed = await self._hash(image, key)
        args = {"name": topic, "topic_id": image.id.hex(), "hash": hashed.hex()}
        result = await self._broker.metadata.call("register-client", args)
        return Registered(str(result["client_id"]), key, bool(result["is_new"]))

    async def revoke(self, topic: str, client_id: str) -> None:
        """Let a client's key be good no longer, anywhere in the cluster; RESOURCE_NOT_FOUND if there is no such one."""
        image = await self.find(topic)
        args = {"name": topic, "topic_id": image.id.hex(), "client_id": client_id}
        await self._broker.metadata.call("revoke-client", args)

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        """Let whoever shows a key pass that is registered with the topic; `peer` is his address and port."""
        image = await self.find(topic)
        if not key:
            raise UnknownClientError(
                f"topic {topic} is for registered clients: send the header client_key: KEY, with the key that "
                f"POST /register/{topic} has given or taken"
            )
        if self._is_remembered(image, key):
            return
        source = (image.id, _network(peer))
        self._refuse_failing(topic, source)
        if _key_problem(key) is None and await self._is_good(image, key, source):
            return
        self._failures.count(source, self._broker.monotonic_ms())
        raise UnknownClientError(
            f"the client_key is not registered with topic {topic}, or was revoked: register by POST /register/{topic}"
        )

    # What a key is good for.

    def _fingerprint(self, topic: TopicImage, key: str) -> bytes:
        return hashlib.blake2b(topic.id + key.encode("utf-8", "surrogatepass"), key=self._secret).digest()

    def _is_remembered(self, topic: TopicImage, key: str) -> bool:
        fingerprint = self._fingerprint(topic, key)
        hashed = self._good.get(fingerprint)
        if hashed is None:
            return False
        if hashed not in topic.clients:
            del self._good[fingerprint]
            return False
        self._good.move_to_end(fingerprint)
        return True

    async def _is_good(self, topic: TopicImage, key: str, source: tuple[bytes, str]) -> bool:
        """Hash a key, and look for it; what is not here may be on its way from the active controller."""
        hashed = await self._hash(topic, key, source)
        if not self._is_registered(topic.id, hashed):
            if self._broker.stands_alone:
                return False
            await self._look_up(topic.name)
            if not self._is_registered(topic.id, hashed):
                return False
        self._good[self._fingerprint(topic, key)] = hashed
        if len(self._good) > _REMEMBERED_MAX:
            self._good.popitem(last=False)
        return True

    def _is_registered(self, topic_id: bytes, hashed: bytes) -> bool:
        topic = self._broker.metadata.image.topic_by_id(topic_id)
        return topic is not None and any(hmac.compare_digest(hashed, each) for each in topic.clients)

    async def _hash(self, topic: TopicImage, key: str, source: tuple[bytes, str] | None = None) -> bytes:
        """Hash a key in a thread; for those who ask for the same key at the same time, once."""
        fingerprint = self._fingerprint(topic, key)
        task = self._hashing.get(fingerprint)
        if task is None:
            task = self._hashing[fingerprint] = asyncio.create_task(self._hash_apart(topic, key, source))
            task.add_done_callback(lambda done: self._hashed(fingerprint, done))
        return await asyncio.shield(task)  # whoever hangs up does not take it away from the others

    def _hashed(self, fingerprint: bytes, task: asyncio.Task[bytes]) -> None:
        del self._hashing[fingerprint]
        if not task.cancelled():
            task.exception()  # those who waited have it; there may be none left

    async def _hash_apart(self, topic: TopicImage, key: str, source: tuple[bytes, str] | None) -> bytes:
        async with self._turns:
            if source is not None:  # others of the same address may have failed meanwhile
                self._refuse_failing(topic.name, source)
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_HASHES_AT_ONCE, "odradek-keys")
            return await asyncio.get_running_loop().run_in_executor(self._threads, _scrypt, key.encode(), topic.id)

    def _refuse_failing(self, topic: str, source: tuple[bytes, str]) -> None:
        wait_ms = self._failures.wait_ms(source, self._broker.monotonic_ms())
        if wait_ms:
            seconds = -(-wait_ms // 1000)
            raise TooManyFailuresError(
                f"too many wrong keys for topic {topic} from this address: try again in {seconds} s", seconds
            )

    # Topics.

    async def find(self, name: str) -> TopicImage:
        """The topic of this name, or UNKNOWN_TOPIC_OR_PARTITION; also one that another broker has just made."""
        topic = self._broker.metadata.image.topics.get(name)
        if topic is not None:
            return topic
        if self._broker.stands_alone:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return await self._look_up(name)

    async def _look_up(self, name: str) -> TopicImage:
        """Hear from the active controller what it has decided so far: another broker may have just answered."""
        await self._broker.metadata.call("find-topic", {"name": name}, timeout_ms=_LOOK_UP_TIMEOUT_MS)
        topic = self._broker.metadata.image.topics.get(name)
        if topic is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic


class _Failures:
    """How often an address has failed on a topic within a minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[tuple[bytes, str], tuple[int, int]] = OrderedDict()  # since when, and how often

    def wait_ms(self, source: tuple[bytes, str], now_ms: int) -> int:
        """How long it has to wait now."""
        since, count = self._counts.get(source, (0, 0))
        return max(0, since + _WINDOW_MS - now_ms) if count >= self._most else 0

    def count(self, source: tuple[bytes, str], now_ms: int) -> None:
        """It has failed."""
        since, count = self._counts.pop(source, (now_ms, 0))
        if since + _WINDOW_MS <= now_ms:
            since, count = now_ms, 0
        self._counts[source] = (since, count + 1)
        if len(self._counts) > _REMEMBERED_MAX:
            self._counts.popitem(last=False)


def _scrypt(key: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(key, salt=salt, dklen=_HASH_BYTES, **_SCRYPT)


def _network(peer: str) -> str:
    """An address without its port; of IPv6 only the half that one customer has for himself."""
    host = peer.rpartition(":")[0]
    if ":" not in host:
        return host
    return ipaddress.IPv6Address(host.partition("%")[0]).packed[:8].hex()


def _key_problem(key: str) -> str | None:
    is_printable = all(" " <= character <= "~" for character in key)
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX or not is_printable or key != key.strip():
        return f"a client_key is 1 to {KEY_CHARACTERS_MAX} printable characters of ASCII, with no space at its ends"
    return None
