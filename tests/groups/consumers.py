"""What tests of the consumer protocol's machine share: topics that can change, a config, and members that obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_records import decode
from odradek.groups.consumer_types import Heartbeat, HeartbeatAnswer
from odradek.groups.group import Effects
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode

CONFIG = GroupConfig(
    group_min_session_timeout_ms=6_000,
    group_max_session_timeout_ms=1_800_000,
    group_initial_rebalance_delay_ms=100,
    group_max_size=1_000,
    offset_metadata_max_bytes=4_096,
    offsets_retention_minutes=10_080,
    offsets_retention_check_interval_ms=600_000,
    group_consumer_session_timeout_ms=45_000,
    group_consumer_heartbeat_interval_ms=5_000,
    group_consumer_max_size=100,
    group_consumer_assignors=("uniform", "range"),
)
SESSION_MS = CONFIG.group_consumer_session_timeout_ms
REBALANCE_MS = 20_000


class FakeTopics:
    """Topics that a test creates, grows and deletes; ids are numbered in the order of creation."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._numbers = count(1)
        self.generations: dict[TopicPartition, int] = {}  # of partitions that were made again
        self.gone: set[TopicPartition] = set()  # partitions that were deleted
        for name, partitions in partition_counts.items():
            self.set(name, partitions)

    def set(self, name: str, partitions: int) -> None:
        """Create a topic or let it grow."""
        self._counts[name] = partitions
        if name not in self._ids:
            self._ids[name] = next(self._numbers).to_bytes(16, "big")
        self.version += 1

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._counts[name], self._ids[name]
        self.version += 1

    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions each topic has."""
        return self._counts

    def gaps(self, name: str) -> frozenset[int]:
        """Numbers that have no partition."""
        return frozenset(where.partition for where in self.gone if where.topic == name)

    def generation(self, where: TopicPartition) -> int | None:
        """How often a partition was made again; None if it is not there."""
        if where in self.gone or where.topic not in self._counts:
            return None
        return self.generations.get(where, 0)

    def topic_id(self, name: str) -> bytes | None:
        """A topic's id."""
        return self._ids.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic with this id."""
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partitions(self, name: str, *numbers: int) -> Partitions:
        """Some partitions of a topic; all if none are named."""
        wanted = numbers or range(self._counts[name])
        return frozenset(TopicIdPartition(self._ids[name], number) for number in wanted)


class Driver:
    """A group whose records are durable at once, and are kept as they were written."""

    def __init__(self, topics: FakeTopics, config: GroupConfig = CONFIG) -> None:
        self.topics = topics
        self.config = config
        self.group = ConsumerGroup("readers", config, topics)
        self.now_ms = 1_000
        self.journal: list[NewRecord] = []
        self._tickets = count(1)

    def send(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Send a heartbeat; PeerError if it is refused."""
        ticket = next(self._tickets)
        answers = self.settle(self.group.heartbeat(beat, ticket, self.now_ms))
        (answer,) = [answer for answered, answer in answers if answered == ticket]
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def settle(self, effects: Effects, error: ErrorCode = ErrorCode.NONE) -> list[tuple[int, object]]:
        """Store what a call wants stored; gives all answers."""
        answers = list(effects.answers)
        if effects.records:
            if error is ErrorCode.NONE:
                self.journal += effects.records
            answers += self.group.stored(effects.token, error, self.now_ms).answers
        return answers

    def pass_time(self, ms: int) -> None:
        """Let time pass, attending to every deadline on the way."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.group.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.settle(self.group.on_timer(self.now_ms))
        self.now_ms = end_ms

    def reloaded(self) -> ConsumerGroup:
        """The group as a broker that starts now would load it."""
        group = ConsumerGroup(self.group.group_id, self.config, self.topics)
        for record in self.journal:
            assert record.key is not None
            group.apply(decode(record.key, record.value))
        group.resume(self.now_ms)
        return group


class Consumer:
    """A member that does as it is told: gives up what is not in its assignment, then takes what is new."""

    def __init__(self, driver: Driver, member_id: str, *topics: str, **said: str | None) -> None:
        self._driver = driver
        self._join = Heartbeat(
            member_id=member_id,
            member_epoch=0,
            instance_id=said.get("instance_id"),
            topic_names=topics,
            topic_regex=said.get("topic_regex"),
            server_assignor=said.get("server_assignor"),
            rebalance_timeout_ms=REBALANCE_MS,
            owned=frozenset(),
            client_id="test",
            client_host="/127.0.0.1",
        )
        self.member_id = member_id
        self.instance_id = said.get("instance_id")
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.assignment: Partitions = frozenset()  # as told last; owned after `obey`
        self._has_news = False  # an assignment that it has not obeyed yet
        self._reported: Partitions | None = None

    def join(self) -> HeartbeatAnswer:
        """Join, or join again after having been fenced."""
        self.owned = self.assignment = frozenset()
        return self._take(self._driver.send(self._join))

    def beat(self, **said: object) -> HeartbeatAnswer:
        """Send a heartbeat that says what is owned if that was not said yet."""
        owned = None if self._reported == self.owned else self.owned
        beat = Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._join.instance_id,
            owned=owned,
            client_id="test",
            client_host="/127.0.0.1",
        )
        self._reported = self.owned
        return self._take(self._driver.send(replace(beat, **said)))  # type: ignore[arg-type]

    def beat_in_full(self, **said: object) -> HeartbeatAnswer:
        """Send all there is to say, as after an answer that never came."""
        full = replace(self._join, member_epoch=self.epoch, owned=self.owned)
        return self._take(self._driver.send(replace(full, **said)))  # type: ignore[arg-type]

    def leave(self, epoch: int = -1) -> HeartbeatAnswer:
        """Leave for good, or (-2) for a while."""
        self.owned = self.assignment = frozenset()
        beat = Heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self._join.instance_id)
        return self._driver.send(beat)

    def obey(self) -> None:
        """Own what was assigned; the next heartbeat says so."""
        if self._has_news:
            self.owned = self.assignment
            self._reported = None
            self._has_news = False

    def live(self) -> HeartbeatAnswer:
        """Obey, say so, and obey the answer."""
        self.obey()
        answer = self.beat()
        self.obey()
        return answer

    def _take(self, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assignment = answer.assignment
            self._has_news = True
        return answer
