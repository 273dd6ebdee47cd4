"""Ten thousand publishes at the same time through one broker: all are there, once, and are read in pages."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.channels.rama import Rama, create_channel, end, now_ms, read_store, read_topic
from tests.process import BrokerProcess
from tests.s3 import S3Server

MANY = 10_000
THREADS = 200
CHANNEL = "orders"


def test_ten_thousand_parallel_publishes_are_all_there_and_unique(tmp_path: Path, s3: S3Server) -> None:
    store, start_ms = s3.new_url(), now_ms()
    broker = BrokerProcess(tmp_path / "data", {"store.url": store}, http=True, environment=s3.environment).start()
    try:
        key = create_channel(broker.http_url, CHANNEL, store, {"channel.slice.ms": "100"})
        offsets = publish_many(broker.http_url, key)
        assert sorted(offsets) == list(range(MANY)), "each has an offset of its own"
        topic = read_topic(broker.bootstrap, CHANNEL)
        assert {offset: json.loads(value)["id"] for offset, value in topic.items()} == {
            offset: number for number, offset in enumerate(offsets)
        }
        check_pages(broker.http_url, key, start_ms)
        assert broker.stop() == 0
    finally:
        end(broker)
    assert read_store(s3, store, CHANNEL, start_ms) == topic


def publish_many(url: str, key: str) -> list[int]:
    """Publish ten thousand messages, one a request, from two hundred connections; the offset of each."""
    of_thread = threading.local()
    doors: list[Rama] = []

    def publish(number: int) -> int:
        if not hasattr(of_thread, "door"):
            of_thread.door = Rama(url, key)
            doors.append(of_thread.door)
        status, answer = of_thread.door.ask("PUT", f"/{CHANNEL}", {"id": number, "_ts": now_ms()})
        assert status == 201, answer
        offset = answer["offset"]
        assert isinstance(offset, int)
        return offset

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(publish, range(MANY)))
    finally:
        for door in doors:
            door.close()


def check_pages(url: str, key: str, start_ms: int) -> None:
    """Two pages of five thousand are the whole, and the way on from one leads to the other."""
    with Rama(url, key) as door:
        pages = []
        for skip in (0, MANY // 2):
            status, answer = door.ask("GET", f"/{CHANNEL}/{start_ms}?o={skip}&n={MANY // 2}")
            assert status == 200, answer
            pages.append(answer)
        ids = [message["id"] for page in pages for message in page["messages"]]
        assert [len(page["messages"]) for page in pages] == [MANY // 2, MANY // 2]
        assert sorted(ids) == list(range(MANY))
        on = pages[0]["next"]
        _, second = door.ask("GET", f"/{CHANNEL}/{on['timestamp']}?o={on['o']}&n={MANY // 2}")
        assert second["messages"] == pages[1]["messages"]
        on = second["next"]
        _, none = door.ask("GET", f"/{CHANNEL}/{on['timestamp']}?o={on['o']}&n=10")
        assert none["messages"] == []
