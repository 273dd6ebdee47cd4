"""A power cut for a real process: what it wrote and did not sync is lost, or a part of it.

`unsynced.c`, loaded into the process, keeps a journal of its changes. `lose_unsynced` takes the data directory of a
process that was killed back to what stable storage must hold, and puts back an arbitrary part of the rest: of each
file nothing, all, the first of its writes, or any of them, each write whole; of each directory the first of its changes
of names, for file systems journal those in order. A file's own sync does not keep its name: only its directory's does.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.disk.exchange import exchange

SOURCE = Path(__file__).with_name("unsynced.c")
COMPILE_SECONDS_MAX = 60.0
_HEADER = struct.Struct("=IIQQQQQII")
_MAGIC = 0x4E59534E
_NAMES, _CONTENT = frozenset("CMRXUD"), frozenset("WT")


class NoShimError(Exception):
    """The machine cannot make it; the message says why."""


class Identity(NamedTuple):
    """A file or directory, whatever its name; inodes of removed directories are used again."""

    inode: int
    life: int


class Change(NamedTuple):
    """A record of the journal. Which of the numbers mean something depends on its kind."""

    position: int
    kind: str  # Write, Truncate, Sync; Create, Make directory, Rename, eXchange, Unlink, remove Directory
    identity: Identity
    parent: Identity  # of the name; of a rename the old one
    at: int  # a write's offset, a truncation's new size, the journal's end when a sync began, a file's grave
    length: int  # of a write; of a rename the inode of the new name's directory
    size: int  # of the file before
    text: str  # a name; of a rename two, with a slash between
    data: bytes  # what was there before


class Loss(NamedTuple):
    """What a power cut took."""

    writes: int  # unsynced ones that are gone
    writes_kept: int  # unsynced ones that are there all the same
    names: int
    names_kept: int

    def __str__(self) -> str:
        """As the notes of a run show it."""
        return (
            f"lost {self.writes} of {self.writes + self.writes_kept} unsynced writes, "
            f"{self.names} of {self.names + self.names_kept} unsynced names"
        )


def compile_shim(directory: Path) -> Path:
    """The library, made in a directory; NoShimError where it cannot be had."""
    compiler, library = shutil.which("cc"), directory / "unsynced.so"
    if compiler is None:
        raise NoShimError("there is no C compiler (cc)")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)
    if done.returncode:
        raise NoShimError(f"cc cannot compile {SOURCE.name}: {done.stderr.strip()}")
    return library


def shim_environment(library: Path, directory: Path, journal: Path) -> dict[str, str]:
    """What a process must find in its environment."""
    return {
        "LD_PRELOAD": str(library),
        "UNSYNCED_DIRECTORY": str(directory.resolve()),
        "UNSYNCED_JOURNAL": str(journal.resolve()),
    }


# The journal


def read_journal(journal: Path) -> list[Change]:
    """What the process has done, in order."""
    return list(_changes(journal.read_bytes() if journal.exists() else b""))


def trim_journal(journal: Path) -> None:
    """Cut a record that a kill met halfway, so that the next life can go on behind it."""
    if journal.exists():
        changes = list(_frames(journal.read_bytes()))
        os.truncate(journal, changes[-1][1] if changes else 0)


def _frames(data: bytes) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Each whole record: where it begins, where it ends, its header."""
    at = 0
    while at + _HEADER.size <= len(data):
        header = _HEADER.unpack_from(data, at)
        assert header[0] == _MAGIC, f"no record at {at} of the journal"
        end = at + _HEADER.size + header[7] + header[8]
        if end > len(data):
            return
        yield at, end, header
        at = end


def _changes(data: bytes) -> Iterator[Change]:
    lives: defaultdict[int, int] = defaultdict(int)
    for start, end, header in _frames(data):
        _, kind_number, inode, parent, at, length, size, text_bytes, _ = header
        kind, text_end = chr(kind_number), start + _HEADER.size + text_bytes
        text = os.fsdecode(data[start + _HEADER.size : text_end])
        assert kind != "?", f"the journal is not whole, for the process did what the shim does not follow: {text}"
        assert kind not in "RX" or parent == length, "a rename from one directory to another is not followed"
        if kind in "CM":
            lives[inode] += 1
        identity, home = Identity(inode, lives[inode]), Identity(parent, lives[parent])
        yield Change(start, kind, identity, home, at, length, size, text, data[text_end:end])


# The loss


def lose_unsynced(directory: Path, journal: Path, seed: int) -> Loss:
    """Take the directory of a process that has ended back to its synced state, and keep a part of the rest.

    What is there then counts as synced: the journal begins anew.
    """
    return lose_by(random.Random(seed), directory, journal)


def lose_by(chance: random.Random, directory: Path, journal: Path) -> Loss:
    """The same, by whoever decides what is kept."""
    graves = journal.with_name(f"{journal.name}.graves")
    changes = read_journal(journal)
    synced: defaultdict[Identity, int] = defaultdict(int)  # the journal's end when the last sync of each began
    for change in changes:
        if change.kind == "S":
            synced[change.identity] = max(synced[change.identity], change.at)
    names, contents = defaultdict[Identity, list[Change]](list), defaultdict[Identity, list[Change]](list)
    for change in changes:
        if change.kind in _NAMES and change.position >= synced[change.parent]:
            names[change.parent].append(change)
        elif change.kind in _CONTENT and change.position >= synced[change.identity]:
            contents[change.identity].append(change)
    latest = {change.identity.inode: change.identity for change in changes if change.kind in "CM"}
    undone = [change for pending in names.values() for change in pending[chance.randint(0, len(pending)) :]]
    tree = _Tree(directory, graves, latest)
    for change in sorted(undone, reverse=True):
        tree.undo(change)
    lost, kept = _lose_writes(tree.files(), contents, chance)
    journal.unlink(missing_ok=True)
    shutil.rmtree(graves, ignore_errors=True)
    return Loss(lost, kept, len(undone), sum(map(len, names.values())) - len(undone))


class _Tree:
    """The names below a directory, taken back one by one."""

    def __init__(self, root: Path, graves: Path, latest: dict[int, Identity]) -> None:
        self._root = root
        self._graves = graves
        self._latest = latest
        self._made_again: dict[Identity, Identity] = {}  # a directory that was removed, as it is now

    def _identity(self, path: Path) -> Identity:
        inode = path.lstat().st_ino
        return self._latest.get(inode, Identity(inode, 0))

    def _find(self, directory: Identity) -> Path | None:
        directory = self._made_again.get(directory, directory)
        places = [self._root, *(path for path in self._root.rglob("*") if path.is_dir())]
        return next((path for path in places if self._identity(path) == directory), None)

    def _holds(self, path: Path, identity: Identity) -> bool:
        identity = self._made_again.get(identity, identity)
        return path.exists() and self._identity(path) == identity

    def undo(self, change: Change) -> None:
        """Take back one change; one that the kill came before, or whose directory is gone, has nothing to undo."""
        parent = self._find(change.parent)
        if parent is None:
            return
        path = parent / change.text.rpartition("/")[2]
        match change.kind:
            case "C" if self._holds(path, change.identity):
                path.unlink()
            case "M" if self._holds(path, change.identity):
                shutil.rmtree(path)
            case "R" if self._holds(path, change.identity):
                path.rename(parent / change.text.partition("/")[0])
                self._raise(change.at, path)
            case "X" if self._holds(path, change.identity):
                exchange(str(path), str(parent / change.text.partition("/")[0]))
            case "U" if not path.exists():
                self._raise(change.at, path)
            case "D" if not path.exists():
                path.mkdir()
                fresh = Identity(path.lstat().st_ino, -1)
                self._latest[fresh.inode] = self._made_again[change.identity] = fresh

    def _raise(self, grave: int, path: Path) -> None:
        if grave:
            os.link(self._graves / str(grave), path)

    def files(self) -> dict[Identity, Path]:
        """Every file, by what it is."""
        return {self._identity(path): path for path in sorted(self._root.rglob("*")) if path.is_file()}


def _lose_writes(
    files: dict[Identity, Path], pending: dict[Identity, list[Change]], chance: random.Random
) -> tuple[int, int]:
    lost = kept = 0
    for identity, path in files.items():
        changes = pending.get(identity, [])
        if not changes:
            continue
        keeps = _choose(len(changes), chance)
        path.write_bytes(_replayed(path.read_bytes(), changes, keeps))
        kept += sum(keeps)
        lost += len(changes) - sum(keeps)
    return lost, kept


def _choose(count: int, chance: random.Random) -> list[bool]:
    mode = chance.choice(("none", "all", "first", "any"))
    first = {"none": 0, "all": count}.get(mode, chance.randint(0, count))
    return [chance.random() < 0.5 if mode == "any" else number < first for number in range(count)]


def _replayed(content: bytes, changes: Sequence[Change], keeps: Sequence[bool]) -> bytes:
    """A file without all of these changes, then with those of them that are kept."""
    now, again = bytearray(content), list[bytes]()
    for change in reversed(changes):  # whatever is there now is what this one has left
        again.append(bytes(now[change.at : change.at + change.length]) if change.kind == "W" else b"")
        now[change.at : change.at + len(change.data)] = change.data
        now.extend(bytes(max(0, change.size - len(now))))
        del now[change.size :]
    for change, data, keep in zip(changes, reversed(again), keeps, strict=True):
        if keep:
            now.extend(bytes(max(0, change.at - len(now))))
            if change.kind == "W":
                now[change.at : change.at + len(data)] = data
            else:
                del now[change.at :]
    return bytes(now)
