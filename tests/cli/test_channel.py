"""`odradek channel` and `odradek store`, straight in a store: no broker runs here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Cli
from tests.cli.ports import free_base


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of an empty store."""
    return (tmp_path / "store").as_uri()


def test_a_channel_is_made_listed_published_to_read_and_deleted(cli: Cli, store: str, tmp_path: Path) -> None:
    made = cli.ok("channel", "create", "clicks", "--store", store, "--retention", "30d", "--slice", "100ms")
    assert made.out == "created channel clicks\n"
    (listed,) = cli.ok("channel", "list", "--store", store, "--json").objects
    assert (listed["channel"], listed["slice_ms"], listed["retention_ms"]) == ("clicks", 100, 30 * 86_400_000)
    sent = cli.ok("channel", "publish", "clicks", "--store", store, stdin=b'{"x": 1}\n\n{"x": 2, "_ts": 1000}\n')
    assert sent.err == "published 2 messages\n"
    read = cli.ok("channel", "read", "clicks", "--store", store).objects
    assert [message["x"] for message in read] == [2, 1]  # by time, not by arrival
    assert cli.ok("channel", "read", "clicks", "--store", store, "--to", "5000").objects == [{"x": 2, "_ts": 1000}]
    assert len(cli.ok("channel", "read", "clicks", "--store", store, "-n", "1").lines) == 1
    assert cli.ok("channel", "delete", "clicks", "--store", store, "--yes").out.startswith("deleted channel clicks, ")
    assert not list((tmp_path / "store").glob("clicks/**/*"))
    assert cli.ok("channel", "list", "--store", store).out == ""


def test_a_store_is_listed_and_verified(cli: Cli, store: str) -> None:
    cli.ok("channel", "create", "clicks", "--store", store)
    cli.ok(
        "channel", "publish", "clicks", "--store", store, "-m", '{"x": 1, "_ts": 61000}', "-m", '{"x": 2, "_ts": 61001}'
    )
    assert cli.ok("store", "ls", store).lines == ["clicks kind=channel buckets=1 slice_ms=1000 fifo=False"]
    (found,) = cli.ok("store", "ls", store, "clicks", "--json").objects
    assert str(found["object"]).startswith("clicks/000000000060000/01000/")
    (verified,) = cli.ok("store", "verify", store, "clicks", "--json").objects
    assert (verified["objects"], verified["messages"], verified["problems"]) == (1, 2, [])
    assert cli.ok("store", "verify", store, "clicks").lines[-1] == "all objects are whole"


def test_damage_is_found(cli: Cli, store: str, tmp_path: Path) -> None:
    cli.ok("channel", "create", "clicks", "--store", store)
    cli.ok("channel", "publish", "clicks", "--store", store, "-m", '{"x": 1, "_ts": 61000}')
    (path,) = (tmp_path / "store").glob("clicks/0*/*/*")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = cli("store", "verify", store, "clicks")
    assert ran.status == 1
    assert "damaged" in ran.out
    misplaced = path.parent.parent / "02000"
    misplaced.mkdir()
    data[-1] ^= 1
    (misplaced / path.name).write_bytes(data)
    path.unlink()
    assert "does not belong into this slice" in cli("store", "verify", store, "clicks").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("channel", "read", "nothing"), "there is no channel nothing"),
        (("channel", "publish", "nothing", "-m", "{}"), "there is no channel nothing"),
        (("channel", "create", "a/b"), "a/b"),
        (("channel", "create", "clicks", "--slice", "7s"), "divide"),
        (("store", "verify"), "there is no channel nothing"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(cli: Cli, store: str, arguments: tuple[str, ...], told: str) -> None:
    place = [store, "nothing"] if arguments[0] == "store" else ["--store", store]
    ran = cli(*arguments, *place)
    assert ran.status != 0
    assert told in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("line", ["{", "[1]", "1"])
def test_what_is_no_json_object_is_refused_by_its_number(cli: Cli, store: str, line: str) -> None:
    cli.ok("channel", "create", "clicks", "--store", store)
    ran = cli("channel", "publish", "clicks", "--store", store, "-m", '{"x": 1}', "-m", line)
    assert ran.status == 1
    assert "message 2" in ran.err


def test_a_broker_that_is_not_there_is_named(cli: Cli) -> None:
    port_of_nobody = free_base(1)
    ran = cli("channel", "list", "--http", f"127.0.0.1:{port_of_nobody}")
    assert ran.status == 1
    assert f"127.0.0.1:{port_of_nobody}" in ran.err
    assert "--http" in ran.err


def test_the_bill_is_printed_line_by_line(cli: Cli) -> None:
    ran = cli.ok("channel", "cost", "--rate", "1e6", "--size", "100", "--target", "100")
    assert ran.lines[0].startswith("PUT of slices a second=3.00 ")
    assert ran.lines[-1] == "slices from 500 ms on cost at most 100.00 dollars a month in requests"
    assert "2025-01" in ran.err


def test_prices_may_come_from_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        'provider = "ours"\nput_per_1000 = 1\nlist_per_1000 = 0\nget_per_1000 = 0\nstorage_per_gb_month = 0\n'
    )
    (found,) = cli.ok(
        "channel", "cost", "--rate", "10", "--size", "1", "--readers", "0", "--prices", str(file), "--json"
    ).objects
    assert found["provider"] == "ours"
    file.write_text("put_per_1000 = 'much'\n")
    assert "put_per_1000" in cli("channel", "cost", "--rate", "10", "--size", "1", "--prices", str(file)).err


def test_a_simulation_counts_what_the_real_writer_does(cli: Cli) -> None:
    ran = cli.ok("channel", "cost", "--rate", "500", "--size", "50", "--slice", "200ms", "--simulate", "1", "--json")
    assert "simulated 1." in ran.err
    puts = json.loads(ran.out)["lines"][0]["per_second"]
    assert 2 <= puts <= 20  # five slices a second, some of them in two objects, and a checkpoint
