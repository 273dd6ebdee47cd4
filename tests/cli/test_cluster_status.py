"""What is said of a cluster, given what its brokers have told."""

from __future__ import annotations

from odradek.cli.cluster_status import (
    DEGRADED,
    HEALTHY,
    UNAVAILABLE,
    Situation,
    condition_of,
    judge,
    moving_text,
    voters_text,
)
from odradek.client.address import Address
from odradek.client.admin_types import BrokerInfo, Move, QuorumDescription, QuorumReplica
from odradek.client.cluster import PartitionInfo, TopicInfo

NOW_MS = 1_700_000_000_000


def broker(id_: int, *, is_fenced: bool = False) -> BrokerInfo:
    return BrokerInfo(id_, Address("127.0.0.1", 19091 + id_), None, is_fenced)


def view(
    leader: int = 1, *, epoch: int = 4, voters: tuple[int, ...] = (1, 2, 3), ends: dict[int, int] | None = None
) -> QuorumDescription:
    """The quorum as somebody sees it; only the ends that are given are known to it."""
    known = ends or {}
    replicas = [QuorumReplica(id_, known.get(id_, -1), NOW_MS if id_ in known else -1, -1) for id_ in voters]
    addresses = {id_: Address("127.0.0.1", 8000 + id_) for id_ in voters}
    return QuorumDescription(leader, epoch, 100, replicas, [], addresses)


def topic(name: str, *partitions: PartitionInfo) -> TopicInfo:
    return TopicInfo(name, bytes(16), {info.partition: info for info in partitions})


def partition(
    index: int, leader: int, in_sync: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionInfo:
    return PartitionInfo(index, leader, 0, replicas, in_sync)


def cluster() -> Situation:
    """Three brokers, and nothing wrong."""
    leads = view(ends={1: 120, 2: 120, 3: 115})
    orders = topic("orders", partition(0, 1, (1, 2, 3)), partition(1, 2, (1, 2, 3), (2, 3, 1)))
    return Situation("c", [broker(1), broker(2), broker(3)], [orders], {1: leads, 2: view(), 3: view()})


def test_a_cluster_with_everything_in_place_is_healthy() -> None:
    found = cluster()
    assert judge(found) == (HEALTHY, [])
    assert found.controller_id == 1
    assert [found.lag_of(id_) for id_ in (1, 2, 3)] == [0, 0, 5]
    assert [found.role_of(id_) for id_ in (1, 2, 3, 4)] == ["leader", "voter", "voter", "observer"]


def test_the_leaders_own_view_of_the_newest_epoch_counts() -> None:
    found = cluster()
    deposed = view(3, epoch=2, ends={3: 7})  # it has not heard of it yet
    found.views = {3: deposed} | {id_: found.views[id_] for id_ in (1, 2)}
    assert (found.controller_id, found.lag_of(3)) == (1, 5)


def test_a_fenced_broker_and_missing_copies_are_told_with_what_to_do() -> None:
    found = cluster()
    found.brokers[2] = broker(3, is_fenced=True)
    found.topics.append(topic("users", partition(0, 1, (1, 2))))
    del found.views[3]
    state, (fenced, missing) = judge(found)
    assert state == DEGRADED
    assert "broker 3 at 127.0.0.1:19094 is fenced" in fenced and "odradek cluster decommission 3" in fenced
    assert "1 partition under-replicated: users-0;" in missing
    assert found.state_of(found.brokers[2]) == "fenced"


def test_a_partition_without_a_leader_is_worse_than_a_missing_copy() -> None:
    found = cluster()
    found.topics.append(topic("users", *(partition(index, -1, (3,)) for index in range(7))))
    state, problems = judge(found)
    assert state == UNAVAILABLE
    assert "7 partitions without a leader: users-0, users-1, users-2, users-3, users-4 and 2 more" in problems[0]
    assert found.under_replicated == {}, "they are counted once"


def test_no_controller_is_told_first() -> None:
    found = cluster()
    found.views = {id_: view(-1) for id_ in (1, 2)}
    found.silent[3] = "no answer within 3 s"
    state, problems = judge(found)
    assert state == UNAVAILABLE
    assert "no active controller" in problems[0] and "majority" in problems[0]
    assert "broker 3 counts as alive but does not answer: no answer within 3 s" in problems


def test_voter_lists_that_differ_are_quoted() -> None:
    found = cluster()
    found.views[3] = view(voters=(1, 3))
    state, (problem,) = judge(found)
    assert state == DEGRADED
    assert "brokers 1, 2 have 1@127.0.0.1:8001,2@127.0.0.1:8002,3@127.0.0.1:8003" in problem
    assert "broker 3 has 1@127.0.0.1:8001,3@127.0.0.1:8003" in problem and "--voters" in problem


def test_one_that_knows_no_leader_is_named() -> None:
    found = cluster()
    found.views[2] = view(-1)
    assert judge(found) == (
        DEGRADED,
        ["broker 2 has no leader of the quorum, while others follow broker 1"],
    )


def test_a_voter_that_does_not_follow_is_named() -> None:
    found = cluster()
    found.views[1] = view(ends={1: 120, 2: 120})
    state, (problem,) = judge(found)
    assert (state, problem) == (DEGRADED, "voter 3 does not follow the quorum's leader: is it running?")


def test_a_cluster_that_tells_of_no_quorum_can_be_healthy() -> None:
    found = cluster()
    found.views.clear()
    assert judge(found) == (HEALTHY, [])
    assert (found.controller_id, found.lag_of(1), found.role_of(1)) == (-1, None, "-")


def test_a_partition_is_described_in_a_word() -> None:
    assert condition_of(partition(0, 1, (1, 2, 3))) == "ok"
    assert condition_of(partition(0, 2, (1, 2, 3))) == "not-preferred"
    assert condition_of(partition(0, 2, (2, 3))) == "under-replicated"
    assert condition_of(partition(0, -1, (3,))) == "offline"
    assert condition_of(PartitionInfo(0, -1, 0, (), ())) == "offline"
    assert moving_text(Move((4, 2, 1), (4,), (1,))) == "+4 -1"


def test_voters_without_addresses_are_numbers() -> None:
    assert (
        voters_text(QuorumDescription(1, 1, 1, [QuorumReplica(3, 0, 0, 0), QuorumReplica(1, 0, 0, 0)], [], {})) == "1,3"
    )
