"""The commits of a stream: the latest wins, a failure is told, the last one is waited for."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.stream_commits import StreamCommits
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import asynchronous, until


class Desk:
    """Takes commits when the test lets it."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.may_go = asyncio.Event()
        self.error: PeerError | None = None
        self.idle: list[StreamCommits] = []

    async def commit(self, offset: int) -> None:
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        self.committed.append(offset)


@asynchronous
async def test_of_the_commits_that_wait_only_the_latest_is_done() -> None:
    desk = Desk()
    commits = StreamCommits(desk.commit, desk.idle.append)
    commits.note(1)
    for offset in range(2, 100):
        commits.note(offset)
    desk.may_go.set()
    await commits.settle()
    assert desk.committed[-1] == 99
    assert len(desk.committed) <= 2


@asynchronous
async def test_a_commit_that_failed_is_told_with_the_next_one() -> None:
    desk = Desk()
    desk.error = PeerError(ErrorCode.GROUP_ID_NOT_FOUND, "not registered")
    desk.may_go.set()
    commits = StreamCommits(desk.commit, desk.idle.append)
    commits.note(1)
    with pytest.raises(PeerError, match="not registered"):
        await commits.settle()
    with pytest.raises(PeerError, match="not registered"):
        commits.note(2)
    assert desk.committed == []


@asynchronous
async def test_a_stream_that_ends_lets_its_last_commit_be_done() -> None:
    desk = Desk()
    commits = StreamCommits(desk.commit, desk.idle.append)
    commits.note(7)
    commits.let_go()
    assert desk.idle == []
    desk.may_go.set()
    await until(lambda: desk.idle == [commits])
    assert desk.committed == [7]


@asynchronous
async def test_a_commit_that_comes_when_the_last_one_has_just_ended_is_done_too() -> None:
    committed: list[int] = []

    async def commit(offset: int) -> None:
        committed.append(offset)
        if offset == 1:
            # It runs when this task has ended, and before those hear of it who wait for its end.
            asyncio.get_running_loop().call_soon(commits.note, 2)

    commits = StreamCommits(commit, Desk().idle.append)
    commits.note(1)
    await until(lambda: committed == [1, 2])
    await commits.settle()


@asynchronous
async def test_a_stream_without_commits_is_idle_at_once() -> None:
    desk = Desk()
    commits = StreamCommits(desk.commit, desk.idle.append)
    await commits.settle()
    commits.let_go()
    assert desk.idle == [commits]
