"""Groups of up to eight members under any order of events keep their promises, and settle when left alone.

The members obey late, lose answers, crash, leave and come back; topics grow, come and go; the broker restarts.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.groups.assignors import TopicIdPartition
from odradek.groups.consumer_types import GroupState
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.consumers import REBALANCE_MS, SESSION_MS, Consumer, Driver, FakeTopics

MEMBERS_MAX = 8
ROUNDS_MAX = 6  # of heartbeats by everybody until a group that is left alone has settled
REJOIN = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
NAMES = ("t", "u", "v")
SUBSCRIPTIONS = [("t",), ("t", "u"), ("t", "u", "v")]
PICK = st.integers(0, MEMBERS_MAX - 1)


class ConsumerGroups(RuleBasedStateMachine):
    """Real members against the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics()
        self.driver = Driver(self.topics)
        self.alive: dict[str, Consumer] = {}
        self.subscriptions: dict[str, tuple[str, ...]] = {}
        self.away: list[tuple[str, tuple[str, ...]]] = []  # static members that left for a while
        self.joined = 0
        self.epochs = (0, 0)
        self.member_epochs: dict[str, int] = {}

    @initialize(partitions=st.integers(1, 12), members=st.integers(0, 3), topics=st.sampled_from(SUBSCRIPTIONS))
    def begin(self, partitions: int, members: int, topics: tuple[str, ...]) -> None:
        self.topics.set("t", partitions)
        for _ in range(members):
            self.join(topics, False, None)
        self.settle()

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            for consumer in self.alive.values():
                consumer.obey()
                self.beat(consumer)
                consumer.obey()

    def member(self, pick: int) -> Consumer:
        return list(self.alive.values())[pick % len(self.alive)]

    def beat(self, consumer: Consumer) -> None:
        """A heartbeat that is answered; who is fenced gives up everything and joins again."""
        try:
            consumer.beat()
        except PeerError as error:
            assert error.code in REJOIN, error
            consumer.join()

    # What members do

    @precondition(lambda self: len(self.alive) < MEMBERS_MAX)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS), is_static=st.booleans(), regex=st.sampled_from([None, "u|x.*"]))
    def join(self, topics: tuple[str, ...], is_static: bool, regex: str | None) -> None:
        self.joined += 1
        self.enter(topics, f"i{self.joined}" if is_static else None, regex)

    def enter(self, topics: tuple[str, ...], instance_id: str | None, regex: str | None = None) -> None:
        consumer = Consumer(
            self.driver,
            f"m{self.joined}",
            *topics,
            topic_regex=regex,
            instance_id=instance_id,
            server_assignor="uniform",
        )
        consumer.join()
        self.alive[consumer.member_id] = consumer
        self.subscriptions[consumer.member_id] = tuple(sorted({*topics, "u"} if regex else topics))

    @precondition(lambda self: self.alive)
    @rule(pick=PICK, times=st.integers(1, 3), then_obeys=st.booleans())
    def send_heartbeats(self, pick: int, times: int, then_obeys: bool) -> None:
        for _ in range(times):
            self.beat(self.member(pick))
        if then_obeys:
            self.member(pick).obey()

    @precondition(lambda self: self.alive)
    @rule(pick=PICK)
    def obey(self, pick: int) -> None:
        self.member(pick).obey()

    @precondition(lambda self: self.alive)
    @rule(pick=PICK)
    def lose_an_answer(self, pick: int) -> None:
        consumer = self.member(pick)
        epoch, assignment = consumer.epoch, consumer.owned
        try:
            consumer.beat()
        except PeerError as error:
            assert error.code in REJOIN
        consumer.epoch, consumer.assignment = epoch, assignment
        try:
            consumer.beat_in_full()
        except PeerError as error:
            assert error.code in REJOIN
            consumer.join()

    @precondition(lambda self: self.alive)
    @rule(pick=PICK)
    def lose_the_answer_to_a_join(self, pick: int) -> None:
        self.member(pick).join()

    @precondition(lambda self: self.alive)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        consumer = self.member(pick)
        del self.alive[consumer.member_id]
        try:
            consumer.leave()
        except PeerError as error:
            assert error.code is ErrorCode.UNKNOWN_MEMBER_ID

    @precondition(lambda self: self.alive)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        del self.alive[self.member(pick).member_id]

    @precondition(lambda self: any(consumer.instance_id for consumer in self.alive.values()))
    @rule(pick=PICK)
    def leave_for_a_while(self, pick: int) -> None:
        static = [consumer for consumer in self.alive.values() if consumer.instance_id]
        consumer = static[pick % len(static)]
        del self.alive[consumer.member_id]
        self.away.append((consumer.instance_id or "", self.subscriptions[consumer.member_id]))
        try:
            consumer.leave(-2)
        except PeerError as error:
            assert error.code is ErrorCode.UNKNOWN_MEMBER_ID

    @precondition(lambda self: self.away and len(self.alive) < MEMBERS_MAX)
    @rule(pick=PICK)
    def come_back(self, pick: int) -> None:
        instance_id, topics = self.away.pop(pick % len(self.away))
        self.joined += 1
        self.enter(topics, instance_id)

    # What happens around them

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 5))
    def grow(self, name: str, more: int) -> None:
        self.topics.set(name, self.topics.partition_counts().get(name, 0) + more)

    @precondition(lambda self: "v" in self.topics.partition_counts())
    @rule()
    def delete(self) -> None:
        self.topics.delete("v")

    @rule(ms=st.sampled_from([1_000, REBALANCE_MS, SESSION_MS]))
    def wait(self, ms: int) -> None:
        """Let time pass while those alive send heartbeats, but give up nothing."""
        for _ in range(4):
            self.driver.pass_time(ms // 4)
            for consumer in self.alive.values():
                self.beat(consumer)

    @rule()
    def restart(self) -> None:
        self.driver.group = self.driver.reloaded()

    # What must hold

    @invariant()
    def no_partition_belongs_to_two(self) -> None:
        owners: dict[TopicIdPartition, str] = {}
        image = self.driver.group.image
        for member in image.members.values():
            assert not member.current.assigned & member.current.revoking
            for partition in member.current.assigned | member.current.revoking:
                assert owners.setdefault(partition, member.member_id) == member.member_id
        assert image.owners == owners
        consumed: dict[TopicIdPartition, str] = {}
        for consumer in self.alive.values():
            if consumer.member_id in image.members:  # else it was fenced, and gives up all when it learns of it
                for partition in consumer.owned:
                    assert consumed.setdefault(partition, consumer.member_id) == consumer.member_id

    @invariant()
    def no_epoch_falls(self) -> None:
        image = self.driver.group.image
        assert image.target_epoch <= image.epoch
        epochs = (image.epoch, image.target_epoch)
        assert epochs >= self.epochs
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs
        for member in image.members.values():
            if member.current.epoch >= 0:
                assert self.member_epochs.get(member.member_id, 0) <= member.current.epoch <= image.target_epoch
                self.member_epochs[member.member_id] = member.current.epoch

    @invariant()
    def the_log_tells_the_same(self) -> None:
        assert self.driver.reloaded().image == self.driver.group.image

    def teardown(self) -> None:
        """Left alone, the group forgets the dead, settles, and shares everything out evenly."""
        self.wait(SESSION_MS + REBALANCE_MS)
        self.settle()
        group = self.driver.group
        assert group.image.members.keys() == self.alive.keys()
        assert str(group.state) == (GroupState.STABLE if self.alive else GroupState.EMPTY)
        subscriptions = {self.subscriptions[member_id] for member_id in self.alive}
        wanted = {name for names in subscriptions for name in names} & self.topics.partition_counts().keys()
        everything = frozenset().union(*(self.topics.partitions(name) for name in wanted))
        shares = [consumer.owned for consumer in self.alive.values()]
        assert frozenset().union(*shares) == everything
        assert sum(map(len, shares)) == len(everything)
        if len(subscriptions) == 1:
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


ConsumerGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestConsumerGroups = ConsumerGroups.TestCase
