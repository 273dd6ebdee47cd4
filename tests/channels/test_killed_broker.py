"""A broker killed with SIGKILL while it uploads: each acknowledged message is in the store, and there once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.channels.rama import (
    Ledger,
    Publishers,
    check_promises,
    check_stored,
    create_channel,
    end,
    now_ms,
    read_store,
    read_topic,
)
from tests.counting import CountingProxy
from tests.process import BrokerProcess, wait_until
from tests.s3 import S3Server

ROUNDS = 5
MESSAGES_A_ROUND = 300
CHANNEL = "orders"
SETTINGS = {"channel.slice.ms": "50"}


@pytest.mark.parametrize(("seed", "fifo"), [(0, False), (1, False), (2, True)])
def test_a_broker_killed_while_it_uploads_keeps_its_promises(
    tmp_path: Path, s3: S3Server, seed: int, fifo: bool
) -> None:
    chance, ledger, store, start_ms = random.Random(seed), Ledger(), s3.new_url(), now_ms()
    with CountingProxy(s3.endpoint) as proxy:
        broker = BrokerProcess(tmp_path / "data", http=True, environment=s3.environment_of(proxy.endpoint)).start()
        try:
            key = create_channel(broker.http_url, CHANNEL, store, SETTINGS, fifo=fifo)
            for round_ in range(ROUNDS):
                with Publishers(broker.http_url, CHANNEL, key, ledger, seed=seed * 100 + round_):
                    kill_among_uploads(broker, proxy, ledger, chance)
                check_stored(ledger.acknowledged, read_store(s3, store, CHANNEL, start_ms))
                broker.start()
            with Publishers(broker.http_url, CHANNEL, key, ledger):
                ledger.wait_for(100)
            topic = read_topic(broker.bootstrap, CHANNEL)
            assert broker.stop() == 0
        finally:
            end(broker)
    assert len(ledger.acknowledged) > ROUNDS * MESSAGES_A_ROUND // 2
    assert ledger.refusals == []
    stored = read_store(s3, store, CHANNEL, start_ms)
    check_promises(ledger, stored, topic)
    assert not fifo or list(stored) == sorted(stored), "by slice and object they are in order"


def kill_among_uploads(broker: BrokerProcess, proxy: CountingProxy, ledger: Ledger, chance: random.Random) -> None:
    """Kill the broker at some moment; half of the time objects are in the store of which it has not heard."""
    ledger.wait_for(chance.randint(MESSAGES_A_ROUND // 2, MESSAGES_A_ROUND))
    if chance.random() < 0.5:
        broker.kill()
        return
    with proxy.silent():
        unheard = proxy.unheard
        wait_until(lambda: proxy.unheard > unheard, 10, "an upload")
        broker.kill()
