"""Katar's subscribe on a topic of which the disk has only the end: the rest comes from the object store, unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.katar.curl import curl
from tests.process import BrokerProcess, wait_until

pytestmark = pytest.mark.xdist_group("katar")

SETTINGS = {"remote.log.manager.task.interval.ms": "1000", "log.retention.check.interval.ms": "1000"}
CONFIG = {"remote.storage.enable": True, "local.retention.bytes": 1024, "segment.bytes": 1024}


def test_offsets_count_from_their_segments_also_where_these_are_archived(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS, http=True) as broker:
        url = broker.http_url
        assert curl(f"{url}/topic", "POST", {"name": "t", "config": CONFIG})[0] == 201
        times = []
        for number in range(30):
            body = {"topic": "t", "payload": {"number": number, "filling": "x" * 200}}
            times.append(curl(f"{url}/publish", "POST", body)[1]["offsets"][0]["timestamp"])
        directory = tmp_path / "data" / "t-0"
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))

        def is_gone() -> bool:
            return min(int(path.stem) for path in directory.glob("*.log")) > 15

        wait_until(is_gone, 30, "the first segments to leave the disk")
        _, answer = curl(f"{url}/subscribe", "POST", {"topic": "t", "offset": 0})
        assert [each["payload"]["number"] for each in answer["records"]] == list(range(30))
        assert answer["position"] == {"t": {"0": 30}}
        for record in answer["records"]:
            assert record["true_offset"] == record["base_offset"] + record["offset"]
        assert {each["base_offset"] for each in answer["records"]} >= {base for base in bases if base < 15}
        _, answer = curl(f"{url}/subscribe", "POST", {"topic": "t", "timestamp": times[3], "max": 1})
        assert answer["records"][0]["true_offset"] == next(at for at, time in enumerate(times) if time >= times[3])
