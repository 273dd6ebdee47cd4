"""Up to eight consumers live with one classic group: they join, sync, leave, crash, come back, and the broker restarts.

Named invariants: OneGeneration, SameProtocol, DurableAssignment, NoLostWaiter, NothingForgottenByTimers; and at the
end, once everybody has calmed down, Convergence: the living are in one stable generation, or the group is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import JoinAnswer, Proposal, State, SyncAnswer
from odradek.wire.errors import ErrorCode
from tests.groups.classics import DELAY_MS, SESSION_MS, Driver, stored_group, subscription

CONSUMERS = 8
REBALANCE_MS = 15_000
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR,
}  # fmt: skip
START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
STICKY, RANGE = Proposal("sticky", subscription("t")), Proposal("range", subscription("t"))
PROPOSALS = [(RANGE,), (RANGE, STICKY), (STICKY, RANGE)]


@dataclass
class Consumer:
    """A client that follows the rules; its process can vanish without a word."""

    number: int
    instance_id: str | None
    proposals: tuple[Proposal, ...]
    version: int
    is_running: bool = False
    member_id: str = ""
    generation: int = -1
    leader_of: tuple[str, ...] = ()
    protocol: str | None = None
    ticket: int | None = None  # of the request that it waits for
    has_assignment: bool = False

    def start_over(self) -> None:
        self.member_id, self.generation = "", -1
        self.leader_of, self.protocol, self.ticket, self.has_assignment = (), None, None, False


class Life(RuleBasedStateMachine):
    """The group, its consumers, and what they were told."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.consumers = [
            Consumer(number, f"i{number}" if number % 3 == 0 else None, PROPOSALS[number % 3], 9 if number % 2 else 3)
            for number in range(CONSUMERS)
        ]
        self.generation_before = 0
        self.protocol_of: dict[int, str | None] = {}  # by generation
        self.assigned: dict[tuple[int, str], bytes] = {}  # by generation and member

    # What consumers do

    def _join(self, consumer: Consumer) -> None:
        consumer.leader_of, consumer.has_assignment = (), False
        consumer.ticket = self.driver.join(
            consumer.member_id,
            instance_id=consumer.instance_id,
            proposals=consumer.proposals,
            rebalance_timeout_ms=REBALANCE_MS,
            must_know_its_id=consumer.version >= 4,
            can_skip_assignment=consumer.version >= 9,
        )

    def _sync(self, consumer: Consumer) -> None:
        assignments = {member_id: f"{consumer.generation}:{member_id}".encode() for member_id in consumer.leader_of}
        consumer.ticket = self.driver.sync(
            consumer.member_id,
            assignments,
            generation=consumer.generation,
            instance_id=consumer.instance_id,
            protocol_name=consumer.protocol,
        )

    def _on_error(self, consumer: Consumer, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            consumer.is_running = False
            consumer.start_over()
        elif error in START_OVER:
            consumer.start_over()
            self._join(consumer)
        else:
            assert error in REJOIN, error
            self._join(consumer)

    def _hear(self, consumer: Consumer) -> bool:
        """Take an answer, if there is one, and do what follows from it."""
        answer = self.driver.answers.get(consumer.ticket or 0)
        if answer is None:
            return False
        consumer.ticket = None
        if isinstance(answer, JoinAnswer):
            if answer.error is ErrorCode.NONE:
                self._on_joined(consumer, answer)
            else:
                consumer.member_id = answer.member_id or consumer.member_id
                self._on_error(consumer, answer.error)
        elif isinstance(answer, SyncAnswer):
            if answer.error is ErrorCode.NONE:
                self._on_assigned(consumer, answer)
            else:
                self._on_error(consumer, answer.error)
        return True

    def _on_joined(self, consumer: Consumer, answer: JoinAnswer) -> None:
        consumer.member_id, consumer.generation = answer.member_id, answer.generation
        consumer.protocol = answer.protocol_name
        told = self.protocol_of.setdefault(answer.generation, answer.protocol_name)
        assert told == answer.protocol_name, "SameProtocol"
        assert answer.protocol_name in {proposal.name for proposal in consumer.proposals}, "SameProtocol"
        if answer.leader == answer.member_id and not answer.skip_assignment:
            consumer.leader_of = tuple(member.member_id for member in answer.members)
            assert consumer.member_id in consumer.leader_of
        self._sync(consumer)

    def _on_assigned(self, consumer: Consumer, answer: SyncAnswer) -> None:
        consumer.has_assignment = True
        assert answer.protocol_name == consumer.protocol, "SameProtocol"
        key = (consumer.generation, consumer.member_id)
        assert self.assigned.setdefault(key, answer.assignment) == answer.assignment, "OneGeneration"
        stored = self.driver.stored
        assert stored is not None, "DurableAssignment"
        in_log = {member.member_id: member.assignment for member in stored.members}
        assert stored.generation >= consumer.generation, "DurableAssignment"
        if stored.generation == consumer.generation:  # else it hears of it so late that the group has moved on
            assert in_log[consumer.member_id] == answer.assignment, "DurableAssignment"

    def _hear_all(self) -> bool:
        heard = [self._hear(consumer) for consumer in self.consumers if consumer.is_running]
        return True in heard

    def _beat(self, consumer: Consumer) -> None:
        if consumer.ticket is None and consumer.generation >= 0:
            error = self.driver.heartbeat(consumer.member_id, consumer.generation, consumer.instance_id)
            if error is not ErrorCode.NONE:
                self._on_error(consumer, error)

    # Rules

    numbers = st.integers(0, CONSUMERS - 1)

    @rule(number=numbers)
    def start(self, number: int) -> None:
        consumer = self.consumers[number]
        if not consumer.is_running:
            consumer.is_running = True
            consumer.start_over()
            self._join(consumer)

    @rule(number=numbers)
    def crash(self, number: int) -> None:
        self.consumers[number].is_running = False

    @rule(number=numbers)
    def lose_the_connection_and_ask_again(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.is_running and consumer.ticket is not None:
            self._join(consumer)

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.is_running and consumer.member_id:
            (left,) = self.driver.leave(consumer.member_id, instance_id=consumer.instance_id)
            assert left.error in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
            consumer.is_running = False

    @rule(number=numbers)
    def rejoin(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.is_running and consumer.has_assignment:
            self._join(consumer)

    @rule(number=numbers)
    def hear(self, number: int) -> None:
        if self.consumers[number].is_running:
            self._hear(self.consumers[number])

    @rule(number=numbers)
    def beat(self, number: int) -> None:
        if self.consumers[number].is_running:
            self._beat(self.consumers[number])

    @rule(ms=st.sampled_from([1, DELAY_MS, SESSION_MS // 3, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.driver.advance(ms)

    @precondition(lambda self: self.driver.storing)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def store(self, fails: bool) -> None:
        self.driver.store(ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE)

    @rule()
    def restart_the_broker(self) -> None:
        """What is not durable is lost, and so are all requests that wait."""
        stored = stored_group(self.driver.log[-1]) if self.driver.log else None
        old = self.driver
        if stored is None:
            group = ClassicGroup("g", old.config, old.now_ms)
        else:
            group = ClassicGroup.restored(stored, old.config, old.now_ms)
        self.driver = Driver(group)
        self.driver.now_ms, self.driver.log, self.driver.fresh = old.now_ms, old.log, old.fresh
        self.generation_before = group.generation
        # The log does not know of generations that never got an assignment: their numbers are used again.
        self.protocol_of = {at: name for at, name in self.protocol_of.items() if at <= group.generation}
        self.assigned = {key: value for key, value in self.assigned.items() if key[0] <= group.generation}
        for consumer in self.consumers:
            if consumer.is_running and consumer.ticket is not None:
                self._join(consumer)

    # Invariants

    @invariant()
    def one_generation_at_a_time(self) -> None:
        group = self.driver.group
        assert group.generation >= self.generation_before
        self.generation_before = group.generation
        if group.state is State.STABLE:
            assert group.protocol_name is not None
            for member in group.members.all():
                assert group.protocol_name in {proposal.name for proposal in member.proposals}, "SameProtocol"
                assert member.assignment.startswith(f"{group.generation}:".encode()) or not member.assignment

    @invariant()
    def no_waiter_is_lost(self) -> None:
        members = self.driver.group.members.all()
        held = [ticket for member in members for ticket in (member.join_ticket, member.sync_ticket) if ticket]
        assert sorted(held) == sorted(self.driver.asked - self.driver.answers.keys()), "NoLostWaiter"
        assert self.driver.group.members.awaiting_join == sum(member.join_ticket is not None for member in members)

    @invariant()
    def every_wait_has_an_end(self) -> None:
        group = self.driver.group
        wake_ms = group.next_deadline()
        expiries = [member.expires_ms for member in group.members.all() if member.can_expire]
        if group.state in (State.PREPARING, State.COMPLETING) and not group.is_storing:
            assert wake_ms is not None, "NothingForgottenByTimers"
        if expiries:
            assert wake_ms is not None, "NothingForgottenByTimers"
            assert wake_ms <= min(expiries), "NothingForgottenByTimers"
        assert (group.members.leader is None) == (not group.members.by_id)
        assert group.members.leader is None or group.members.leader in group.members.by_id

    def teardown(self) -> None:
        """Let the living go on in peace for a while."""
        for _ in range(60):
            self.driver.advance(SESSION_MS // 3)
            for _ in range(20):
                self.driver.store_all()
                if not self._hear_all():
                    break
            for consumer in self.consumers:
                if consumer.is_running:
                    self._beat(consumer)
        group = self.driver.group
        living = {consumer.member_id for consumer in self.consumers if consumer.is_running}
        assert set(group.members.by_id) == living, "Convergence"
        assert group.state is (State.STABLE if living else State.EMPTY), "Convergence"
        assert all(consumer.has_assignment for consumer in self.consumers if consumer.is_running), "Convergence"
        self.no_waiter_is_lost()


TestLife = Life.TestCase
