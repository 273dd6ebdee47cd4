"""The metadata directory keeps what was acknowledged, forgets what was torn, and guesses at nothing."""

from __future__ import annotations

import errno
import json
from random import Random

import pytest

from odradek.controller.files import MetadataFiles, journal_path, list_snapshots, read_image
from odradek.controller.image import ClusterImage, MetadataError
from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.raft.messages import NO_SNAPSHOT, Entry, QuorumState, SnapshotId

LOG = journal_path("d")
STATE = "d/metadata/quorum-state"
VOTERS = {1: ("a", 8001), 2: ("b", 8002)}
CLUSTER = Entry(1, "cluster", '{"cluster_id":"c"}')
IDS = Entry(2, "producer-ids", '{"next":2000}')
TOPIC = Entry(1, "create-topic", json.dumps({"topic_name": "t", "topic_id": "00" * 16, "partitions": 3, "configs": {}}))


def opened(disk: MemoryDisk, node_id: int = 1) -> MetadataFiles:
    return MetadataFiles(disk, "d", node_id, VOTERS)


def filled() -> tuple[MemoryDisk, MetadataFiles]:
    disk = MemoryDisk()
    disk.make_directory("d")
    files = opened(disk)
    files.load()
    files.save_quorum_state(QuorumState(2, 1, 1, 2))
    files.append(0, [CLUSTER, TOPIC])
    files.append(2, [IDS])
    files.sync()
    return disk, files


def test_an_empty_directory_gets_a_quorum_state_as_the_document_says() -> None:
    disk = MemoryDisk()
    loaded = opened(disk).load()
    assert loaded.quorum_state == QuorumState(0, -1, -1, 0)
    assert (loaded.log_start, loaded.image, loaded.entries) == (NO_SNAPSHOT, None, [])
    state = json.loads(disk.read_file(STATE) or b"")
    assert (state["leader_id"], state["leader_epoch"], state["voted_id"]) == (-1, 0, -1)
    assert (state["broker_id"], state["epoch"], state["cluster_id"]) == (1, 0, "")
    assert state["voters"] == [{"id": 1, "host": "a", "port": 8001}, {"id": 2, "host": "b", "port": 8002}]


def test_what_was_kept_is_there_after_opening_again_and_after_a_power_loss() -> None:
    for seed in range(20):
        disk, _ = filled()
        disk.crash(Random(seed))
        files = opened(disk)
        loaded = files.load()
        assert loaded.entries == [CLUSTER, TOPIC, IDS]
        assert loaded.quorum_state == QuorumState(2, 1, 1, 2)
        files.append(3, [IDS])
        assert opened(disk).load().entries == [CLUSTER, TOPIC, IDS, IDS]


def test_lines_are_greppable() -> None:
    disk, _ = filled()
    first, *_ = (disk.read_file(LOG) or b"").split(b"\n")
    assert first == b'0 1 cluster {"cluster_id":"c"}'


def test_a_power_loss_leaves_a_whole_beginning_of_what_was_not_synced() -> None:
    many = [Entry(2, "producer-ids", json.dumps({"next": number})) for number in range(100)]
    lengths = set()
    for seed in range(60):
        disk, files = filled()
        files.append(3, many)
        disk.crash(Random(seed))
        entries = opened(disk).load().entries
        assert entries[:3] == [CLUSTER, TOPIC, IDS]
        assert entries[3:] == many[: len(entries) - 3]
        lengths.add(len(entries))
    assert len(lengths) > 3


def test_a_last_line_without_its_end_is_cut_at_every_byte() -> None:
    disk, _ = filled()
    content = disk.read_file(LOG)
    assert content is not None
    kept = content[: content[:-1].rfind(b"\n") + 1]
    for size in range(len(kept) + 1, len(content)):
        disk.write_atomic(LOG, content[:size])
        assert read_image(disk, "d")[2] == len(kept)
        files = opened(disk)
        assert files.load().entries == [CLUSTER, TOPIC]
        assert disk.read_file(LOG) == kept
        files.append(2, [IDS])
        assert opened(disk).load().entries == [CLUSTER, TOPIC, IDS]


@pytest.mark.parametrize(
    "line", [b"x\n", b"3 1 cluster\n", b"4 2 cluster {}\n", b"3 2 cluster []\n", b"\xff\n", b"3 1 cluster {}\n", b"\n"]
)
def test_a_line_that_cannot_be_read_is_named(line: bytes) -> None:
    disk, _ = filled()
    disk.append_file(LOG, line)
    with pytest.raises(MetadataError, match=r"__cluster_metadata\.log, line 4"):
        opened(disk).load()
    with pytest.raises(MetadataError, match=r"__cluster_metadata\.log, line 4"):
        read_image(disk, "d")


@pytest.mark.parametrize("line", [b'3 2 nonsense {"a":1}\n', b'3 2 delete-topic {"topic_name":"none"}\n'])
def test_a_record_that_makes_no_sense_is_named_to_the_tools(line: bytes) -> None:
    disk, _ = filled()
    disk.append_file(LOG, line)
    with pytest.raises(MetadataError, match=r"__cluster_metadata\.log, line 4"):
        read_image(disk, "d")


def test_the_directory_of_a_broker_that_stood_alone_is_read_as_it_is() -> None:
    disk, _ = filled()
    disk.remove(STATE)
    disk.write_atomic(LOG, b'0 1 cluster {"cluster_id":"c"}\n1 1 producer-ids {"next":7}\n')
    loaded = opened(disk).load()
    assert loaded.quorum_state == QuorumState(1, -1, -1, 0)
    assert len(loaded.entries) == 2
    image, next_offset, _ = read_image(disk, "d")
    assert (image.cluster_id, image.next_producer_id, next_offset) == ("c", 7, 2)


def test_an_old_directory_knows_its_cluster_by_its_log() -> None:
    disk, _ = filled()
    disk.remove(STATE)
    disk.write_atomic(LOG, b'0 1 cluster {"cluster_id":"c"}\n')
    assert opened(disk).load().cluster_id == "c"


def test_a_directory_keeps_its_id_and_a_new_one_has_another() -> None:
    disk, _ = filled()
    files = opened(disk)
    files.load()
    again = opened(disk)
    again.load()
    assert files.directory_id == again.directory_id
    other, _ = filled()
    stranger = opened(other)
    stranger.load()
    assert stranger.directory_id != files.directory_id


def test_one_of_many_does_not_go_on_alone_by_mistake() -> None:
    disk, _ = filled()
    MetadataFiles(disk, "d", 1, {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}).load()
    MetadataFiles(disk, "d", 1, {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}).save_quorum_state(QuorumState(5, -1, -1, 0))
    with pytest.raises(MetadataError, match=r"one of the brokers \[1, 2, 3\]: give their list with --voters"):
        MetadataFiles(disk, "d", 1, {1: ("", 0)}).load()


def test_a_quorum_state_that_is_missing_damaged_or_anothers_stops_the_start() -> None:
    disk, _ = filled()
    with pytest.raises(MetadataError, match="belongs to broker 1 and not to broker 2"):
        opened(disk, node_id=2).load()
    disk.write_atomic(STATE, b"{")
    with pytest.raises(MetadataError, match="quorum-state is damaged"):
        opened(disk).load()
    disk.remove(STATE)
    with pytest.raises(MetadataError, match="forgotten its votes"):
        opened(disk).load()


def test_the_cluster_id_stands_beside_the_votes() -> None:
    disk, files = filled()
    files.cluster_id = "c"
    files.save_quorum_state(QuorumState(3, -1, -1, 2))
    assert opened(disk).load().cluster_id == "c"


def test_a_cut_end_stays_cut_and_the_log_goes_on_from_there() -> None:
    for seed in range(20):
        disk, files = filled()
        files.truncate(1)
        other = Entry(3, "producer-ids", '{"next":1}')
        files.append(1, [other])
        files.sync()
        disk.crash(Random(seed))
        assert opened(disk).load().entries == [CLUSTER, other]


def test_what_a_cut_left_never_mixes_with_what_came_after() -> None:
    long = Entry(2, "producer-ids", json.dumps({"next": 1, "x": "y" * 3_000}))
    for seed in range(40):
        disk, files = filled()
        files.append(3, [long, long])
        files.sync()
        files.truncate(3)
        files.append(3, [Entry(3, "producer-ids", json.dumps({"next": 2, "x": "z" * 2_000}))])
        disk.crash(Random(seed))
        assert opened(disk).load().entries[:3] == [CLUSTER, TOPIC, IDS]


def test_entries_that_a_snapshot_holds_are_dropped() -> None:
    disk, files = filled()
    image = json.dumps(ClusterImage(cluster_id="c").to_json()).encode()
    snapshot = SnapshotId(2, 1)
    files.write_snapshot(snapshot, image)
    assert opened(disk).load().entries == [IDS]  # a crash came before the cut
    files.cut_before(2)
    assert (disk.read_file(LOG) or b"").startswith(b"2 2 producer-ids")
    assert files.log_bytes == len(disk.read_file(LOG) or b"")
    files.append(3, [IDS])
    files.truncate(3)
    files.append(3, [IDS, IDS])
    disk.crash(Random(1))
    loaded = opened(disk).load()
    assert (loaded.log_start, loaded.image) == (snapshot, json.loads(image))
    assert loaded.entries[:1] == [IDS]
    assert files.read_snapshot(snapshot) == image
    assert files.read_snapshot(SnapshotId(9, 9)) is None
    image_now, next_offset, _ = read_image(disk, "d")
    assert (image_now.cluster_id, image_now.next_producer_id) == ("c", 2000)
    assert next_offset >= 3


def test_all_entries_may_be_in_the_snapshot() -> None:
    disk, files = filled()
    files.write_snapshot(SnapshotId(3, 2), b"{}")
    files.cut_before(3)
    assert disk.read_file(LOG) == b""
    again = opened(disk)
    assert again.load().entries == []
    again.append(3, [IDS])
    assert opened(disk).load().entries == [IDS]


def test_a_leaders_snapshot_replaces_the_log_also_when_the_power_fails_halfway() -> None:
    disk, files = filled()
    files.install_snapshot(SnapshotId(10, 4), b"{}")
    assert opened(disk).load().entries == []
    for number in (SnapshotId(10, 4), SnapshotId(2, 2)):  # behind our log's end, and in it with another epoch
        disk, files = filled()
        files.write_snapshot(number, b"{}")
        again = opened(disk)
        loaded = again.load()
        assert (loaded.log_start, loaded.entries) == (number, [])
        again.append(number.end_offset, [Entry(5, "producer-ids", "{}")])
        assert len(opened(disk).load().entries) == 1


def test_one_older_snapshot_is_kept() -> None:
    disk, files = filled()
    for end_offset in (1, 2, 3):
        files.write_snapshot(SnapshotId(end_offset, 1), b"{}")
    assert list_snapshots(disk, "d/metadata") == [SnapshotId(2, 1), SnapshotId(3, 1)]
    assert disk.exists("d/metadata/00000000000000000003-0000000001.checkpoint")


def test_a_damaged_snapshot_or_a_gap_behind_it_stops_the_start() -> None:
    disk, files = filled()
    files.write_snapshot(SnapshotId(2, 1), b"{}")
    files.cut_before(2)
    disk.write_atomic("d/metadata/00000000000000000002-0000000001.checkpoint", b"[")
    with pytest.raises(MetadataError, match="checkpoint is damaged"):
        opened(disk).load()
    with pytest.raises(MetadataError, match="checkpoint is damaged"):
        read_image(disk, "d")
    disk.remove("d/metadata/00000000000000000002-0000000001.checkpoint")
    files.write_snapshot(SnapshotId(1, 1), b"{}")
    with pytest.raises(MetadataError, match="line 1"):
        opened(disk).load()


def test_a_failing_disk_is_told() -> None:
    disk, files = filled()
    disk.fail_next("append to", errno.EIO, ending=".log")
    with pytest.raises(DiskError):
        files.append(3, [IDS])
