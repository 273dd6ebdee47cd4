"""The object store goes away under a running broker, and comes back: what publishers are told, and what is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.channels.rama import (
    Ledger,
    Publishers,
    Rama,
    check_promises,
    create_channel,
    end,
    now_ms,
    read_store,
    read_topic,
)
from tests.process import BrokerProcess, wait_until
from tests.s3 import S3Server

CHANNEL = "orders"
SETTINGS = {"channel.slice.ms": "50"}
THREADS = 6


class Channel:
    """A channel of a running broker, whose publishers' ledger is checked at the end."""

    def __init__(self, broker: BrokerProcess, s3: S3Server) -> None:
        self.broker, self.s3, self.ledger, self.store, self.start_ms = broker, s3, Ledger(), s3.new_url(), now_ms()
        self.key = create_channel(broker.http_url, CHANNEL, self.store, SETTINGS)

    def publishers(self, padding: int = 10) -> Publishers:
        return Publishers(
            self.broker.http_url, CHANNEL, self.key, self.ledger, threads=THREADS, padding=padding, seed=1
        )

    def check(self) -> None:
        topic = read_topic(self.broker.bootstrap, CHANNEL)
        assert self.broker.stop() == 0
        check_promises(self.ledger, read_store(self.s3, self.store, CHANNEL, self.start_ms), topic)


@contextmanager
def channel(directory: Path, s3: S3Server, settings: dict[str, str]) -> Iterator[Channel]:
    """A broker with a channel; it ends with the test."""
    broker = BrokerProcess(directory / "data", settings, http=True, environment=s3.environment).start()
    try:
        yield Channel(broker, s3)
    finally:
        end(broker)


def test_publishes_wait_for_a_store_that_comes_back_in_time(tmp_path: Path, s3: S3Server) -> None:
    with channel(tmp_path, s3, {"channel.timeout.ms": "60s"}) as one:
        with one.publishers():
            one.ledger.wait_for(100)
            with s3.away():
                one.ledger.wait_until_all_wait(THREADS)
                before = len(one.ledger.acknowledged)
            one.ledger.wait_for(100)
        assert len(one.ledger.acknowledged) > before
        assert one.ledger.refusals == []
        assert one.ledger.unanswered == set()
        one.check()


@pytest.mark.parametrize("outage", [S3Server.away, S3Server.frozen])
def test_publishes_beyond_the_timeout_are_refused_with_the_reason(
    tmp_path: Path, s3: S3Server, outage: Callable[[S3Server], AbstractContextManager[None]]
) -> None:
    with channel(tmp_path, s3, {"channel.timeout.ms": "1s"}) as one:
        with one.publishers():
            one.ledger.wait_for(50)
            with outage(s3):
                wait_until(lambda: len(one.ledger.refusals) >= 2 * THREADS, 20, "refusals")
            one.ledger.wait_for(100)
        for refusal in one.ledger.refusals:
            assert refusal.status == 503
            assert one.store in refusal.text, "the answer names the store"
            assert refusal.seconds < 5.0
        assert max(refusal.seconds for refusal in one.ledger.refusals) > 0.5, "it waited before it gave up"
        one.check()


def test_a_full_backlog_refuses_at_once(tmp_path: Path, s3: S3Server) -> None:
    settings = {"channel.timeout.ms": "60s", "channel.backlog.bytes": "64KiB"}
    with channel(tmp_path, s3, settings) as one:
        with s3.away(), Rama(one.broker.http_url, one.key) as door, one.publishers(padding=8_000):
            wait_until(lambda: one.ledger.refusals, 20, "a refusal")
            begin = time.monotonic()
            status, answer = door.ask("PUT", f"/{CHANNEL}", {"id": "beyond", "_ts": now_ms()})
            assert (status, time.monotonic() - begin < 2.0) == (503, True), answer
            assert one.store in str(answer) and "channel.backlog.bytes" in str(answer)
            s3.start()
            one.ledger.wait_for(100)
        assert all(refusal.status == 503 and refusal.seconds < 2.0 for refusal in one.ledger.refusals)
        one.check()


def test_a_broker_killed_and_started_while_the_store_is_away(tmp_path: Path, s3: S3Server) -> None:
    with channel(tmp_path, s3, {"channel.timeout.ms": "60s"}) as one:
        with one.publishers():
            one.ledger.wait_for(50)
            with s3.away():
                one.ledger.wait_until_all_wait(THREADS)
                one.broker.kill()
                one.broker.start()
                wait_until(lambda: not one.ledger.in_flight, what="the end of the publishers")
        assert one.ledger.unanswered != set(), "some were in the log alone"
        with one.publishers():
            one.ledger.wait_for(50)
        assert one.ledger.refusals == []
        one.check()
