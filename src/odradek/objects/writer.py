"""Writes a channel straight into its store, with no broker between.

    with ChannelWriter(store, load_channel(store, "orders")) as writer:
        writer.publish({"x": 42}).result()

Records are collected until their slice is over, or large enough, and then go as one object. A future is done when its
record is in the store. A store that is away is tried again until it is back; the buffer is bounded meanwhile.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from odradek.clock import Clock, SystemClock
from odradek.objects import keys
from odradek.objects.channels import create_channel, delete_channel, list_channels, load_channel, save_channel
from odradek.objects.errors import BufferFullError, StoreError, StoreUnavailableError
from odradek.objects.putting import Frontier, Job, read_checkpoint, save_checkpoint
from odradek.objects.reader import objects_between
from odradek.objects.slices import Message, read_object, size_of
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore
from odradek.records.record import Header

__all__ = ["ChannelWriter", "create_channel", "delete_channel", "list_channels", "load_channel", "save_channel"]

BUFFER_BYTES_MAX = 128 * 1024 * 1024
CHECKPOINT_MS = 60_000
_BACKOFF_SECONDS = 0.1
_BACKOFF_SECONDS_MAX = 5.0
_LINGER_MS = 20  # behind the end of a slice, for threads that were about to publish into it


class ChannelWriter:
    """One publisher of a channel; any thread may publish.

    Without a `publisher_id` each writer is a publisher of its own. With one, a writer goes on with the sequences of
    the last writer of that id, which a `fifo` channel needs; two at the same time must not have the same.
    """

    def __init__(
        self,
        store: ObjectStore,
        spec: ChannelSpec,
        publisher_id: str | None = None,
        clock: Clock | None = None,
        *,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        threads: int = 4,
    ) -> None:
        self.publisher = keys.publisher_hash(publisher_id or uuid4().hex)
        self._is_named = publisher_id is not None
        self._store = store
        self._spec = spec
        self._clock = clock or SystemClock()
        self._buffer_bytes_max = buffer_bytes_max
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="channel writer")
        self._frontier = Frontier(store, spec, self.publisher, self._clock.now_ms, self._run_all)
        self._last_ms = 0
        if self._is_named:
            self._go_on()
        self._saved_ms = self._clock.now_ms()
        # What the condition guards:
        self._changed = threading.Condition()
        self._next = self._frontier.next
        self._waiting: list[tuple[Message, Future[int] | None]] = []  # of a batch the last one has the future
        self._waiting_bytes = 0  # and of what is on its way
        self._in_slice_bytes = 0  # of what is not on its way yet
        self._is_hurried = False
        self._is_closing = False
        self._is_given_up = False
        self._failure: StoreError | None = None
        self._sender = threading.Thread(target=self._send_all, name=f"channel {spec.name}", daemon=True)
        self._sender.start()

    # Called by publishers.

    def publish(
        self,
        value: bytes | Any,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Future[int]:
        """Take a record; the future has its sequence once the record is in the store.

        What is not bytes is written as JSON. In a `fifo` channel the time is always that of this call. When too much is
        on its way already it is a BufferFullError: wait for a future.
        """
        return self._take([_content(value)], key, timestamp, tuple(Header(*header) for header in headers))

    def publish_batch(self, values: Iterable[bytes | Any], timestamp: int | None = None) -> Future[int]:
        """Take several records at once, all or none, for a fraction of the cost; the future is that of the last one."""
        contents = [_content(value) for value in values]
        if not contents:
            raise ValueError("a batch needs at least one record")
        return self._take(contents, None, timestamp, ())

    def _take(
        self, contents: list[bytes], key: bytes | None, timestamp: int | None, headers: tuple[Header, ...]
    ) -> Future[int]:
        future: Future[int] = Future()
        with self._changed:
            if self._is_closing:
                raise ValueError("this writer is closed")
            at_ms = now_ms = self._clock.now_ms()
            if self._spec.fifo:
                at_ms = self._last_ms = max(now_ms, self._last_ms)
            elif timestamp is not None:
                at_ms = timestamp
            messages = [
                Message(sequence, at_ms, key, content, headers) for sequence, content in enumerate(contents, self._next)
            ]
            size = sum(map(size_of, messages))
            if self._waiting and self._waiting_bytes + size > self._buffer_bytes_max:
                away = f"; the store fails: {self._failure}" if self._failure else ""
                raise BufferFullError(
                    f"channel {self._spec.name}: {self._waiting_bytes} bytes wait to be stored,"
                    f" {self._buffer_bytes_max} are allowed: wait until a future is done, then go on{away}"
                )
            is_first = not self._waiting
            self._next += len(messages)
            self._waiting += [(message, None) for message in messages[:-1]]
            self._waiting.append((messages[-1], future))
            self._waiting_bytes += size
            self._in_slice_bytes += size
            if is_first or self._in_slice_bytes >= self._spec.slice_bytes:
                self._changed.notify_all()
        return future

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Send what was published so far without waiting for the end of the slice, and wait until it is stored."""
        with self._changed:
            last = self._waiting[-1][1] if self._waiting else None
            self._is_hurried = True
            self._changed.notify_all()
        if last is None:
            return
        try:
            last.result(timeout_seconds)
        except TimeoutError:
            raise StoreUnavailableError(
                f"channel {self._spec.name} is not stored after {timeout_seconds} s: {self._failure}"
            ) from None

    def close(self, timeout_seconds: float = 30.0) -> None:
        """Store what was published, and end; when that takes too long, the futures that are left fail."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._sender.join(timeout_seconds)
        if self._sender.is_alive():
            with self._changed:
                self._is_given_up = True
                self._changed.notify_all()
            self._sender.join()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # In the thread that sends.

    def _send_all(self) -> None:
        backoff = _BACKOFF_SECONDS
        while count := self._await_due():
            batch = self._waiting[:count]  # only this thread takes away from it
            try:
                self._frontier.put([message for message, _ in batch])
                if self._is_named and self._clock.now_ms() - self._saved_ms >= CHECKPOINT_MS:
                    self._save()
            except StoreError as error:
                if not self._pause(error, backoff * random.uniform(0.5, 1.0)):
                    return
                backoff = min(2 * backoff, _BACKOFF_SECONDS_MAX)
            except BaseException as error:
                self._give_up(error)
                raise
            else:
                backoff = _BACKOFF_SECONDS
                self._stored(batch)
        if self._is_named:
            try:
                self._save()
            except StoreError as error:
                self._failure = error  # the next writer of this id walks a little longer

    def _await_due(self) -> int:
        """Wait until a slice is over, or there is enough; return how many records to send, 0 at the end."""
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._is_hurried = False
                self._changed.wait()
            if self._failure is None:
                boundary_ms = keys.slice_start(self._spec, self._clock.now_ms()) + self._spec.slice_ms
                self._changed.wait_for(self._is_due, max(boundary_ms + _LINGER_MS - self._clock.now_ms(), 0) / 1_000)
                if not self._is_due():
                    return self._in_slices_before(boundary_ms)
            self._is_hurried = False
            self._in_slice_bytes = 0
            return len(self._waiting)

    def _is_due(self) -> bool:
        return self._is_closing or self._is_hurried or self._in_slice_bytes >= self._spec.slice_bytes

    def _in_slices_before(self, boundary_ms: int) -> int:
        """Leave what came behind the end of the slice for the next object; records of any time must not wait twice."""
        count = len(self._waiting)
        while count and self._waiting[count - 1][0].timestamp >= boundary_ms:
            count -= 1
        count = count or len(self._waiting)
        self._in_slice_bytes = sum(size_of(message) for message, _ in self._waiting[count:])
        return count

    def _stored(self, batch: list[tuple[Message, Future[int] | None]]) -> None:
        with self._changed:
            del self._waiting[: len(batch)]
            self._waiting_bytes -= sum(size_of(message) for message, _ in batch)
            self._failure = None
        for message, future in batch:
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(message.sequence)

    def _pause(self, error: StoreError, seconds: float) -> bool:
        """Wait before the next try; False when there is to be none."""
        with self._changed:
            self._failure = error
            self._changed.wait_for(lambda: self._is_given_up, seconds)
            if not self._is_given_up:
                return True
        self._give_up(error)
        return False

    def _give_up(self, error: BaseException) -> None:
        with self._changed:
            self._is_closing = True
            left, self._waiting = self._waiting, []
        for _, future in left:
            if future is not None and future.set_running_or_notify_cancel():
                future.set_exception(
                    StoreUnavailableError(
                        f"channel {self._spec.name}: the writer was closed before this was stored: {error}"
                    )
                )

    def _run_all(self, jobs: list[Job]) -> None:
        futures = [self._threads.submit(job) for job in jobs]
        wait(futures)
        for future in futures:
            future.result()

    # The sequences of a publisher that has a name.

    def _go_on(self) -> None:
        """Begin behind the last record of this id: the checkpoint says from where to look for it."""
        next_sequence, time_ms = read_checkpoint(self._store, self._spec, self.publisher)
        if time_ms:
            from_ms = max(time_ms - self._spec.grace_ms - CHECKPOINT_MS, 0)
            last = max(
                (
                    parsed
                    for info in objects_between(self._store, self._spec, from_ms)
                    if (parsed := keys.parse_object_key(info.key)) is not None and parsed.publisher == self.publisher
                ),
                key=lambda parsed: parsed.sequence,
                default=None,
            )
            if last is not None:
                found = read_object(self._store.get(str(last)))[-1]
                next_sequence = max(next_sequence, found.sequence + 1)
                self._last_ms = found.timestamp
        self._frontier.next = next_sequence
        save_checkpoint(self._store, self._spec, self.publisher, next_sequence, self._clock.now_ms())

    def _save(self) -> None:
        self._saved_ms = self._clock.now_ms()
        self._frontier.save()


def _content(value: bytes | Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
