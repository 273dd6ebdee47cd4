"""What the tests of archived topics share: a topic larger than its local retention, made and read by real clients."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.objects.archive import ArchivedSegment, archived_segments, read_archived
from odradek.objects.stores import ObjectStore
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord
from tests.process import wait_until

TOPIC = "events"
SEGMENT_BYTES = 40_000
LOCAL_BYTES = 80_000
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(LOCAL_BYTES),
}
QUICK = {"remote.log.manager.task.interval.ms": "50", "log.retention.check.interval.ms": "100"}
READ_SECONDS_MAX = 60.0
ARCHIVED_SECONDS_MAX = 60.0
_LETTERS = bytes(set(range(256)) - set(b"\n"))


def lines(count: int, seed: int = 0) -> list[bytes]:
    """Values of any bytes but those that end a line, short and long."""
    chance = random.Random(seed)
    return [b"%d " % number + bytes(chance.choices(_LETTERS, k=chance.randrange(200))) for number in range(count)]


def produce(bootstrap: str, values: list[bytes], topic: str = TOPIC, batch: int = 50) -> None:
    """Send them, a few a batch, and wait until they are safe."""
    with Client(bootstrap) as client, client.producer() as producer:
        for first in range(0, len(values), batch):
            producer.send_many(topic, [NewRecord(value) for value in values[first : first + batch]], partition=0)


def kcat_lines(bootstrap: str, topic: str = TOPIC, offset: str = "beginning") -> list[bytes]:
    """All values that kcat reads up to the end of partition 0."""
    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", offset, "-e", "-q"]
    ran = subprocess.run(command, check=True, timeout=READ_SECONDS_MAX, capture_output=True)
    return ran.stdout.split(b"\n")[:-1]


def client_lines(bootstrap: str, count: int, topic: str = TOPIC) -> list[bytes]:
    """So many values that the Python client reads from the first offset on."""
    found: list[bytes] = []
    with Client(bootstrap) as client, client.consumer({TopicPartition(topic, 0): "start"}) as consumer:

        def more() -> bool:
            for record in consumer.poll(5_000):
                assert record.offset == len(found)
                found.append(record.value or b"")
            return len(found) >= count

        wait_until(more, READ_SECONDS_MAX, f"{count} records")
    return found


def local_start(data: Path, topic: str = TOPIC) -> int:
    """The first offset that a broker has on its disk."""
    return min((int(path.stem) for path in (data / f"{topic}-0").glob("*.log")), default=-1)


def disk_bytes(data: Path, topic: str = TOPIC) -> int:
    """What a broker has on its disk of a topic's records."""
    found = 0
    for path in (data / f"{topic}-0").glob("*.log"):
        with suppress(FileNotFoundError):  # it was dropped just now
            found += path.stat().st_size
    return found


def wait_for_archive(store: ObjectStore, data: Path, least: int) -> None:
    """Wait until the disk has dropped all below an offset, and what it dropped is in the archive."""
    wait_until(lambda: local_start(data) >= least, ARCHIVED_SECONDS_MAX, f"a disk without the offsets below {least}")
    assert whole(store)[-1].end_offset >= local_start(data)


def whole(store: ObjectStore, topic: str = TOPIC) -> list[ArchivedSegment]:
    """The archived segments, which follow one another from offset 0 on."""
    found = archived_segments(store, topic)
    end = 0
    for segment in found:
        assert segment.base_offset == end
        end = segment.end_offset
    return found


def stored_lines(store: ObjectStore, topic: str = TOPIC) -> list[bytes]:
    """All archived values, read without a broker."""
    return [
        record.value or b""
        for segment in whole(store, topic)
        for data in read_archived(store, segment)
        for at, _ in iter_headers(data)
        for record in parse_batch(data, at)
    ]
