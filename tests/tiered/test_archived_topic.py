"""Issue 6: a topic larger than its local retention is read from offset 0, equal byte for byte to what was produced."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client.sync import Client
from odradek.objects.stores import ObjectStore, open_store
from tests.process import BrokerProcess, wait_until
from tests.tiered.topics import (
    ARCHIVED_SECONDS_MAX,
    CONFIGS,
    LOCAL_BYTES,
    QUICK,
    TOPIC,
    client_lines,
    disk_bytes,
    kcat_lines,
    lines,
    local_start,
    produce,
    stored_lines,
    wait_for_archive,
    whole,
)

COUNT = 6_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data, QUICK) as process:
        yield process


def own_store(data: Path) -> ObjectStore:
    """What a broker uses that was not told of a store."""
    return open_store((data / "objects").as_uri())


def make_topic(broker: BrokerProcess, configs: dict[str, str] | None = None) -> None:
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(TOPIC, 1, {**CONFIGS, **(configs or {})})


def test_all_is_read_from_offset_0_also_after_a_restart(broker: BrokerProcess, data: Path) -> None:
    make_topic(broker)
    sent = lines(COUNT)
    produce(broker.bootstrap, sent)
    store = own_store(data)
    wait_for_archive(store, data, COUNT // 2)
    wait_until(lambda: disk_bytes(data) < 2 * LOCAL_BYTES, ARCHIVED_SECONDS_MAX, "a disk with no more than it must")
    assert sum(map(len, sent)) // 2 > 2 * LOCAL_BYTES
    assert kcat_lines(broker.bootstrap) == sent
    assert client_lines(broker.bootstrap, COUNT) == sent
    assert broker.stop() == 0
    broker.start()
    assert kcat_lines(broker.bootstrap) == sent
    assert kcat_lines(broker.bootstrap, offset="777") == sent[777:]
    broker.kill()
    broker.start()
    assert client_lines(broker.bootstrap, COUNT) == sent
    archived = stored_lines(store)
    assert archived == sent[: len(archived)]
    assert len(archived) >= local_start(data) > COUNT // 2


def test_brokers_killed_in_the_middle_of_uploads_lose_and_repeat_nothing(broker: BrokerProcess, data: Path) -> None:
    chance = random.Random(6)
    make_topic(broker, {"segment.bytes": "8000"})
    sent, store = lines(COUNT), own_store(data)
    producing = threading.Thread(target=produce, args=(broker.bootstrap, sent))
    producing.start()
    for _ in range(4):
        objects = len(list(store.list("")))
        least = objects + chance.randrange(1, 40)
        wait_until(lambda least=least: len(list(store.list(""))) >= least, ARCHIVED_SECONDS_MAX, "some objects")
        broker.kill()
        broker.start()
    producing.join()
    assert kcat_lines(broker.bootstrap) == sent
    wait_for_archive(store, data, COUNT * 3 // 4)
    assert client_lines(broker.bootstrap, COUNT) == sent
    wait_until(lambda: len(list(store.list(""))) == 4 * len(whole(store)), 10, "an archive without strays")
    archived = stored_lines(store)
    assert archived == sent[: len(archived)]


def test_a_deleted_topic_takes_its_objects_along_also_over_a_kill(broker: BrokerProcess, data: Path) -> None:
    make_topic(broker)
    produce(broker.bootstrap, lines(COUNT))
    store = own_store(data)
    wait_for_archive(store, data, COUNT // 2)
    with Client(broker.bootstrap) as client:
        client.admin.delete_topic(TOPIC)
    broker.kill()
    broker.start()
    wait_until(lambda: not list(store.list("")), ARCHIVED_SECONDS_MAX, "an empty store")
    make_topic(broker)
    produce(broker.bootstrap, [b"new"])
    assert kcat_lines(broker.bootstrap) == [b"new"]


def test_retention_bounds_the_whole(broker: BrokerProcess, data: Path) -> None:
    make_topic(broker, {"retention.bytes": "200000"})
    sent = lines(COUNT)
    produce(broker.bootstrap, sent)
    store = own_store(data)

    def sizes() -> int:
        return sum(info.size_bytes for info in store.list("") if info.key.endswith(".log"))

    wait_until(lambda: local_start(data) > COUNT // 2 and sizes() < 300_000, ARCHIVED_SECONDS_MAX, "a smaller archive")

    def reads_the_end() -> bool:  # retention may go on while it is read
        read = kcat_lines(broker.bootstrap)
        return 0 < len(read) < COUNT and read == sent[-len(read) :]

    wait_until(reads_the_end, ARCHIVED_SECONDS_MAX, "the end of what was sent, without a gap")
