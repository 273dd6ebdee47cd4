"""A real broker whose topics live in databases: clients notice nothing, nor do the archive, deletion and compaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.client.errors import RequestError
from odradek.client.sync import Client
from odradek.disk.real import RealDisk
from odradek.log.backends.choice import found_kind
from odradek.log.state import STATE_NAME
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode
from tests.process import BrokerProcess, wait_until
from tests.tiered.topics import CONFIGS, QUICK, client_lines, lines, produce

BACKENDS = ["sqlite", "rocksdb"]
DEADLINE_S = 60.0


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Where the topics live."""
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return str(request.param)


def _create(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, 1, configs)


def _local_start(data: Path) -> int:
    """The first offset that the disk still has, whatever keeps the segments."""
    return int(json.loads((data / "events-0" / STATE_NAME).read_text(encoding="utf-8"))["log_start"])


def test_what_was_acknowledged_is_read_after_a_kill_and_after_a_stop(tmp_path: Path, backend: str) -> None:
    data, values = tmp_path / "data", lines(400)
    with BrokerProcess(data, {"segment.backend": backend}) as process:
        _create(process.bootstrap, "events", {"segment.bytes": "20000"})
        produce(process.bootstrap, values[:300])
        process.kill()
        process.start()
        assert client_lines(process.bootstrap, 300) == values[:300]
        produce(process.bootstrap, values[300:])
        assert process.stop() == 0
        process.start()
        assert client_lines(process.bootstrap, 400) == values
        assert "damaged" not in process.log()
    assert found_kind(RealDisk(), str(data / "events-0")) == backend


def test_an_archived_topic_is_read_from_the_first_offset_on(tmp_path: Path, backend: str) -> None:
    data, values = tmp_path / "data", lines(1500)
    with BrokerProcess(data, {**QUICK, "segment.backend": backend}) as process:
        _create(process.bootstrap, "events", CONFIGS)
        produce(process.bootstrap, values)
        wait_until(lambda: _local_start(data) > 0, DEADLINE_S, "the first offset that leaves the disk")
        assert client_lines(process.bootstrap, len(values)) == values


def test_a_topic_that_is_deleted_and_made_again_under_load_has_only_what_is_new(tmp_path: Path, backend: str) -> None:
    with BrokerProcess(tmp_path / "data", {"segment.backend": backend}) as process:
        for life in range(5):
            _create(process.bootstrap, "events", {})
            values = [b"%d %d" % (life, number) for number in range(50)]
            produce(process.bootstrap, values)
            assert client_lines(process.bootstrap, 50) == values
            with Client(process.bootstrap) as client:
                client.admin.delete_topic("events")
        assert process.process.poll() is None


def test_without_the_library_a_topic_in_rocksdb_is_refused_and_all_others_are_served(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['rocksdict'] = None\n", encoding="utf-8")
    with (
        BrokerProcess(tmp_path / "data", environment={"PYTHONPATH": str(tmp_path)}) as process,
        Client(process.bootstrap) as client,
    ):
        with pytest.raises(RequestError, match=r"pip install 'odradek\[rocksdb\]'") as refused:
            client.admin.create_topic("rocks", 1, {"segment.backend": "rocksdb"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        assert client.admin.list_topics() == []
        client.admin.create_topic("events", 1, {"segment.backend": "sqlite"})
        produce(process.bootstrap, lines(3))
        assert client_lines(process.bootstrap, 3) == lines(3)
    assert not (tmp_path / "data" / "rocks-0").exists()


def test_a_compacted_topic_keeps_the_last_value_of_each_key(tmp_path: Path, backend: str) -> None:
    configs = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
    settings = {"segment.backend": backend, "log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "100"}
    with BrokerProcess(tmp_path / "data", settings) as process:
        _create(process.bootstrap, "events", configs)
        with Client(process.bootstrap) as client, client.producer() as producer:
            for number in range(40):
                records = [NewRecord(b"%d " % number + bytes(100), key=b"k%d" % key) for key in range(10)]
                producer.send_many("events", records, partition=0)

            def keys() -> dict[bytes | None, int]:
                found: dict[bytes | None, int] = {}
                with client.consumer({TopicPartition("events", 0): "start"}) as consumer:
                    end = client.admin.list_offsets({TopicPartition("events", 0): "end"})
                    last = end[TopicPartition("events", 0)].offset
                    while consumer.positions()[TopicPartition("events", 0)] < last:
                        for record in consumer.poll():
                            found[record.key] = found.get(record.key, 0) + 1
                return found

            wait_until(lambda: sum(keys().values()) < 100, DEADLINE_S, "the compaction")
            assert set(keys()) == {b"k%d" % key for key in range(10)}
        assert process.process.poll() is None
