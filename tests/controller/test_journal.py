"""The metadata log keeps what was acknowledged, forgets a torn last line, and guesses at nothing."""

from __future__ import annotations

from random import Random

import pytest

from odradek.controller.image import MetadataError
from odradek.controller.journal import MetadataJournal, journal_path
from odradek.disk.memory import MemoryDisk

TOPIC = {"topic_name": "orders", "topic_id": "00" * 16, "partitions": 3, "configs": {"retention.ms": "1000"}}


def filled() -> tuple[MemoryDisk, MetadataJournal]:
    disk = MemoryDisk()
    disk.make_directory("d")
    journal = MetadataJournal(disk, "d")
    journal.append("cluster", {"cluster_id": "c"})
    journal.append("create-topic", TOPIC)
    journal.append("producer-ids", {"next": 2000})
    return disk, journal


def test_what_was_appended_is_there_after_opening_again() -> None:
    disk, journal = filled()
    journal.append("add-partitions", {"topic_name": "orders", "partitions": 5})
    journal.append("set-broker-configs", {"configs": {"retention.ms": "9"}})
    again = MetadataJournal(disk, "d").image
    assert again == journal.image
    assert again.topics["orders"].partition_count == 5
    assert again.topics["orders"].configs == {"retention.ms": "1000"}
    assert again.next_producer_id == 2000


def test_a_deleted_topic_is_remembered_as_deleted_until_it_is_made_again() -> None:
    disk, journal = filled()
    journal.append("delete-topic", {"topic_name": "orders"})
    assert MetadataJournal(disk, "d").image.deleted == {"orders"}
    journal.append("create-topic", TOPIC)
    assert MetadataJournal(disk, "d").image.deleted == set()


def test_a_last_line_without_its_end_is_cut_at_every_byte() -> None:
    disk, _ = filled()
    content = disk.read_file(journal_path("d"))
    assert content is not None
    kept = content[: content[:-1].rfind(b"\n") + 1]
    for size in range(len(kept) + 1, len(content)):
        disk.write_atomic(journal_path("d"), content[:size])
        journal = MetadataJournal(disk, "d")
        assert journal.image.next_producer_id == 0
        assert disk.read_file(journal_path("d")) == kept
        journal.append("producer-ids", {"next": 7})
        assert MetadataJournal(disk, "d").image.next_producer_id == 7


@pytest.mark.parametrize(
    "line",
    [b"x\n", b"3 1 cluster\n", b"4 1 cluster {}\n", b'3 1 nonsense {"a":1}\n', b"3 1 cluster []\n", b"3 1 cluster {}\n",
     b"\xff\n", b'3 1 delete-topic {"topic_name":"none"}\n'],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_named(line: bytes) -> None:
    disk, _ = filled()
    disk.append_file(journal_path("d"), line)
    with pytest.raises(MetadataError, match=r"__cluster_metadata\.log, line 4"):
        MetadataJournal(disk, "d")


def test_what_was_appended_survives_a_power_loss() -> None:
    for seed in range(20):
        disk, journal = filled()
        disk.crash(Random(seed))
        assert MetadataJournal(disk, "d").image == journal.image
