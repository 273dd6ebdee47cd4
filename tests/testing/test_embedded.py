"""A broker inside a test: quick to begin, gone without a trace, for threads, coroutines and pytest."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from odradek import testing
from odradek.node import StartError
from odradek.settings_table import SettingError
from odradek.testing import EmbeddedBroker
from odradek.wire.messages import metadata, produce
from tests.client.support import asynchronous, tick
from tests.edge.raw import RawClient, produce_request
from tests.log.support import batch

TOPIC = "orders"
FIRST_ACKNOWLEDGEMENT_SECONDS_MAX = 0.3


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def produce_one(broker: EmbeddedBroker) -> int:
    """Make a topic, send a record, tell its offset."""
    with RawClient(port_of(broker)) as client:
        client.ask(metadata.Request(topics=[metadata.RequestTopic(name=TOPIC)]), metadata.Response, 9)
        answer = client.ask(produce_request(TOPIC, bytes(batch(b"v"))), produce.Response, 9)
        assert isinstance(answer, produce.Response)
        where = answer.responses[0].partition_responses[0]
        assert where.error_code == 0
        return where.base_offset


def test_it_serves_within_the_block_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with testing.broker() as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        assert produce_one(broker) == 0
        assert (broker.directory / f"{TOPIC}-0").is_dir()
    assert not broker.directory.exists()
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        RawClient(port_of(broker))


def test_the_first_record_is_acknowledged_soon_after_the_block_is_entered() -> None:
    def once() -> float:
        begin = time.perf_counter()
        with testing.broker() as broker:
            produce_one(broker)
            return time.perf_counter() - begin

    tries: list[float] = []
    while len(tries) < 5 and (not tries or min(tries) > FIRST_ACKNOWLEDGEMENT_SECONDS_MAX):
        tries.append(once())  # other programs may use the machine: the best of a few counts
    assert min(tries) <= FIRST_ACKNOWLEDGEMENT_SECONDS_MAX, tries


def test_two_brokers_do_not_know_of_each_other() -> None:
    with testing.broker() as one, testing.broker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        assert (produce_one(one), produce_one(one), produce_one(other)) == (0, 1, 0)


def test_a_directory_that_is_named_is_kept_and_can_be_used_again(tmp_path: Path) -> None:
    for wanted in (0, 1):
        with testing.broker(directory=tmp_path / "data") as broker:
            assert produce_one(broker) == wanted
    assert (tmp_path / "data" / "clean-stop").exists()


def test_settings_are_given_by_their_names() -> None:
    with testing.broker({"num.partitions": "3", "http": "127.0.0.1:0"}) as broker:
        with RawClient(port_of(broker)) as client:
            wanted = metadata.Request(topics=[metadata.RequestTopic(name=TOPIC)])
            answer = client.ask(wanted, metadata.Response, 9)
            assert isinstance(answer, metadata.Response)
            assert len(answer.topics[0].partitions) == 3
        with urllib.request.urlopen(f"{broker.http_url}/healthcheck", timeout=10) as health:
            assert json.load(health)["status"] == "up"


def test_what_keeps_it_from_starting_is_raised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(SettingError, match=r"num\.partition"), testing.broker({"num.partition": "3"}):
        pytest.fail("it must not start")
    (tmp_path / "letters.txt").write_text("dear reader", encoding="utf-8")
    with pytest.raises(StartError, match=r"letters\.txt"), testing.broker(directory=tmp_path):
        pytest.fail("it must not start")
    assert set(threading.enumerate()) <= before


def test_an_error_within_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), testing.broker() as broker:
        produce_one(broker)
        raise ZeroDivisionError
    assert not broker.directory.exists()


def test_a_client_that_is_left_open_does_not_keep_it_from_ending() -> None:
    with testing.broker() as broker:
        client = RawClient(port_of(broker))
    assert client.is_closed_by_broker()
    client.close()


@asynchronous
async def test_coroutines_have_the_same_and_their_loop_goes_on_meanwhile() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await tick()

    counting = asyncio.create_task(count())
    async with testing.async_broker({"num.partitions": "2"}) as broker:
        assert turns > 0, "the loop was not blocked while the broker started"
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        assert await asyncio.to_thread(produce_one, broker) == 0
        writer.close()
        await writer.wait_closed()
        assert reader.at_eof() or await reader.read() == b""
        before = turns
    assert turns > before
    assert not broker.directory.exists()
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    with pytest.raises(SettingError):
        async with testing.async_broker({"unknown": "1"}):
            pytest.fail("it must not start")


PLUGIN_TEST = """
import socket

seen = []

def address(broker):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    socket.create_connection((host, int(port)), 10).close()
    seen.append(broker)
    return broker.bootstrap_servers

def test_a_broker_of_its_own(odradek_broker, odradek_session_broker):
    assert address(odradek_broker) != address(odradek_session_broker)

def test_another_one(odradek_broker, odradek_session_broker):
    address(odradek_broker)
    address(odradek_session_broker)
    own_before, shared_before, own, shared = seen
    assert own is not own_before
    assert shared is shared_before
    assert not own_before.directory.exists()
"""


def test_pytest_knows_the_fixtures_without_being_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
