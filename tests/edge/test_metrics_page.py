"""What /metrics tells: text that Prometheus can read, and numbers that follow what was done."""

from __future__ import annotations

import re

import pytest

from odradek.edge.metrics_page import metrics_page
from odradek.edge.routing import Page
from odradek.groups.offsets import CommittedOffset
from odradek.metrics import DoorStats
from odradek.model import TopicPartition
from tests.apis.houses import Visitor, visiting
from tests.client.support import asynchronous

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(rf'({_NAME})="((?:[^"\\\n]|\\["\\n])*)"')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL.pattern},?)*)\}})? (\S+)")
_SUFFIXES = ("_bucket", "_sum", "_count")


class Metrics:
    """The text format, read as strictly as Prometheus does."""

    def __init__(self, page: Page) -> None:
        assert page.content_type.startswith("text/plain; version=0.0.4")
        text = page.body.decode()
        assert text.endswith("\n")
        self.types: dict[str, str] = {}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        helped: set[str] = set()
        closed: set[str] = set()
        current = ""
        for line in text.splitlines():
            if line.startswith("# "):
                _, word, name, rest = line.split(" ", 3)
                if word == "HELP":
                    assert name not in helped, f"{name} stands twice"
                    helped.add(name)
                    assert rest
                else:
                    assert word == "TYPE" and name in helped and rest in ("counter", "gauge", "histogram")
                    self.types[name] = rest
                continue
            match = _SAMPLE.fullmatch(line)
            assert match, line
            family = self._family(match[1])
            if family != current:
                assert family not in closed, f"the samples of {family} are not together"
                closed.add(current)
                current = family
            labels = frozenset((name, value) for name, value in _LABEL.findall(match[2] or ""))
            assert (match[1], labels) not in self.samples, f"twice: {line}"
            self.samples[match[1], labels] = float(match[match.lastindex or 0])

    def _family(self, name: str) -> str:
        if name in self.types:
            assert self.types[name] != "histogram"
            return name
        family = next(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))
        assert self.types[family] == "histogram"
        return family

    def value(self, name: str, **labels: str) -> float:
        return self.samples[f"odradek_{name}", frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def metrics(visitor: Visitor, stats: DoorStats | None = None) -> Metrics:
    return Metrics(metrics_page(visitor.broker, visitor.door.groups, stats or DoorStats()))


@asynchronous
async def test_an_empty_broker_has_a_page_that_can_be_read() -> None:
    async with visiting() as visitor:
        read = metrics(visitor)
        assert read.value("partitions") == read.value("connections") == read.value("groups") == 0
        assert all(kind == "counter" for name, kind in read.types.items() if name.endswith("_total"))


@asynchronous
async def test_the_door_is_counted_api_by_api() -> None:
    async with visiting() as visitor:
        stats = DoorStats()
        stats.connections, stats.connections_accepted = 2, 7
        stats.connections_refused, stats.connections_dropped = 3, 4
        fetch = stats.api("FETCH")
        for seconds in (0.0002, 0.0002, 0.3, 99.0):
            fetch.latency.observe(seconds)
        fetch.request_bytes, fetch.response_bytes, fetch.errors = 10, 20, 1
        stats.api("PRODUCE")
        read = metrics(visitor, stats)
        assert read.value("connections") == 2
        assert read.value("connections_accepted_total") == 7
        assert read.value("connections_refused_total") == 3
        assert read.value("connections_dropped_total") == 4
        assert read.value("request_bytes_total", api="FETCH") == 10
        assert read.value("response_bytes_total", api="FETCH") == 20
        assert read.value("request_errors_total", api="FETCH") == 1
        assert read.value("request_errors_total", api="PRODUCE") == 0
        buckets = {
            dict(labels)["le"]: value
            for (name, labels), value in read.samples.items()
            if name == "odradek_request_seconds_bucket" and dict(labels)["api"] == "FETCH"
        }
        assert (buckets["0.0001"], buckets["0.00025"], buckets["0.25"]) == (0, 2, 2)
        assert (buckets["0.5"], buckets["30.0"], buckets["+Inf"]) == (3, 3, 4)
        assert read.value("request_seconds_count", api="FETCH") == 4
        assert read.value("request_seconds_sum", api="FETCH") == pytest.approx(99.3004)


@asynchronous
async def test_partitions_and_flushes_are_counted() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 2, {})
        await visitor.house.produce("orders", b"a", b"b", partition=1)
        await visitor.house.produce("orders", b"c", partition=1)
        visitor.broker.partition("orders", 1).log.delete_records(1).run()
        read = metrics(visitor)
        assert read.value("partitions") == 2
        assert read.value("partitions_offline") == 0
        assert read.value("partition_high_watermark", topic="orders", partition="1") == 3
        assert read.value("partition_start_offset", topic="orders", partition="1") == 1
        assert read.value("partition_size_bytes", topic="orders", partition="1") > 100
        assert read.value("partition_size_bytes", topic="orders", partition="0") == 0
        assert read.value("flushes_total") >= 1
        assert read.value("flushed_batches_total") == 2
        assert read.value("flushed_bytes_total") == read.value("partition_size_bytes", topic="orders", partition="1")
        assert 0 < read.value("flush_seconds_max") <= read.value("flush_seconds_total")


async def commit(visitor: Visitor, group: str, topic: str, offset: int) -> None:
    where = {TopicPartition(topic, 0): CommittedOffset(offset, 0, "", visitor.clock.now_ms())}
    await visitor.door.groups.offsets.commit(group, "", None, -1, where)


@asynchronous
async def test_the_lag_of_groups_is_what_they_have_not_committed() -> None:
    async with visiting(settings={"offsets.topic.num.partitions": 1}) as visitor:
        await visitor.broker.create_topic("orders", 1, {})
        await visitor.broker.create_topic("gone", 1, {})
        await visitor.house.produce("orders", *[b"v"] * 5)
        strange = 'a "quoted\\ group"\nof two lines'
        await commit(visitor, "behind", "orders", 2)
        await commit(visitor, strange, "orders", 5)
        await commit(visitor, "ahead", "orders", 9)
        await commit(visitor, "lost", "gone", 3)
        await commit(visitor, "odradek-sink-1-0", "orders", 0)  # where a write of Spark began: nobody is behind
        await visitor.broker.delete_topic("gone")

        def lag(group: str) -> float:
            return metrics(visitor).value("group_lag", group=group, topic="orders", partition="0")

        def committed(group: str) -> float:
            return metrics(visitor).value("group_committed_offset", group=group, topic="orders", partition="0")

        assert (committed("behind"), committed("ahead")) == (2, 9)
        assert lag("behind") == 3
        assert lag(strange.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) == 0
        assert lag("ahead") == 0
        visitor.broker.partition("orders", 0).log.delete_records(4).run()
        assert lag("behind") == 1, "what is deleted cannot be read any more"
        assert committed("behind") == 2
        await commit(visitor, "behind", "orders", 5)
        assert (lag("behind"), committed("behind")) == (0, 5)
        assert not any(dict(labels).get("topic") == "gone" for _, labels in metrics(visitor).samples)
        assert not any("odradek-sink" in dict(labels).get("group", "") for _, labels in metrics(visitor).samples)
        assert metrics(visitor).value("groups") >= 3
