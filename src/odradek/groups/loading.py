"""Reading `__consumer_offsets` at start: what is left of each group when all records have been applied in order.

A record that cannot be read is passed over with a line in the log, lest one bad record keep all groups from loading.
"""

from __future__ import annotations

import logging

from odradek.groups.classic import ClassicGroup
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_records import decode as decode_change
from odradek.groups.group import Group, Topics
from odradek.groups.journal import Journal
from odradek.groups.offset_keeper import OffsetKeeper
from odradek.groups.storage import GroupEntry, OffsetEntry, StoredGroup, decode
from odradek.records.record import Record
from odradek.wire.errors import DecodeError, PeerError

logger = logging.getLogger(__name__)


class Loading:
    """What has been read so far."""

    def __init__(self, config: GroupConfig, topics: Topics, offsets: OffsetKeeper) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._classic: dict[str, StoredGroup] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self.unreadable: set[int] = set()  # partitions of the journal: what was read of their groups may be old

    def read(self, journal: Journal) -> None:
        """Apply every record; a group's are all in one partition. One that is damaged serves none of its groups."""
        for partition in range(journal.partition_count):
            try:
                self._read_partition(journal, partition)
            except PeerError as error:
                self.unreadable.add(partition)
                logger.critical("groups of partition %d of the offsets topic are not served: %s", partition, error)

    def _read_partition(self, journal: Journal, partition: int) -> None:
        for record in journal.read(partition):
            try:
                self._apply(record)
            except DecodeError as error:
                logger.warning(
                    "passed over record %d of partition %d of the offsets topic: %s", record.offset, partition, error
                )

    def groups(self, now_ms: int) -> dict[str, Group]:
        """The groups that exist when all has been read; one that has offsets only is a group, too."""
        groups: dict[str, Group] = {}
        for group_id in self._offsets.group_ids():
            groups[group_id] = ClassicGroup(group_id, self._config, now_ms)
        for group_id, stored in self._classic.items():
            groups[group_id] = ClassicGroup.restored(stored, self._config, now_ms)
        for group_id, group in self._consumer.items():
            group.resume(now_ms)
            if group.image.epoch > 0:  # else all that was read of it was its removal
                groups[group_id] = group
        return groups

    def _apply(self, record: Record) -> None:
        entry = decode(record)
        if isinstance(entry, OffsetEntry):
            self._offsets.restore(entry.group_id, entry.where, entry.committed)
        elif isinstance(entry, GroupEntry):
            if entry.stored is None:
                self._classic.pop(entry.group_id, None)
            else:
                self._classic[entry.group_id] = entry.stored
        elif entry is not None:
            group = self._consumer.get(entry.group_id)
            if group is None:
                group = self._consumer[entry.group_id] = ConsumerGroup(entry.group_id, self._config, self._topics)
            group.apply(decode_change(record.key or b"", record.value))
