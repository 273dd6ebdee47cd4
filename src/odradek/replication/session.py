"""The follower's side of an incremental fetch session (KIP-227): only what has changed since the last request is named.

Pure bookkeeping. A leader that gives no session, or has lost it, is told everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.replication.config import ReplicationConfig
from odradek.replication.following import Following, PartitionKey
from odradek.wire.messages import fetch

NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1


class FollowerSession:
    """What one leader has been asked for, and what it must be told next."""

    def __init__(self) -> None:
        self.known: dict[PartitionKey, Following] = {}  # as the leader has it after the last request
        self.changed: dict[PartitionKey, Following] = {}  # new ones, and those whose position has moved
        self._forgotten: set[PartitionKey] = set()
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to ask for."""
        return not self.changed and len(self.known) == len(self._forgotten)

    def want(self, following: Following) -> None:
        """Ask for a partition from its present end on."""
        self.changed[following.key] = following

    def forget(self, key: PartitionKey) -> None:
        """Ask for a partition no longer."""
        self.changed.pop(key, None)
        if key in self.known:
            self._forgotten.add(key)

    def request(self, config: ReplicationConfig) -> fetch.Request:
        """The next request, with what has changed; at the beginning that is everything."""
        gone = [key for key in self._forgotten if key not in self.changed]
        for key in gone:
            del self.known[key]
        self._forgotten.clear()
        self.known.update(self.changed)
        request = fetch.Request(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                fetch.RequestTopic(topic_id=topic_id, partitions=[each.position(config) for each in followings])
                for topic_id, followings in _by_topic(self.changed.values())
            ],
            forgotten_topics_data=[
                fetch.RequestForgottenTopic(topic_id=topic_id, partitions=list(n)) for topic_id, n in _numbers(gone)
            ],
        )
        self.changed = {}
        return request

    def answered(self, session_id: int) -> None:
        """The leader took the last request, in this session."""
        self._id = session_id
        self._epoch = self._epoch % EPOCH_MAX + 1

    @property
    def is_kept(self) -> bool:
        """Whether the leader remembers what it was asked for."""
        return self._id != NO_SESSION

    def restart(self) -> None:
        """Begin again with all partitions, as if all were new. The old session's number is not told: another life of
        the leader may have given it to somebody else.
        """
        unchanged = {
            key: following
            for key, following in self.known.items()
            if key not in self.changed and key not in self._forgotten
        }
        self.changed = unchanged | self.changed  # those that had news go last
        self.known = {}
        self._forgotten.clear()
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH


def _by_topic(followings: Iterable[Following]) -> Iterator[tuple[bytes, list[Following]]]:
    topics: dict[bytes, list[Following]] = {}
    for following in followings:
        topics.setdefault(following.key[0], []).append(following)
    return iter(topics.items())


def _numbers(keys: Iterable[PartitionKey]) -> Iterator[tuple[bytes, list[int]]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return iter(topics.items())
