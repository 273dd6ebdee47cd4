"""Katar's document, line by line, against a broker process and with curl."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.katar.curl import Events, curl, curl_bytes
from tests.process import BrokerProcess, wait_until

pytestmark = pytest.mark.xdist_group("katar")

ODRADEK = str(Path(sys.executable).with_name("odradek"))
THREE = {".log", ".index", ".timeindex"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("katar") / "data", http=True) as process:
        yield process


def create(broker: BrokerProcess, name: str, **config: object) -> str:
    named = {key.replace("_", "."): value for key, value in config.items()}
    status, topic = curl(f"{broker.http_url}/topic", "POST", {"name": name, "config": named})
    assert status == 201, topic
    return str(topic["name"])


def publish(broker: BrokerProcess, topic: str, *payloads: object, **fields: object) -> list[dict[str, Any]]:
    body = {"topic": topic, "payloads": payloads, **fields}
    status, answer = curl(f"{broker.http_url}/publish", "POST", body)
    assert status == 200, answer
    assert isinstance(answer["offsets"], list)
    return answer["offsets"]


def subscribe(broker: BrokerProcess, **body: object) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    status, answer = curl(f"{broker.http_url}/subscribe", "POST", body)
    assert status == 200, answer
    return answer["records"], answer["position"]


def segments(directory: Path) -> list[int]:
    """The first offsets of a partition's segments; those before the last have their three files."""
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    names = {path.name for path in directory.iterdir() if path.suffix in THREE}
    assert {f"{base:020d}{suffix}" for base in bases[:-1] for suffix in THREE} <= names
    return bases


# The directory.


class HomeBroker(BrokerProcess):
    """A broker that is told its directory by the environment only."""

    def __init__(self, variable: str, value: Path, directory: Path) -> None:
        super().__init__(directory, http=True)
        self._variable = f"{variable}={value}"

    def command(self) -> list[str]:
        command = ["env", self._variable, ODRADEK, "serve", "--kafka", self.bootstrap, "--http", self.http]
        return [*command, "--grpc", "off"]


@pytest.mark.parametrize(("variable", "value", "below"), [("ODRADEK_DIR", "own", ""), ("HOME", "", ".odradek")])
def test_the_directory_comes_from_the_environment_with_a_folder_a_topic_and_the_brokers_log(
    tmp_path: Path, variable: str, value: str, below: str
) -> None:
    with HomeBroker(variable, tmp_path / value, tmp_path / value / below) as broker:
        for topic in ("sample_topic_1", "sample_topic_2"):
            create(broker, topic, segment_bytes=1024, index_interval_bytes=100)
            for _ in range(5):
                publish(broker, topic, "x" * 300)
        names = {path.name for path in broker.directory.iterdir()}
        assert {"odradek.log", "sample_topic_1-0", "sample_topic_2-0"} <= names
        for topic in ("sample_topic_1", "sample_topic_2"):
            assert segments(broker.directory / f"{topic}-0") == [0, 2, 4]
        assert "INFO" in (broker.directory / "odradek.log").read_text()


# Segments and their indexes.


def test_a_full_segment_is_followed_by_one_that_is_named_by_its_first_offset(broker: BrokerProcess) -> None:
    topic = create(broker, "rolled", segment_bytes=4096, index_interval_bytes=512)
    for number in range(50):
        publish(broker, topic, {"number": number, "filling": "x" * 200})
    directory = broker.directory / f"{topic}-0"
    bases = segments(directory)
    assert len(bases) > 3
    for base in bases[:-1]:
        log, index, times = (directory / f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
        assert 2048 < log.stat().st_size <= 4096
        entries, rest = divmod(index.stat().st_size, 8)
        assert rest == 0 and 3 <= entries <= 4096 // 512, "sparse: an entry every 512 bytes, not one a record"
        assert times.stat().st_size % 12 == 0
    records, position = subscribe(broker, topic=topic, offset=0, max=1000)
    assert position == {topic: {"0": 50}}
    for number, record in enumerate(records):
        assert record["true_offset"] == number == record["base_offset"] + record["offset"]
        assert record["base_offset"] == max(base for base in bases if base <= number)
        assert set(record) == {
            "topic", "partition", "base_offset", "offset", "true_offset", "timestamp", "key", "payload",
        }  # fmt: skip
    second = bases[1]
    relative = [(each["true_offset"], each["base_offset"], each["offset"]) for each in records[second : second + 5]]
    assert relative == [(second + step, second, step) for step in range(5)], "the document's table"
    for offset in (0, 1, second - 1, second, 37, 49):
        found, _ = subscribe(broker, topic=topic, offset=offset, max=1)
        assert found == [records[offset]], "found through the index"


def test_the_default_size_of_a_segment_is_a_gibibyte(broker: BrokerProcess) -> None:
    _, answer = curl(f"{broker.http_url}/topic/{create(broker, 'plain')}")
    assert answer["topics"][0]["config"]["segment.bytes"] == 2**30


def test_records_are_found_by_their_time_over_several_segments(broker: BrokerProcess) -> None:
    topic = create(broker, "timed", segment_bytes=2048, index_interval_bytes=512)
    times: list[int] = []
    for number in range(25):
        (place,) = publish(broker, topic, {"number": number, "filling": "x" * 200})
        times.append(place["timestamp"])
    assert times == sorted(times) and len(segments(broker.directory / f"{topic}-0")) > 2
    for wanted in (times[0], times[9] + 1, times[17], times[24]):
        found, _ = subscribe(broker, topic=topic, timestamp=wanted, max=1)
        assert found[0]["true_offset"] == next(offset for offset, time in enumerate(times) if time >= wanted)
    assert subscribe(broker, topic=topic, timestamp=times[-1] + 1) == ([], {topic: {"0": 25}})


# The routes.


def test_topics_are_made_told_changed_and_deleted(broker: BrokerProcess) -> None:
    url = f"{broker.http_url}/topic"
    status, sample = curl(url, "POST", {"name": "sample", "config": {"retention.ms": 3_600_000, "flush": "os"}})
    assert (status, sample["name"], sample["overrides"]) == (201, "sample", ["flush", "retention.ms"])
    assert [curl(url, "POST", {"name": "sample"})[1]["name"] for _ in range(2)] == ["sample__0", "sample__1"]
    assert {"sample", "sample__0", "sample__1"} <= set(curl(url)[1]["topics"])
    status, told = curl(f"{url}/sample,sample__1")
    assert (status, [each["name"] for each in told["topics"]]) == (200, ["sample", "sample__1"])
    assert told["topics"][0] == sample
    assert curl(f"{url}/sample,unknown")[0] == 404

    _, patched = curl(f"{url}/sample", "PATCH", {"segment.bytes": 65536})
    assert patched["overrides"] == ["flush", "retention.ms", "segment.bytes"]
    _, put = curl(f"{url}/sample", "PUT", {"segment.bytes": 65536})
    assert put["overrides"] == ["segment.bytes"]
    assert put["config"]["retention.ms"] == 604_800_000, "reset"
    status, problem = curl(f"{url}/sample", "PATCH", {"segment.bytes": "a lot"})
    assert status == 422 and problem["detail"].startswith("segment.bytes = 'a lot' (topic) is not a whole number")

    directory = broker.directory / "sample__1-0"
    assert directory.is_dir()
    assert curl(f"{url}/sample__1", "DELETE") == (204, None)
    assert curl(f"{url}/sample__1", "DELETE")[0] == 404
    wait_until(lambda: not directory.exists(), what="the data to go")


def test_racing_creators_each_get_a_topic_of_their_own(broker: BrokerProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: create(broker, "raced"), range(8)))
    assert sorted(names) == ["raced", *(f"raced__{number}" for number in range(7))]


def test_a_payload_is_kept_byte_for_byte_for_every_kind_of_client(broker: BrokerProcess) -> None:
    payload = '{"b":1.00,  "a" :"\\u00e9 é", "b":[ ]}'.encode()
    status, _ = curl(f"{broker.http_url}/publish", "POST", b'{"topic":"bytes","key":"k","payload":' + payload + b"}")
    assert status == 200
    _, answer = curl_bytes(f"{broker.http_url}/subscribe", "POST", {"topic": "bytes", "offset": 0})
    assert b'"key":"k","payload":' + payload + b"}" in answer
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["bytes"])
    message = consumer.poll(30)
    assert message is not None and (message.key(), message.value()) == (b"k", payload)
    consumer.close()


def test_what_kafka_clients_send_is_read_with_curl(broker: BrokerProcess) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    for value in (b'{"n": 1}', b"text", b"\xff\xfe"):
        producer.produce("foreign", value, b"k", headers={"h": b"v"})
    assert producer.flush(30) == 0
    records, _ = subscribe(broker, topic="foreign", offset=0)
    shown = [{name: each[name] for name in each if name.startswith("payload")} for each in records]
    assert shown == [{"payload": {"n": 1}}, {"payload": "text"}, {"payload_base64": "//4="}]
    assert all((each["key"], each["headers"]) == ("k", [{"key": "h", "value": "v"}]) for each in records)


def test_several_topics_are_published_to_and_read_at_once(broker: BrokerProcess) -> None:
    topics = ["many_1", "many_2"]
    body = {"topics": topics, "payloads": [1, [2], None]}
    status, answer = curl(f"{broker.http_url}/publish", "POST", body)
    places = [(each["topic"], each["partition"], each["offset"]) for each in answer["offsets"]]
    assert (status, places) == (200, [(topic, 0, offset) for topic in topics for offset in range(3)])
    records, position = subscribe(broker, topics=topics, offset=1)
    assert sorted((each["topic"], each["true_offset"]) for each in records) == [
        ("many_1", 1), ("many_1", 2), ("many_2", 1), ("many_2", 2),
    ]  # fmt: skip
    assert position == {"many_1": {"0": 3}, "many_2": {"0": 3}}


def test_latest_is_what_comes_after_the_call_and_is_waited_for(broker: BrokerProcess) -> None:
    publish(broker, "late", "before")
    records, position = subscribe(broker, topic="late")
    assert (records, position) == ([], {"late": {"0": 1}})
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(subscribe(broker, position=position, wait_ms=30_000)))
    reading.start()
    publish(broker, "late", "after")
    reading.join(30)
    assert [each["payload"] for each in found[0]] == ["after"]


def test_the_same_call_streams(broker: BrokerProcess) -> None:
    url = f"{broker.http_url}/subscribe"
    publish(broker, "streamed", *range(3))
    events = Events(url, {"topic": "streamed", "offset": 0})
    seen = [events.next() for _ in range(2)]
    assert [record["payload"] for _, record in seen] == [0, 1]
    events.close()
    events = Events(url, {"topic": "streamed", "offset": 0}, f"Last-Event-ID: {seen[-1][0]}")
    assert events.next()[1]["payload"] == 2
    publish(broker, "streamed", {"live": True})
    last_id, record = events.next()
    assert (json.loads(last_id), record["payload"]) == ({"streamed": {"0": 4}}, {"live": True})
    events.close()


def test_a_position_outlives_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        publish(broker, "t", *range(10))
        _, position = subscribe(broker, topic="t", offset=0, max=4)
        broker.kill()
        broker.start()
        records, position = subscribe(broker, position=position)
        assert [each["payload"] for each in records] == [4, 5, 6, 7, 8, 9]
        assert position == {"t": {"0": 10}}


def test_an_unknown_topic_is_404_on_every_route_but_publish(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"auto.create.topics.enable": "false"}, http=True) as broker:
        url = broker.http_url
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert curl(f"{url}/topic/none", method, {})[0] == 404
        assert curl(f"{url}/subscribe", "POST", {"topic": "none"})[0] == 404
        status, problem = curl(f"{url}/publish", "POST", {"topic": "none", "payload": 1})
        assert status == 404 and "auto.create.topics.enable" in problem["detail"]


def test_a_protected_topic_wants_a_registered_key(broker: BrokerProcess) -> None:
    topic = create(broker, "guarded", clients_required=True)
    body = {"topic": topic, "payload": 1}
    assert curl(f"{broker.http_url}/publish", "POST", body)[0] == 401
    status, registered = curl(f"{broker.http_url}/register/{topic}", "POST", {})
    assert status == 201, registered
    key = f"client_key: {registered['client_key']}"
    assert curl(f"{broker.http_url}/publish", "POST", body, key)[0] == 200
    assert curl(f"{broker.http_url}/subscribe", "POST", {"topic": topic, "offset": 0}, "client_key: wrong")[0] == 401
    status, answer = curl(f"{broker.http_url}/subscribe", "POST", {"topic": topic, "offset": 0}, key)
    assert (status, [each["payload"] for each in answer["records"]]) == (200, [1])


def test_the_routes_are_described_with_examples(broker: BrokerProcess) -> None:
    _, described = curl(f"{broker.http_url}/openapi.json")
    for path, methods in {
        "/topic": {"get", "post"},
        "/topic/{topic_name}": {"get", "put", "patch", "delete"},
        "/publish": {"post"},
        "/subscribe": {"post"},
    }.items():
        assert set(described["paths"][path]) == methods
    for path in ("/topic", "/publish", "/subscribe"):
        example = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert curl(f"{broker.http_url}{path}", "POST", example)[0] in (200, 201), "an example that works"
