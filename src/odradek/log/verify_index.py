"""Follows the entries of a segment's index while its batches go by, and says which of them are not true.

Only the file backend has such indexes. In constant memory: two entries are known at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk, File
from odradek.log.verify_finding import Finding, unreadable

WRONG_ENTRIES_SHOWN_MAX = 10  # of one index; the others are counted
FAR = 1 << 70  # beyond every position and offset
OFFSET_ENTRY = struct.Struct(">II")  # last offset of a batch, relative to the segment's base; its position
TIME_ENTRY = struct.Struct(">qI")  # largest timestamp so far; relative last offset of the batch that has it
_INDEX_BLOCK_ENTRIES = 8192


class IndexEntry(NamedTuple):
    """An index entry: of which place it speaks, and what it claims of it."""

    number: int
    place: int  # a position, or a relative offset in a time index
    claim: int  # a relative offset, or a timestamp


class IndexWatch:
    """Follows the entries of an index while the batches go by, and says which of them are not true.

    They are sorted by place, so that the head of the queue tells whether one is due. The entry behind it is known,
    too, so that one wrong place does not make all that follow look wrong.
    """

    def __init__(self, disk: Disk, path: str, form: struct.Struct, words: str) -> None:
        self.path = path
        self.wrong = 0
        self.last_true: IndexEntry | None = None
        self._form, self._words = form, words
        self._size = 0
        self._failure: DiskError | None = None
        self._file = disk.open(path) if disk.exists(path) else None  # an index without entries has none
        self._entries = self._read(self._file) if self._file is not None else iter(())
        self._head, self._behind = next(self._entries, None), next(self._entries, None)
        self.due = self._next_due()  # the next place at which an entry has to be judged

    def _read(self, file: File) -> Iterator[IndexEntry]:
        block = _INDEX_BLOCK_ENTRIES * self._form.size
        try:
            self._size = file.size()
            end = self._size - self._size % self._form.size
            for position in range(0, end, block):
                data, first = file.read(min(block, end - position), position), position // self._form.size
                for number, (claim, place) in enumerate(self._form.iter_unpack(data), first):
                    yield IndexEntry(number, place, claim)
        except DiskError as error:
            self._failure = error
            self.wrong += 1

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()

    def _next_due(self) -> int:
        return min((entry.place for entry in (self._head, self._behind) if entry is not None), default=FAR)

    def _take(self, *, behind: bool = False) -> IndexEntry:
        """Remove the head, or the one behind it."""
        taken = self._behind if behind else self._head
        assert taken is not None
        if not behind:
            self._head = self._behind
        self._behind = next(self._entries, None)
        self.due = self._next_due()
        return taken

    def meet(self, place: int, truth: int | None, fact: str = "") -> Iterator[Finding]:
        """Judge the entries up to a place where a batch stands. `truth`: what its entry says; None: it has none."""
        while self.due <= place:
            assert self._head is not None
            if self._head.place > place:  # out of order: the head or the one behind it is wrong
                is_head_wrong = self._behind is not None and self._behind[1:] == (place, truth)
                taken = self._take(behind=not is_head_wrong)
                yield from self._accuse(taken, taken.place, "it is out of order")
            elif self._head[1:] == (place, truth) and (self.last_true is None or self.last_true.place < place):
                self.last_true = self._take()
            else:
                yield from self._accuse(self._take(), place, fact)

    def _accuse(self, entry: IndexEntry, place: int, fact: str) -> Iterator[Finding]:
        self.wrong += 1
        if self.wrong > WRONG_ENTRIES_SHOWN_MAX:
            return
        if self.last_true is not None and entry.place <= self.last_true.place:
            fact = "it is out of order"
        elif entry.place != place:
            fact = "there is no such batch"
        claim = self._words.format(entry.place, entry.claim)
        yield Finding("problem", self.path, f"{claim}: {fact}", "entry", entry.number)

    def skip(self, start: int, end: int) -> Iterator[Finding]:
        """Pass over entries for places whose batches cannot be read: nobody knows whether they are true."""
        yield from self.meet(start - 1, None)
        while self._head is not None and self.due < end:
            self._take(behind=self._head.place >= end)

    def finish(self, end: int, *, will_be_mended: bool) -> Iterator[Finding]:
        """Judge what is left when the last batch, which ends before `end`, has gone by."""
        path, ragged = self.path, self._size % self._form.size
        if self._failure is not None:
            yield unreadable(self._failure)
        elif ragged:
            text = f"the file ends inside an entry: {ragged} bytes are left over, an entry has {self._form.size}"
            yield Finding("note" if will_be_mended else "problem", path, text, "byte", self._size - ragged)
        yield from self.meet(end - 1, None)
        if will_be_mended and self._head is not None:
            text = "the entries from here on speak of batches that are not there; the next start cuts them"
            yield Finding("note", path, text, "entry", self._head.number)
            return
        while self._head is not None:
            yield from self._accuse(self._take(), FAR, "")
        if self.wrong > WRONG_ENTRIES_SHOWN_MAX:
            text = f"{self.wrong - WRONG_ENTRIES_SHOWN_MAX} more entries are wrong; without the file it is made anew"
            yield Finding("problem", path, text)
