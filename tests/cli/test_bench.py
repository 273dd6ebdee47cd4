"""`odradek bench`: its figures add up, it cleans up after itself, and it shows how it goes."""

from __future__ import annotations

import pytest

from odradek.cli.bench import TOPIC_PREFIX
from tests.cli.commands import Cli, Process, on_a_terminal

PERCENTILES = {"p50", "p99", "p99.9", "max", "samples"}


@pytest.fixture(autouse=True)
def _nothing_is_left(cli: Cli) -> None:
    """The broker is shared: what an earlier test left would be found by a later one."""
    assert TOPIC_PREFIX not in cli.ok("topic", "list").out


def result(cli: Cli, *arguments: str) -> dict[str, object]:
    (found,) = cli.ok("bench", *arguments, "--json").objects
    assert TOPIC_PREFIX not in cli.ok("topic", "list").out
    return found


def latencies(found: dict[str, object]) -> dict[str, dict[str, float]]:
    timed = found["latency_ms"]
    assert isinstance(timed, dict)
    for percentiles in timed.values():
        assert percentiles.keys() == PERCENTILES
        assert 0 < percentiles["p50"] <= percentiles["p99"] <= percentiles["p99.9"] <= percentiles["max"]
    return timed


def test_producing_is_measured_by_a_count(cli: Cli) -> None:
    found = result(cli, "produce", "-n", "5000", "--size", "100", "--connections", "2", "--codec", "lz4")
    assert (found["bench"], found["records"], found["bytes"]) == ("produce", 5000, 500_000)
    seconds, rate = found["seconds"], found["records_per_second"]
    assert isinstance(seconds, float) and isinstance(rate, float)
    assert rate == pytest.approx(5000 / seconds, rel=0.05)
    assert latencies(found)["acknowledged"]["samples"] == 50
    assert found["settings"] == {"size": 100, "acks": "all", "codec": "lz4", "connections": 2, "rate": None}


def test_producing_is_measured_by_a_time(cli: Cli) -> None:
    found = result(cli, "produce", "--duration", "200ms", "--acks", "1", "--size", "1KiB")
    seconds = found["seconds"]
    assert isinstance(seconds, float) and seconds >= 0.2


def test_consuming_fills_a_topic_and_reads_it(cli: Cli) -> None:
    found = result(cli, "consume", "-n", "3000", "--size", "50", "-p", "3", "--connections", "2")
    records = found["records"]
    assert isinstance(records, int) and records >= 3000
    assert found["bytes"] == records * 50
    assert latencies(found).keys() == {"poll"}


def test_a_topic_that_is_given_is_read_and_stays(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, stdin=b"12345\n" * 1000)
    found = result(cli, "consume", "--topic", topic)
    assert (found["records"], found["bytes"]) == (1000, 5000)
    result(cli, "produce", "--topic", topic, "-n", "10")
    assert topic in cli.ok("topic", "list").out
    assert f"did you mean '{topic}'" in cli.fails("bench", "produce", "--topic", topic[:-1])


def test_latency_is_measured_at_a_steady_rate(cli: Cli) -> None:
    found = result(cli, "latency", "--rate", "500", "-n", "100", "--size", "64")
    assert found["records"] == 100
    seconds = found["seconds"]
    assert isinstance(seconds, float) and seconds >= 99 / 500
    timed = latencies(found)
    assert timed["acknowledged"]["samples"] == timed["delivered"]["samples"] == 100


def test_without_a_terminal_there_are_plain_lines(cli: Cli) -> None:
    ran = cli.ok("bench", "produce", "--duration", "1.2")
    assert ran.err.startswith("producing: 1 s, ") and "MiB/s, acknowledged p50 " in ran.err
    labels = [line.split("  ")[0] for line in ran.lines]
    assert labels[:4] == ["records", "seconds", "rec/s", "MiB/s"]
    assert [label.strip() for label in labels[4:]] == [
        f"acknowledged {name} ms" for name in ("p50", "p99", "p99.9", "max")
    ]


def test_a_terminal_gets_a_live_view_and_a_table(cli: Cli) -> None:
    shown = on_a_terminal(["bench", "latency", "--rate", "200", "--duration", "700ms"], cli.address)
    assert shown.status == 0
    assert "average" in shown.out and "█" in shown.out
    assert "delivered p99.9 ms" in shown.out


def test_ctrl_c_shows_what_was_measured_and_deletes_the_topic(cli: Cli) -> None:
    with Process(["bench", "produce", "--duration", "60", "--json"], cli.address) as process:
        process.read_until(b"producing: 1 s", stream=2)
        process.interrupt()
        ran = process.end()
    assert ran.status == 130
    (found,) = ran.objects
    assert found["bench"] == "produce"
    assert TOPIC_PREFIX not in cli.ok("topic", "list").out


def test_what_cannot_work_is_told_before_it_starts(cli: Cli) -> None:
    assert "--size is from 16" in cli.fails("bench", "latency", "--size", "8", status=2)
    assert "MESSAGE_TOO_LARGE" in cli.fails("bench", "produce", "--size", "2MiB", "-n", "1")
    assert TOPIC_PREFIX not in cli.ok("topic", "list").out
    assert "not a size" in cli.fails("bench", "produce", "--size", "big", status=2)
    assert "not a duration" in cli.fails("bench", "produce", "--duration", "long", status=2)
