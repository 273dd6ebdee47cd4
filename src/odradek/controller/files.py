"""The metadata directory: the quorum's log, its votes and its snapshots, as files that a person can read.

`__cluster_metadata.log` has one line an entry, `offset epoch type json`. `quorum-state` is a JSON object, replaced as
a whole. `<end offset>-<epoch>.checkpoint` is an image as JSON, of all entries below the end offset.

A last line without its end, and bytes that the disk had not written yet when the power failed, were never
acknowledged and are cut off. Anything else that cannot be read stops the start, since nothing is guessed here.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.controller.image import ClusterImage, MetadataError, MetadataRecord
from odradek.disk.interface import Disk
from odradek.raft.messages import NO_SNAPSHOT, Entry, QuorumState, SnapshotId

DIRECTORY_NAME = "metadata"
FILE_NAME = "__cluster_metadata.log"
STATE_NAME = "quorum-state"
EPOCH_ALONE = 1  # of all that a broker wrote before there was a quorum

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SNAPSHOTS_KEPT = 2

logger = logging.getLogger(__name__)


def journal_path(data_directory: str) -> str:
    """Where the metadata log of a data directory lies."""
    return f"{data_directory}/{DIRECTORY_NAME}/{FILE_NAME}"


def checkpoint_name(snapshot: SnapshotId) -> str:
    """The name of a snapshot's file."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


@dataclass(slots=True)
class Loaded:
    """What was found on the disk."""

    quorum_state: QuorumState
    log_start: SnapshotId  # of the newest snapshot
    image: dict[str, Any] | None  # of the newest snapshot; None when there is none
    entries: list[Entry]  # from log_start.end_offset on
    cluster_id: str  # as far as quorum-state knows


class _Line(NamedTuple):
    offset: int
    entry: Entry
    position: int  # of its first byte


class MetadataFiles:
    """Writes what the quorum must not forget. The owner holds the data directory's lock and calls one at a time."""

    def __init__(self, disk: Disk, data_directory: str, node_id: int, voters: Mapping[int, tuple[str, int]]) -> None:
        self.cluster_id = ""  # stands in quorum-state from the next time that it is saved
        self.directory_id = secrets.token_hex(16)  # of this data directory, from its first start on
        self._disk = disk
        self._directory = f"{data_directory}/{DIRECTORY_NAME}"
        self._path = journal_path(data_directory)
        self._state_path = f"{self._directory}/{STATE_NAME}"
        self._node_id = node_id
        self._voters = {voter: voters[voter] for voter in sorted(voters)}
        self._first_offset = 0  # of the log file
        self._positions: list[int] = []  # of each line of the log file
        self._bytes = 0  # of the log file

    @property
    def log_bytes(self) -> int:
        """How long the log file is."""
        return self._bytes

    def load(self) -> Loaded:
        """Read everything, cut off what was never acknowledged, and make what is not there yet."""
        self._disk.make_directory(self._directory)
        snapshots = list_snapshots(self._disk, self._directory)
        image = self._read_image(snapshots[-1]) if snapshots else None
        start = snapshots[-1] if snapshots else NO_SNAPSHOT
        entries = self._load_log(start)
        last_epoch = entries[-1].epoch if entries else start.epoch
        state = self._load_state(last_epoch)
        return Loaded(state, start, image, entries, self.cluster_id)

    def _load_log(self, start: SnapshotId) -> list[Entry]:
        content = self._disk.read_file(self._path)
        if content is None:
            self._disk.write_atomic(self._path, b"")
            return []
        whole = _whole_bytes(content)
        if whole < len(content):
            logger.warning("%s: the last %d bytes were never written in full: cut", self._path, len(content) - whole)
            self._disk.truncate_file(self._path, whole)
        # What a process wrote before it was killed may not be on the disk yet, and is counted on from now on.
        self._disk.sync_file(self._path)
        lines = list(_lines(self._path, content[:whole], None if start.end_offset else 0))
        if not _continues(self._path, lines, start):
            self._reset_log(start.end_offset)
            return []
        self._first_offset = lines[0].offset if lines else start.end_offset
        self._positions, self._bytes = [line.position for line in lines], whole
        return [line.entry for line in lines if line.offset >= start.end_offset]

    def _load_state(self, last_epoch: int) -> QuorumState:
        content = self._disk.read_file(self._state_path)
        if content is None:
            if last_epoch > EPOCH_ALONE:
                raise MetadataError(
                    f"{self._state_path} is missing: this broker has forgotten its votes; restore the file from a "
                    "copy, or move the data directory away to begin with an empty one"
                )
            self.cluster_id = self._named_in_log()
            state = QuorumState(max(last_epoch, 0), -1, -1, 0)
            self.save_quorum_state(state)
            return state
        try:
            fields = json.loads(content)
            owner, self.cluster_id = int(fields["broker_id"]), str(fields["cluster_id"])
            self.directory_id = str(fields.get("directory_id") or self.directory_id)
            state = QuorumState(*(int(fields[name]) for name in ("epoch", "voted_id", "leader_id", "leader_epoch")))
            voters = {int(voter["id"]) for voter in fields["voters"]}
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataError(
                f"{self._state_path} is damaged ({type(error).__name__}: {error}); restore the file from a copy, or "
                "move the data directory away to begin with an empty one"
            ) from error
        if owner != self._node_id:
            raise MetadataError(
                f"{self._directory} belongs to broker {owner} and not to broker {self._node_id}; start with "
                f"--broker-id {owner}, or name another data directory with --data DIR"
            )
        if len(voters) > 1 and set(self._voters) == {self._node_id}:
            raise MetadataError(
                f"{self._directory} is that of one of the brokers {sorted(voters)}: give their list with --voters; if "
                f'the others are gone for good, take them out of "voters" in {self._state_path} by hand'
            )
        if voters != set(self._voters):
            logger.warning("the voters were %s and are now %s", sorted(voters), sorted(self._voters))
        return state if state.epoch >= last_epoch else QuorumState(last_epoch, -1, -1, state.leader_epoch)

    def _named_in_log(self) -> str:
        """The cluster's id as the log has it: an old directory has no other place for it."""
        image, _, _ = read_image(self._disk, self._directory.removesuffix(f"/{DIRECTORY_NAME}"))
        return image.cluster_id

    def _read_image(self, snapshot: SnapshotId) -> dict[str, Any]:
        return _read_checkpoint(self._disk, self._directory, snapshot)

    # What raft wants kept, in its order.

    def save_quorum_state(self, state: QuorumState) -> None:
        """Replace the votes, durably."""
        fields = {
            "leader_id": state.leader_id,
            "leader_epoch": state.leader_epoch,
            "voted_id": state.voted_id,
            "epoch": state.epoch,
            "broker_id": self._node_id,
            "cluster_id": self.cluster_id,
            "directory_id": self.directory_id,
            "voters": [{"id": voter, "host": host, "port": port} for voter, (host, port) in self._voters.items()],
        }
        self._disk.write_atomic(self._state_path, json.dumps(fields).encode() + b"\n")

    def append(self, start_offset: int, entries: Sequence[Entry]) -> None:
        """Add entries; they are durable after `sync`."""
        if start_offset != self._first_offset + len(self._positions):
            raise AssertionError(f"entry {start_offset} does not follow {self._first_offset}+{len(self._positions)}")
        out = bytearray()
        for offset, entry in enumerate(entries, start_offset):
            self._positions.append(self._bytes + len(out))
            out += f"{offset} {entry.epoch} {entry.type} {entry.body}\n".encode()
        self._disk.append_file(self._path, bytes(out))
        self._bytes += len(out)

    def truncate(self, end_offset: int) -> None:
        """Cut off all entries from `end_offset` on, durably: what is added next must not mix with them."""
        index = end_offset - self._first_offset
        if not 0 <= index <= len(self._positions):
            raise AssertionError(f"the log cannot be cut at {end_offset}")
        if index == len(self._positions):
            return
        self._bytes = self._positions[index]
        del self._positions[index:]
        self._disk.truncate_file(self._path, self._bytes)
        self._disk.sync_file(self._path)

    def cut_before(self, offset: int) -> None:
        """Drop the entries below `offset`, which a snapshot holds."""
        index = min(offset - self._first_offset, len(self._positions))
        if index <= 0:
            return
        at = self._positions[index] if index < len(self._positions) else self._bytes
        self._disk.write_atomic(self._path, self._disk.read_range(self._path, self._bytes - at, at))
        self._positions = [position - at for position in self._positions[index:]]
        self._bytes -= at
        self._first_offset += index

    def install_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Take a snapshot of the leader's in place of everything that is here."""
        self.write_snapshot(snapshot, data)
        self._reset_log(snapshot.end_offset)

    def sync(self) -> None:
        """Make what was appended durable."""
        self._disk.sync_file(self._path)

    # Snapshots.

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Keep a snapshot, durably, and the one before it; older ones go."""
        self._disk.write_atomic(f"{self._directory}/{checkpoint_name(snapshot)}", data)
        for old in list_snapshots(self._disk, self._directory)[:-_SNAPSHOTS_KEPT]:
            self._disk.remove(f"{self._directory}/{checkpoint_name(old)}")

    def read_snapshot(self, snapshot: SnapshotId) -> bytes | None:
        """A snapshot as it was written, or None if it is gone."""
        return self._disk.read_file(f"{self._directory}/{checkpoint_name(snapshot)}")

    def _reset_log(self, first_offset: int) -> None:
        self._disk.write_atomic(self._path, b"")
        self._first_offset, self._positions, self._bytes = first_offset, [], 0


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """The snapshots in a metadata directory, oldest first."""
    found = (_CHECKPOINT.fullmatch(entry.name) for entry in disk.list(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def read_image(disk: Disk, data_directory: str) -> tuple[ClusterImage, int, int]:
    """Read the directory without changing it: the image of all entries, committed or not yet, the next offset, and how
    many bytes of the log are whole lines.
    """
    directory, path = f"{data_directory}/{DIRECTORY_NAME}", journal_path(data_directory)
    snapshots = list_snapshots(disk, directory)
    image, offset, start = ClusterImage(), 0, snapshots[-1] if snapshots else NO_SNAPSHOT
    if snapshots:
        try:
            image = ClusterImage.from_json(_read_checkpoint(disk, directory, start))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged_checkpoint(directory, start, error) from error
        offset = start.end_offset
    content = disk.read_file(path) or b""
    whole = _whole_bytes(content)
    lines = list(_lines(path, content[:whole], None if snapshots else 0))
    for number, line in enumerate(lines if _continues(path, lines, start) else (), start=1):
        if line.offset < offset:
            continue
        try:
            image.apply(MetadataRecord(line.entry.type, json.loads(line.entry.body)), line.offset)
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(path, number, f"{type(error).__name__}: {error}") from error
        offset = line.offset + 1
    return image, offset, whole


def _read_checkpoint(disk: Disk, directory: str, snapshot: SnapshotId) -> dict[str, Any]:
    try:
        content = json.loads(disk.read_file(f"{directory}/{checkpoint_name(snapshot)}") or b"")
        if not isinstance(content, dict):
            raise ValueError("a JSON object was expected")
    except ValueError as error:
        raise _damaged_checkpoint(directory, snapshot, error) from error
    return content


def _damaged_checkpoint(directory: str, snapshot: SnapshotId, error: Exception) -> MetadataError:
    return MetadataError(
        f"{directory}/{checkpoint_name(snapshot)} is damaged ({type(error).__name__}: {error}); restore the file from "
        "a copy, or move the data directory away to begin with an empty one"
    )


def _whole_bytes(content: bytes) -> int:
    """Where the whole lines end. A zero byte stands where the power failed before the disk had written."""
    hole = content.find(b"\0")
    return content.rfind(b"\n", 0, hole if hole >= 0 else len(content)) + 1


def _lines(path: str, content: bytes, first_offset: int | None) -> Iterator[_Line]:
    """Read lines whose offsets have no gap, from `first_offset` on; None: from any."""
    expected, position, last_epoch = first_offset, 0, 0
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            offset_text, epoch_text, type_, text = line.decode().split(" ", 3)
            offset, epoch, body = int(offset_text), int(epoch_text), json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, number, str(error)) from error
        if (expected is not None and offset != expected) or offset < 0 or not isinstance(body, dict):
            shown = "an offset" if expected is None else f"offset {expected}"
            raise _unreadable(path, number, f"{shown} and a JSON object were expected")
        if epoch < last_epoch:
            raise _unreadable(path, number, f"epoch {epoch} after epoch {last_epoch}")
        yield _Line(offset, Entry(epoch, type_, text), position)
        expected, last_epoch = offset + 1, epoch
        position += len(line) + 1


def _continues(path: str, lines: Sequence[_Line], start: SnapshotId) -> bool:
    """Whether the log goes on where the snapshot ends; a snapshot of the leader's replaces a log that does not."""
    if not lines:
        return True
    if lines[0].offset > start.end_offset:
        raise _unreadable(path, 1, f"offset {lines[0].offset}, but the last snapshot ends at {start.end_offset}")
    if lines[-1].offset + 1 < start.end_offset:
        return False
    last_covered = start.end_offset - 1 - lines[0].offset
    return last_covered < 0 or lines[last_covered].entry.epoch == start.epoch


def _unreadable(path: str, number: int, reason: str) -> MetadataError:
    return MetadataError(
        f"{path}, line {number}, is damaged ({reason}); restore the file from a copy, or move the data directory away "
        "to begin with an empty one"
    )
