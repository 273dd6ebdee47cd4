"""Reading a partition of `__consumer_offsets`: what is left of each group when all records have been applied in order.

Works in small steps, so that the loop need not wait for a long log. A record that cannot be read is passed over with a
line in the broker's log, lest one bad record keep all groups from loading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from odradek.clock import Clock
from odradek.groups.classic import ClassicGroup
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_records import decode as decode_change
from odradek.groups.group import Group, Topics
from odradek.groups.journal import Journal
from odradek.groups.offset_keeper import OffsetKeeper
from odradek.groups.storage import GroupEntry, OffsetEntry, StoredGroup, decode
from odradek.model import TopicPartition
from odradek.records.record import Record
from odradek.wire.errors import DecodeError

logger = logging.getLogger(__name__)


class Loading:
    """What has been read so far."""

    def __init__(self, config: GroupConfig, topics: Topics, clock: Clock, offsets: OffsetKeeper) -> None:
        self._config = config
        self._topics = topics
        self._clock = clock
        self._offsets = offsets
        self._classic: dict[str, StoredGroup] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self.first: Record | None = None  # of all that was read
        self.places: set[TopicPartition] = set()  # every partition of which an offset was ever stored
        self.generations: dict[tuple[str, TopicPartition], int] = {}  # by group: of partitions that were made again

    def read(self, journal: Journal, partition: int) -> Iterator[None]:
        """Apply every record, one with each step; PeerError where the partition is damaged."""
        for record in journal.read(partition):
            self.first = self.first or record
            try:
                self._apply(record)
            except DecodeError as error:
                logger.warning(
                    "passed over record %d of partition %d of the offsets topic: %s", record.offset, partition, error
                )
            yield

    def groups(self) -> Iterator[Group]:
        """The groups that exist when all has been read, each with its sessions begun anew."""
        live: set[str] = set()
        for group_id, group in self._consumer.items():
            group.resume(self._clock.now_ms())
            if group.image.epoch > 0:  # else all that was read of it was its removal
                live.add(group_id)
                yield group
        for group_id, stored in self._classic.items():
            if group_id not in live:
                yield ClassicGroup.restored(stored, self._config, self._clock.now_ms())
        for group_id in self._offsets.group_ids():  # one that has offsets only is a group, too
            if group_id not in live and group_id not in self._classic:
                yield ClassicGroup(group_id, self._config, self._clock.now_ms())

    def _apply(self, record: Record) -> None:
        entry = decode(record)
        if isinstance(entry, OffsetEntry):
            self.places.add(entry.where)
            self._offsets.restore(entry.group_id, entry.where, entry.committed)
            if entry.generation:
                self.generations[entry.group_id, entry.where] = entry.generation
            else:
                self.generations.pop((entry.group_id, entry.where), None)
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
