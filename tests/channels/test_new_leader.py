"""The leader of a channel is killed under load: the next one goes on with the uploads, and doubles or loses nothing."""

from __future__ import annotations

import random
from pathlib import Path

from confluent_kafka.admin import AdminClient, PartitionMetadata

from tests.channels.rama import (
    Ledger,
    Publishers,
    check_promises,
    check_stored,
    create_channel,
    now_ms,
    read_store,
    read_topic,
)
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until
from tests.s3 import S3Server

NODES = [1, 2, 3]
CHANNEL = "orders"
THREADS = 6


def partition_of(bootstrap: str) -> PartitionMetadata:
    """The channel's one partition, as a broker knows it."""
    topics = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10).topics
    return topics[CHANNEL].partitions[0]


def leader_of_all(cluster: ClusterProcesses) -> int:
    """Who leads the channel, when all brokers follow and all agree: then nothing is acknowledged without each."""
    leader = -1

    def all_agree() -> bool:
        nonlocal leader
        known = [partition_of(cluster.address(node, "kafka")) for node in NODES]
        leader = known[0].leader
        return all(set(each.isrs) == set(NODES) and each.leader == leader != -1 for each in known)

    wait_until(all_agree, 30, "a leader that all follow")
    return leader


def test_a_new_leader_goes_on_where_the_old_one_was_killed(tmp_path: Path, s3: S3Server) -> None:
    chance, ledger, store, start_ms = random.Random(3), Ledger(), s3.new_url(), now_ms()
    cluster = ClusterProcesses(tmp_path, LoopbackNetwork(), NODES, {"store.url": store})
    for broker in cluster.brokers.values():
        broker.environment |= s3.environment
    with cluster:
        urls = [f"http://{cluster.address(node, 'http')}" for node in NODES]
        key = create_channel(urls[0], CHANNEL, store, {"channel.slice.ms": "50"})
        with Publishers(urls, CHANNEL, key, ledger, threads=THREADS):
            for pause in (False, True):
                ledger.wait_for(chance.randint(100, 200))
                leader = leader_of_all(cluster)
                slow = cluster.brokers[next(node for node in NODES if node != leader)]
                if pause:  # what it does not have is not in the store either, and not acknowledged
                    slow.pause()
                    ledger.wait_until_all_wait(THREADS)
                cluster.kill([leader])
                slow.resume()
                check_stored(ledger.promises(), read_store(s3, store, CHANNEL, start_ms))
                ledger.wait_for(50)
                cluster.restart([leader])
        assert {refusal.status for refusal in ledger.refusals} <= {503}, ledger.refusals
        wait_until(lambda: partition_of(cluster.bootstrap).leader != -1, 20, "a leader")
        topic = read_topic(cluster.bootstrap, CHANNEL)
        assert set(cluster.stop().values()) == {0}
    check_promises(ledger, read_store(s3, store, CHANNEL, start_ms), topic)
