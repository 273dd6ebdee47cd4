"""Uploads a publisher's records so that a retry, a restart or a change of leader neither doubles nor loses one.

How: the objects of one publisher in one slice are a chain. Each is named by its first sequence, is created only if it
is new, and follows the one before it without leaving out a record of the slice. Whoever uploads walks the chain: where
an object is there already, what it holds counts as stored, and the next record of the slice names the next object. So
two who upload the same records, whatever the limits of their flushes, meet at the same names, and one of them yields.

Two things follow. The objects of one slice are PUT one after another (those of different slices may go in parallel).
And one may begin only where no object reaches across: an object of an earlier leader may hold records behind the end
of a flush of ours, so those are remembered (`held`), and the checkpoint waits until they are passed.

Should an object of that name hold other records than ours (a log that lost its end and filled it anew, or two writers
of one name), ours go beside it, under a name that the first of them gives: nothing is lost, and nobody is stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from odradek.objects import keys
from odradek.objects.errors import ObjectExistsError, ObjectMissingError, StoreUnavailableError
from odradek.objects.slices import Message, SliceObject, build_object, by_slice, read_object, split
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore

Job = Callable[[], None]
Held = dict[int, int | None]  # sequences in the store -> hashes of their records; None: put here, so it is ours
RunAll = Callable[[list[Job]], None]  # runs all, and raises what one of them raised when all have ended


def one_after_another(jobs: list[Job]) -> None:
    """Run jobs in this thread."""
    for job in jobs:
        job()


class Frontier:
    """How far the records of one publisher are in the store, and the way to bring more there.

    `load` once at the start; `put` records from `next` on, ascending and without leaving one out; `save` now and then,
    at most once a minute, and at the end. Not for two threads at once.
    """

    def __init__(
        self,
        store: ObjectStore,
        spec: ChannelSpec,
        publisher: str,
        now_ms: Callable[[], int],
        run_all: RunAll = one_after_another,
    ) -> None:
        self.spec = spec  # may be replaced by one with other rules, but the same window and slice
        self.next = 0  # all sequences before are in the store
        self._store = store
        self._publisher = publisher
        self._now_ms = now_ms
        self._run_all = run_all
        self._held: Held = {}  # of next and behind: in the store already
        self._saved: int | None = None

    def load(self) -> int:
        """Read the checkpoint: from where records must be put (again, perhaps: what is there is passed over)."""
        checkpoint = read_checkpoint(self._store, self.spec, self._publisher)
        self.next = self._saved = checkpoint[0]
        self._held.clear()
        return self.next

    def put(self, messages: Sequence[Message], end: int | None = None) -> int:
        """Bring messages into the store; return the number of new objects. All are there when it returns.

        `end` is where the next call goes on, if it is not behind the last message. After a StoreUnavailableError call
        it again with the same messages (or more of them).
        """
        wanted = [message for message in messages if message.sequence >= self.next]
        count = put_slices(
            self._store, self.spec, self._publisher, wanted, self._now_ms, self._run_all, held=self._held
        )
        last = messages[-1].sequence + 1 if messages else self.next
        self.next = max(self.next, last, end or 0)
        self._held = {sequence: what for sequence, what in self._held.items() if sequence >= self.next}
        return count

    def save(self) -> bool:
        """Write the checkpoint; False when that must wait, or when nothing has changed since the last."""
        if self._held or self.next == self._saved:
            return False
        save_checkpoint(self._store, self.spec, self._publisher, self.next, self._now_ms())
        self._saved = self.next
        return True


def put_slices(
    store: ObjectStore,
    spec: ChannelSpec,
    publisher: str,
    messages: Sequence[Message],
    now_ms: Callable[[], int],
    run_all: RunAll = one_after_another,
    *,
    held: Held,
) -> int:
    """Bring messages into the store and return the number of new objects; `Frontier.put` is the way to call it.

    `held` is what is known to be in the store; what is found there, and what is put, is added to it.
    """
    missing = [message for message in messages if not _is_held(held, message)] if held else messages
    chains = [
        _Chain(store, spec, publisher, start_ms, in_slice, now_ms)
        for start_ms, in_slice in by_slice(spec, missing).items()
    ]
    lock = threading.Lock()

    def walk(chain: _Chain) -> None:
        try:
            chain.walk()
        finally:
            with lock:
                held.update(chain.held)

    jobs: list[Job] = [partial(walk, chain) for chain in chains]
    if spec.fifo:
        one_after_another(jobs)
    elif jobs:
        run_all(jobs)
    return sum(chain.count for chain in chains)


def is_late(spec: ChannelSpec, slice_end_ms: int, now_ms: int) -> bool:
    """Whether readers may soon have stopped to look for an object in this slice.

    They look for grace_ms after its end. Half of that is left for a slow PUT, and for clocks that differ.
    """
    return now_ms > slice_end_ms + spec.grace_ms // 2


def read_checkpoint(store: ObjectStore, spec: ChannelSpec, publisher: str) -> tuple[int, int]:
    """The sequence from which a publisher must go on, and when that was written; 0 and 0 when there is none."""
    try:
        read = json.loads(store.get(keys.frontier_key(spec.name, publisher)))
        return int(read["next"]), int(read["time"])
    except ObjectMissingError:
        return 0, 0
    except (ValueError, KeyError, TypeError):
        # It is written whole or not at all; whoever changed it by hand pays with a longer walk, not with records.
        return 0, 0


def save_checkpoint(store: ObjectStore, spec: ChannelSpec, publisher: str, next_sequence: int, now_ms: int) -> None:
    """Write from where a publisher must go on."""
    body = json.dumps({"next": next_sequence, "time": now_ms}).encode()
    store.put(keys.frontier_key(spec.name, publisher), body)


def _is_held(held: Held, message: Message) -> bool:
    """Whether this record is in the store, and not another one of its sequence."""
    if message.sequence not in held:
        return False
    known = held[message.sequence]
    return known is None or known == hash(message)


class _Chain:
    """The objects of one publisher in one slice, from the first message that may be missing."""

    def __init__(
        self,
        store: ObjectStore,
        spec: ChannelSpec,
        publisher: str,
        start_ms: int,
        messages: list[Message],
        now_ms: Callable[[], int],
    ) -> None:
        self.count = 0
        self.held: Held = {}
        self._store = store
        self._spec = spec
        self._publisher = publisher
        self._start_ms = start_ms
        self._messages = messages
        self._now_ms = now_ms

    def walk(self) -> None:
        """Put what is missing, object by object."""
        missing = self._messages
        while missing:
            run = split(missing, self._spec.slice_bytes)[0]
            if self._store_run(self._publisher, run):
                missing = missing[len(run) :]
                continue
            if not _is_held(self.held, run[0]):
                beside = keys.publisher_hash(f"{self._publisher} beside {run[0]}")
                self._store_run(beside, [message for message in run if not _is_held(self.held, message)])
            missing = [message for message in missing if not _is_held(self.held, message)]

    def _store_run(self, publisher: str, run: list[Message]) -> bool:
        """Put an object; False if there is one of its name, and only what that holds is stored now."""
        stored = self._put(build_object(self._spec, publisher, self._start_ms, run))
        if stored is None:
            self.held.update(dict.fromkeys(message.sequence for message in run))
        else:
            self.held.update((message.sequence, hash(message)) for message in stored)
        return stored is None

    def _put(self, new: SliceObject) -> list[Message] | None:
        """Put an object; when one of this name is there already, return what that holds."""
        late = is_late(self._spec, new.slice_end_ms, self._now_ms())
        if late:
            # A mark comes before its object, so that an end in between leaves no object that nobody looks for. But
            # an object that was there in time gets none: those who have read it would read it again.
            stored = self._stored(new.key)
            if stored is not None:
                self._mark_if_forgotten(new)
                return stored
            self._mark(new)
        try:
            self._store.put(new.key, new.data, only_new=True)
        except ObjectExistsError as error:
            stored = self._stored(new.key)
            if stored is None:
                raise StoreUnavailableError(f"{error}, and is not: another upload is under way; try again") from None
            return stored
        self.count += 1
        if not late and is_late(self._spec, new.slice_end_ms, self._now_ms()):
            self._mark(new)
        return None

    def _stored(self, key: str) -> list[Message] | None:
        try:
            return read_object(self._store.get(key))
        except ObjectMissingError:
            return None

    def _mark(self, late: SliceObject) -> None:
        key = keys.late_key(self._spec.name, self._now_ms(), self._publisher, late.first)
        self._store.put(key, late.key.encode())

    def _mark_if_forgotten(self, late: SliceObject) -> None:
        """Mark an object whose PUT began in time and took so long that it ended late, if its publisher then died."""
        slice_folder = late.key.rpartition("/")[0]
        found = (info for info in self._store.list(slice_folder) if info.key == late.key)
        info = next(found, None)
        if info is None or not is_late(self._spec, late.slice_end_ms, info.modified_ms):
            return
        after = keys.before_late(self._spec.name, late.slice_end_ms)
        marks: Iterable[str] = (mark.key for mark in self._store.list(keys.late_prefix(self._spec.name), after=after))
        if not any(mark.endswith(f"-{self._publisher}-{late.first:020d}") for mark in marks):
            self._mark(late)
