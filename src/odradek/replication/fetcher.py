"""Followers pull: keeps the copies of all partitions that this broker follows up to date.

One task and one connection a leader (`link.py`), however many partitions. Who leads what is told by the owner; nothing
here decides it. After `unfollow` nothing touches the partition's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.client.address import Address
from odradek.client.connection import connect
from odradek.log.flusher import GroupFlusher
from odradek.model import TopicPartition
from odradek.replication.config import ReplicationConfig
from odradek.replication.following import Followed, Following
from odradek.replication.link import Connect, LeaderLink, Shared
from odradek.replication.throttle import Throttle


class ReplicaFetchers:
    """All that this broker follows. Made and used on one event loop."""

    def __init__(
        self,
        config: ReplicationConfig,
        node_id: int,
        flusher: GroupFlusher,
        *,
        client_id: str,
        broker_epoch: Callable[[], int],
        failed: Callable[[Exception], None],
        connect: Connect = connect,
    ) -> None:
        """`failed` is told of a disk that fails: what it holds is in doubt, and the broker must stop."""
        throttle = Throttle(config.replication_throttle_bytes)
        self._shared = Shared(config, node_id, client_id, broker_epoch, flusher, connect, failed, throttle)
        self._links: dict[tuple[int, Address], LeaderLink] = {}
        self._followed: dict[TopicPartition, tuple[LeaderLink, Following]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, replica: Followed, leader_id: int, address: tuple[str, int]) -> None:
        """Copy a partition from its leader at an address; what was followed before under its name is left."""
        place = (leader_id, Address(*address))
        link, following = self._followed.get(replica.tp, (None, None))
        is_same = following is not None and following.replica is replica and following.is_of_now
        if is_same and link is not None and link is self._links.get(place):
            return
        left = self._leave(replica.tp)
        link = self._links.get(place)
        if link is None:
            link = self._links[place] = LeaderLink(*place, self._shared)
        following = Following(replica)
        self._followed[replica.tp] = (link, following)
        link.add(following)
        self._end_idle(left)

    def unfollow(self, tp: TopicPartition) -> None:
        """Leave a partition alone; fine if it was not followed."""
        self._end_idle(self._leave(tp))

    def configure(self, config: ReplicationConfig) -> None:
        """Follow a change of the settings, from the next request on."""
        self._shared.config = config
        self._shared.throttle.rate = config.replication_throttle_bytes

    def leader_of(self, tp: TopicPartition) -> int | None:
        """Whom a partition is followed from; None if it is not."""
        link, _ = self._followed.get(tp, (None, None))
        return None if link is None else link.leader_id

    async def close(self) -> None:
        """Stop following, and wait until nothing is under way."""
        self._followed.clear()
        for link in list(self._links.values()):
            self._end(link)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _leave(self, tp: TopicPartition) -> LeaderLink | None:
        link, following = self._followed.pop(tp, (None, None))
        if link is not None and following is not None:
            link.remove(following)
        return link

    def _end_idle(self, link: LeaderLink | None) -> None:
        if link is not None and not len(link):
            self._end(link)

    def _end(self, link: LeaderLink) -> None:
        self._links.pop((link.leader_id, link.address), None)
        task = link.stop()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
