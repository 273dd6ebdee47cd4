"""Archived topics in a real S3 server, which goes away and comes back: readers wait for it, producers do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client.sync import Client
from odradek.objects.stores import ObjectStore, open_store
from tests.process import BrokerProcess, wait_until
from tests.s3 import S3Server
from tests.tiered.topics import (
    ARCHIVED_SECONDS_MAX,
    CONFIGS,
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

COUNT = 4_000


@pytest.fixture
def url(s3: S3Server) -> str:
    return s3.new_url()


@pytest.fixture
def broker(tmp_path: Path, s3: S3Server, url: str) -> Iterator[BrokerProcess]:
    settings = {**QUICK, "store.url": url, "channel.timeout.ms": "2000"}
    with BrokerProcess(tmp_path / "data", settings, environment=s3.environment) as process:
        with Client(process.bootstrap) as client:
            client.admin.create_topic(TOPIC, 1, CONFIGS)
        yield process


@pytest.fixture
def store(s3: S3Server, url: str) -> ObjectStore:
    return open_store(url, s3.options)


def test_a_topic_in_s3_is_read_from_offset_0_and_deleted(broker: BrokerProcess, store: ObjectStore) -> None:
    sent = lines(COUNT)
    produce(broker.bootstrap, sent)
    wait_for_archive(store, broker.directory, COUNT // 2)
    assert kcat_lines(broker.bootstrap) == sent
    broker.kill()
    broker.start()
    assert client_lines(broker.bootstrap, COUNT) == sent
    archived = stored_lines(store)
    assert archived == sent[: len(archived)]
    assert len(archived) > COUNT // 2
    with Client(broker.bootstrap) as client:
        client.admin.delete_topic(TOPIC)
    wait_until(lambda: not list(store.list("")), ARCHIVED_SECONDS_MAX, "an empty store")


def test_while_the_store_is_away_producers_go_on_and_readers_wait(
    broker: BrokerProcess, s3: S3Server, store: ObjectStore
) -> None:
    sent = lines(COUNT)
    produce(broker.bootstrap, sent)
    wait_for_archive(store, broker.directory, COUNT // 2)
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.extend(client_lines(broker.bootstrap, 2 * COUNT)))
    with s3.away():
        reading.start()
        more = lines(COUNT, seed=1)
        archived, size = local_start(broker.directory), disk_bytes(broker.directory)
        produce(broker.bootstrap, more)
        wait_until(lambda: "archive is away" in broker.log(), ARCHIVED_SECONDS_MAX, "a word about it")
        assert local_start(broker.directory) - archived < COUNT // 2, "what was archived before may go, nothing else"
        assert disk_bytes(broker.directory) > size
        assert not found
    reading.join()
    assert found == sent + more
    wait_for_archive(store, broker.directory, COUNT + COUNT // 2)
    assert kcat_lines(broker.bootstrap) == sent + more
    wait_until(lambda: len(list(store.list(""))) == 4 * len(whole(store)), 10, "an archive without strays")
