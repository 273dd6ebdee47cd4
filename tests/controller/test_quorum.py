"""The quorum's driver: alone in a moment, three that agree, a disk that fails, and SSKafka's plain requests."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from odradek.controller.files import list_snapshots
from odradek.controller.image import MetadataRecord
from odradek.controller.quorum_errors import LostError, NotLeaderError, QuorumStoppedError
from odradek.wire.errors import PeerError
from tests.client.support import asynchronous, tick, until
from tests.controller.support import ELECTION_MS, FETCH_MS, Member, Net, leader_of, record

VOTERS = (1, 2, 3)


@asynccontextmanager
async def alone(**changes: Any) -> AsyncIterator[Member]:
    member = Member(Net(), 1, [], **changes)
    await member.start()
    await until(lambda: "elected" in member.recorder.said)
    try:
        yield member
    finally:
        await member.quorum.close()


@asynccontextmanager
async def three(**changes: Any) -> AsyncIterator[list[Member]]:
    net = Net()
    members = [Member(net, node_id, VOTERS, **changes) for node_id in VOTERS]
    for member in members:
        await member.start()
    try:
        yield members
    finally:
        for member in members:
            await member.stop(resign=False)


async def led(members: list[Member]) -> Member:
    """Wait for a leader that all follow."""
    await until(lambda: leader_of(members) is not None)
    leader = leader_of(members)
    assert leader is not None
    return leader


@asynchronous
async def test_a_lone_broker_leads_itself_in_a_moment_and_needs_no_network() -> None:
    began = time.monotonic()
    async with alone() as member:
        assert time.monotonic() - began < 1.0
        quorum = member.quorum
        assert (quorum.role, quorum.leader_id, quorum.config.is_alone) == ("leader", 1, True)
        assert await quorum.propose([record(1), record(2)]) == quorum.end_offset == quorum.applied_offset == 3
        assert member.recorder.numbers == [1, 2]
        assert member.net.sent == []


@asynchronous
async def test_what_was_answered_survives_a_power_loss() -> None:
    for seed in range(5):
        member = Member(Net(), 1, [])
        quorum = await member.start()
        await until(lambda quorum=quorum: quorum.role == "leader")  # type: ignore[misc]
        for number in range(5):
            await quorum.propose([record(number)])
        member.disk.crash(Random(seed))
        await quorum.close()
        quorum = await member.start()
        await until(lambda member=member: member.recorder.numbers == [0, 1, 2, 3, 4])  # type: ignore[misc]
        await quorum.close()


@asynchronous
async def test_changes_that_come_together_share_a_flush() -> None:
    async with alone() as member:
        flushes: list[str] = []
        maybe_fail = member.disk.maybe_fail

        def count(action: str, path: str) -> None:
            if action == "flush" and path.endswith(".log"):
                flushes.append(path)
            maybe_fail(action, path)

        member.disk.maybe_fail = count  # type: ignore[method-assign]
        ends = await asyncio.gather(*(member.quorum.propose([record(number)]) for number in range(50)))
        assert list(ends) == list(range(2, 52))
        assert len(flushes) <= 3


@asynchronous
async def test_a_disk_that_fails_is_told_and_nothing_leaves_afterwards() -> None:
    async with three() as members:
        leader = await led(members)
        leader.disk.fail_next("flush", errno.EIO, ending=".log")
        with pytest.raises(LostError):
            await leader.quorum.propose([record(1)])
        assert len(leader.failures) == 1
        sent = sum(1 for origin, _, _ in leader.net.sent if origin == leader.node_id)
        with pytest.raises(QuorumStoppedError):
            await leader.quorum.receive("voteRequest", {})
        with pytest.raises(NotLeaderError):
            await leader.quorum.propose([record(2)])
        others = [member for member in members if member is not leader]
        await led(others)
        assert sum(1 for origin, _, _ in leader.net.sent if origin == leader.node_id) == sent


@asynchronous
async def test_a_snapshot_that_cannot_be_written_stops_it_as_well() -> None:
    async with three(snapshot_bytes=1) as members:
        await until(lambda: leader_of(members) is not None or any(member.failures for member in members))
        victim = members[0]
        victim.disk.fail_next("write", errno.ENOSPC, ending=".checkpoint")
        while not victim.failures:
            others = [member for member in members if member.quorum.role == "leader"]
            if others:
                with suppress(LostError, NotLeaderError):
                    await others[0].quorum.propose([record(1)])
            await tick()
        sent = sum(1 for origin, _, _ in victim.net.sent if origin == victim.node_id)
        await led(members[1:])
        loop = asyncio.get_running_loop()
        patience = loop.time() + (FETCH_MS + 2 * ELECTION_MS) / 1000  # then it would have stood for election
        await until(lambda: loop.time() > patience)
        assert sum(1 for origin, _, _ in victim.net.sent if origin == victim.node_id) == sent


@asynchronous
async def test_three_agree_and_each_applies_the_same() -> None:
    async with three() as members:
        leader = await led(members)
        for number in range(10):
            await leader.quorum.propose([record(number)])
        await until(lambda: all(member.recorder.numbers == list(range(10)) for member in members))
        follower = next(member for member in members if member is not leader)
        with pytest.raises(NotLeaderError, match=f"leader is {leader.node_id}, can't accept"):
            await follower.quorum.propose([record(11)])
        described = leader.quorum.describe()
        assert described["leader_id"] == leader.node_id
        assert {replica["id"] for replica in described["replicas"]} == set(VOTERS) - {leader.node_id}
        assert json.dumps(described)


@asynchronous
async def test_a_leader_that_dies_is_replaced_and_one_that_returns_causes_no_election() -> None:
    async with three() as members:
        leader = await led(members)
        await leader.quorum.propose([record(1)])
        await leader.crash()
        others = [member for member in members if member is not leader]
        heir = await led(others)
        await heir.quorum.propose([record(2)])
        epoch = heir.quorum.epoch
        await leader.start()
        await until(lambda: leader.recorder.numbers == [1, 2])
        assert (await led(members)) is heir
        assert heir.quorum.epoch == epoch


@asynchronous
async def test_a_leader_that_is_cut_off_never_confirms_and_says_that_it_does_not_know() -> None:
    async with three() as members:
        leader = await led(members)
        others = [member for member in members if member is not leader]
        leader.net.isolate(leader.node_id, [member.node_id for member in others])
        with pytest.raises(LostError):
            await leader.quorum.propose([record(1)])
        assert leader.recorder.numbers == []
        heir = await led(others)
        await heir.quorum.propose([record(2)])
        leader.net.heal()
        await until(lambda: all(member.recorder.numbers == [2] for member in members))
        assert "deposed" in leader.recorder.said


@asynchronous
async def test_a_leader_that_leaves_says_so() -> None:
    async with three(fetch_timeout_ms=5_000) as members:
        leader = await led(members)
        await leader.stop()
        assert any(name == "endQuorumEpoch" for _, _, name in leader.net.sent)
        await led([member for member in members if member is not leader])


@asynchronous
async def test_an_observer_follows_without_a_vote() -> None:
    async with three() as members:
        leader = await led(members)
        await leader.quorum.propose([record(1)])
        observer = Member(leader.net, 9, VOTERS)
        await observer.start()
        await until(lambda: observer.recorder.numbers == [1])
        assert observer.quorum.role == "observer"
        await observer.stop()


@asynchronous
async def test_a_snapshot_cuts_the_log_and_serves_whoever_fell_behind() -> None:
    async with three(snapshot_bytes=200) as members:
        leader = await led(members)
        late = next(member for member in members if member is not leader)
        await late.crash()
        for number in range(40):
            await leader.quorum.propose([record(number)])
        await until(lambda: leader.quorum.raft.log_start.end_offset > 20)
        assert 1 <= len(list_snapshots(leader.disk, "d/metadata")) <= 2
        await late.start()
        await until(lambda: late.recorder.numbers == list(range(40)))
        assert "loaded" in late.recorder.said
        await late.stop()
        await late.start()
        await until(lambda: late.recorder.numbers == list(range(40)))


@asynchronous
async def test_a_snapshot_is_taken_when_its_time_has_come() -> None:
    async with alone(snapshot_interval_ms=0) as member:
        await member.quorum.propose([record(1)])
        await until(lambda: len(list_snapshots(member.disk, "d/metadata")) > 0)


@asynchronous
async def test_the_cluster_is_remembered_beside_the_votes_and_another_is_refused() -> None:
    async with alone() as member:
        await member.quorum.propose([MetadataRecord("cluster", {"cluster_id": "ours"})])
        assert member.quorum.cluster_id == "ours"
        await until(lambda: b'"cluster_id": "ours"' in (member.disk.read_file("d/metadata/quorum-state") or b""))
        body = {"leader_id": 2, "leader_epoch": 9, "cluster_id": "theirs"}
        with pytest.raises(PeerError, match="INCONSISTENT_CLUSTER_ID"):
            await member.quorum.receive("beginQuorumEpoch", body)


@asynchronous
async def test_voters_that_differ_are_named() -> None:
    async with alone() as member:
        body = {"leader_id": 2, "leader_epoch": 0, "cluster_id": "", "voters": ["1@:0", "2@b:1"], "sender_id": 2}
        await member.quorum.receive("beginQuorumEpoch", body)
        assert member.quorum.describe()["differing_voters"] == {"2": ["1@:0", "2@b:1"]}


@asynchronous
async def test_the_documents_votes_hold_over_a_restart() -> None:
    member = Member(Net(), 1, (1, 2, 3, 4, 5), election_timeout_ms=60_000)
    body = {"candidate_epoch": 1, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": "3"}
    quorum = await member.start()
    assert await quorum.receive("voteRequest", body) == {"granted": True}
    assert await quorum.receive("voteRequest", body) == {"granted": True}
    await member.crash()
    quorum = await member.start()
    refused = {"granted": False, "leader_epoch": 0, "leader_id": -1}
    assert await quorum.receive("voteRequest", {**body, "candidate_id": "4"}) == refused
    assert await quorum.receive("voteRequest", {**body, "candidate_id": "4", "candidate_epoch": 2}) == {"granted": True}
    assert await quorum.receive("beginQuorumEpoch", {"leader_epoch": 2, "leader_id": "4"}) == {"accepted": True}
    assert quorum.leader_id == 4
    state = json.loads(member.disk.read_file("d/metadata/quorum-state") or b"")
    assert (state["leader_id"], state["leader_epoch"]) == (4, 2)
    with pytest.raises(NotLeaderError, match="leader is 4, can't accept"):
        await quorum.receive("fetchMetadata", {"last_offset": -1, "last_offset_epoch": -1, "max_batch_size": 100})
    await member.stop()


@asynchronous
async def test_a_vote_that_is_cast_while_the_cluster_is_learned_is_kept() -> None:
    member = Member(Net(), 1, (1, 2, 3), election_timeout_ms=60_000)
    body = {"candidate_epoch": 1, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": "3"}
    quorum = await member.start()
    quorum._join("c")
    assert await quorum.receive("voteRequest", body) == {"granted": True}
    state = json.loads(member.disk.read_file("d/metadata/quorum-state") or b"")
    assert (state["voted_id"], state["epoch"], state["cluster_id"]) == (3, 1, "c")
    await member.stop()


@asynchronous
async def test_a_plain_fetch_is_answered_at_once_with_what_is_committed() -> None:
    async with alone() as member:
        await member.quorum.propose([record(1), record(2)])
        plain = {"last_offset": 0, "last_offset_epoch": 1, "max_batch_size": 1}
        answer = await member.quorum.receive("fetchMetadata", plain)
        assert answer == {"records": [{"offset": 1, "epoch": 1, "action": "producer-ids", "payload": {"next": 1}}]}
        at_end = {"last_offset": 2, "last_offset_epoch": 1, "max_batch_size": 100}
        assert await member.quorum.receive("fetchMetadata", at_end) == {"records": []}
        parted = {"last_offset": 2, "last_offset_epoch": 0, "max_batch_size": 100}
        assert await member.quorum.receive("fetchMetadata", parted) == {"diverging_epoch": -1, "diverging_offset": 0}
        ahead = {"last_offset": 7, "last_offset_epoch": 1, "max_batch_size": 100}
        assert await member.quorum.receive("fetchMetadata", ahead) == {"diverging_epoch": 1, "diverging_offset": 3}


@asynchronous
async def test_a_plain_fetch_counts_as_an_acknowledgement_only_for_a_follower() -> None:
    async with three() as members:
        leader = await led(members)
        others = [member for member in members if member is not leader]
        leader.net.isolate(leader.node_id, [member.node_id for member in others])
        change = asyncio.create_task(leader.quorum.propose([record(1)]))
        await until(lambda: leader.quorum.end_offset > leader.quorum.high_watermark)
        body: dict[str, Any] = {
            "last_offset": leader.quorum.end_offset - 1, "last_offset_epoch": leader.quorum.epoch, "max_batch_size": 9,
        }  # fmt: skip
        before = {"last_offset": leader.quorum.high_watermark - 1, "last_offset_epoch": -1, "max_batch_size": 9}
        assert await leader.quorum.receive("fetchMetadata", before) == {"records": []}  # what is not committed
        assert await leader.quorum.receive("fetchMetadata", body) == {"records": []}
        assert not change.done()
        await leader.quorum.receive("fetchMetadata", {**body, "follower_broker_id": str(others[0].node_id)})
        await change


@asynchronous
async def test_closing_tells_everybody_who_waits() -> None:
    async with three() as members:
        leader = await led(members)
        leader.net.isolate(leader.node_id, VOTERS)
        waiting = asyncio.create_task(leader.quorum.propose([record(1)]))
        await until(lambda: leader.quorum.end_offset > leader.quorum.high_watermark)
        await leader.stop(resign=False)
        with pytest.raises(LostError):
            await waiting
