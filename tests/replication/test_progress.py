"""How far all may read and who is in sync, as a leader sees it: case by case, and by random histories."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.replication.progress import FAR, REFUSED_PAUSE_MS, WAIT_FOR_JOINING_MS, Isr, Progress

LEADER = 1
LAG_MS = 10_000
EPOCH = 70  # of every broker


def progress(*, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), start: int = 0) -> Progress:
    """A partition that broker 1 leads since the time 0."""
    return Progress(LEADER, replicas, isr, leader_epoch=5, partition_epoch=8, start_offset=start, now=0)


def ids(isr: Isr | None) -> list[int] | None:
    """The members of a wish."""
    return None if isr is None else [id_ for id_, _ in isr]


def test_nothing_is_committed_before_all_in_sync_have_told_how_far_they_are() -> None:
    view = progress()
    assert view.high_watermark(0, 10, 1) == 0
    view.fetched(2, 10, 10, 1, EPOCH)
    assert view.high_watermark(0, 10, 1) == 0
    view.fetched(3, 7, 10, 1, EPOCH)
    assert view.high_watermark(0, 10, 1) == 7


def test_the_leader_itself_must_have_flushed() -> None:
    view = progress()
    view.fetched(2, 10, 10, 1, EPOCH)
    view.fetched(3, 10, 10, 1, EPOCH)
    assert view.high_watermark(0, own_end=4, min_insync=1) == 4


def test_the_high_watermark_never_falls_when_a_follower_has_less_than_before() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    view.fetched(2, 10, 10, 1, EPOCH)
    assert view.high_watermark(0, 10, 1) == 10
    view.fetched(2, 3, 10, 2, EPOCH + 1)
    assert view.end_of(2) == 3
    assert view.high_watermark(10, 10, 1) == 10


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    view = progress(isr=(1,))
    assert view.high_watermark(3, 10, min_insync=2) == 3
    assert view.high_watermark(3, 10, min_insync=1) == 10


def test_more_in_sync_than_there_are_replicas_are_not_asked_for() -> None:
    assert progress(isr=(1,), replicas=(1,)).high_watermark(3, 10, min_insync=2) == 10


def test_an_old_life_of_a_broker_and_strangers_are_not_heard() -> None:
    view = progress()
    view.fetched(2, 5, 10, 1, EPOCH)
    view.fetched(2, 9, 10, 2, EPOCH - 1)
    view.fetched(4, 9, 10, 2, EPOCH)
    view.fetched(3, 11, 10, 2, EPOCH)
    assert [view.end_of(id_) for id_ in (2, 3, 4)] == [5, -1, -1]


def test_one_that_is_proposed_counts_at_once_and_until_it_is_refused() -> None:
    view = progress(isr=(1,), replicas=(1, 2))
    view.fetched(2, 5, 10, 1, EPOCH)
    isr = view.wants_expand(5, 10)
    assert isr == ((1, -1), (2, EPOCH))
    view.proposed(isr)
    assert view.maximal_isr == {1, 2}
    assert view.high_watermark(5, 10, 1) == 5
    view.refused()
    assert view.high_watermark(5, 10, 1) == 10
    assert view.wants_expand(5, 10) is None, "it must fetch again first"


def test_one_that_was_proposed_to_be_put_out_counts_until_that_is_settled() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    view.fetched(2, 5, 10, 1, EPOCH)
    isr = view.wants_shrink(LAG_MS + 1, LAG_MS, 10)
    assert ids(isr) == [1]
    assert isr is not None
    view.proposed(isr)
    assert view.high_watermark(5, 10, 1) == 5
    assert view.wants_shrink(LAG_MS * 2, LAG_MS, 10) is None, "one proposal at a time"
    with pytest.raises(ValueError, match="one proposal"):
        view.proposed(isr)
    view.settled((1,), 9)
    assert (view.isr, view.partition_epoch) == ((1,), 9)
    assert view.high_watermark(5, 10, 1) == 10


def test_newer_metadata_decide_a_proposal_and_older_ones_do_nothing() -> None:
    view = progress(isr=(1,), replicas=(1, 2))
    view.fetched(2, 5, 10, 1, EPOCH)
    view.proposed(((1, -1), (2, EPOCH)))
    view.update((1, 3), (1,), 7)
    assert view.maximal_isr == {1, 2}
    assert view.replicas == (1, 2)
    view.update((1, 2), (1, 2), 9)
    assert view.proposal is None
    assert view.isr == (1, 2)
    view.settled((1,), 8)
    assert view.isr == (1, 2)


def test_metadata_of_the_same_epoch_as_the_answer_still_bring_other_replicas() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2, 3))
    view.fetched(3, 10, 10, 1, EPOCH)
    view.proposed(((1, -1), (2, -1), (3, EPOCH)))
    view.settled((1, 3), 9)
    view.update((1, 3), (1, 3), 9)
    assert view.replicas == (1, 3)
    assert view.everywhere() == 10


def test_a_follower_lags_when_it_was_not_at_the_end_for_too_long() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    assert view.wants_shrink(LAG_MS, LAG_MS, 10) is None
    view.fetched(2, 10, 10, 5_000, EPOCH)
    assert view.wants_shrink(5_000 + LAG_MS, LAG_MS, 20) is None
    assert ids(view.wants_shrink(5_001 + LAG_MS, LAG_MS, 20)) == [1]


def test_a_follower_at_the_end_is_in_sync_although_it_has_nothing_to_say() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    view.fetched(2, 10, 10, 1, EPOCH)
    assert view.wants_shrink(LAG_MS * 9, LAG_MS, 10) is None


def test_a_follower_that_keeps_pace_under_load_is_in_sync() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    for turn in range(1, 100):
        now, end = turn * 1_000, turn * 10
        view.fetched(2, end - 10, end, now, EPOCH)  # it always has what there was when it last asked
        assert view.wants_shrink(now, LAG_MS, end) is None


def test_a_follower_that_fetches_often_but_falls_behind_lags() -> None:
    view = progress(isr=(1, 2), replicas=(1, 2))
    for turn in range(1, 12):
        view.fetched(2, turn, turn * 10, turn * 1_000, EPOCH)
    assert ids(view.wants_shrink(11_001, LAG_MS, 110)) == [1]


def test_nobody_joins_before_the_high_watermark_and_the_start_of_the_epoch() -> None:
    view = progress(isr=(1,), start=8)
    view.fetched(2, 7, 20, 1, EPOCH)
    assert view.wants_expand(5, 20) is None
    view.fetched(2, 8, 20, 2, EPOCH)
    assert view.wants_expand(9, 20) is None
    assert ids(view.wants_expand(8, 20)) == [1, 2]


def test_one_that_was_put_out_joins_only_after_it_has_fetched_again() -> None:
    view = progress(isr=(1, 3))
    view.fetched(2, 10, 10, 1, EPOCH)
    view.update((1, 2, 3), (1, 2, 3), 9)
    view.update((1, 2, 3), (1, 3), 10)
    assert view.wants_expand(0, 10) is None
    view.fetched(2, 10, 10, 2, EPOCH)
    assert ids(view.wants_expand(0, 10)) == [1, 3, 2]


def test_the_high_watermark_waits_for_one_that_keeps_pace_or_it_would_never_join() -> None:
    view, high_watermark = progress(isr=(1,), replicas=(1, 2)), 0
    for turn in range(1, 5):
        end = turn * 10
        high_watermark = view.high_watermark(high_watermark, end - 1, 1)
        view.fetched(2, end - 10, end, turn, EPOCH)
        if view.wants_expand(high_watermark, end) is not None:
            return
    pytest.fail(f"it never joins; the high watermark is {high_watermark}")


def test_the_high_watermark_does_not_wait_for_one_that_has_gone() -> None:
    view = progress(isr=(1,), replicas=(1, 2))
    view.fetched(2, 10, 10, 1, EPOCH)
    assert view.high_watermark(10, 20, 1) == 10
    view.wants_shrink(WAIT_FOR_JOINING_MS + 2, LAG_MS, 20)
    assert view.high_watermark(10, 20, 1) == 20


def test_the_high_watermark_does_not_wait_for_one_that_was_refused_lately() -> None:
    view = progress(isr=(1,), replicas=(1, 2))
    view.fetched(2, 10, 10, 1, EPOCH)
    view.proposed(view.wants_expand(10, 10) or ())
    view.refused()
    view.fetched(2, 10, 10, REFUSED_PAUSE_MS, EPOCH)
    assert view.high_watermark(10, 20, 1) == 20
    assert view.wants_expand(10, 10) is None
    view.fetched(2, 20, 20, REFUSED_PAUSE_MS + 1, EPOCH)
    assert view.high_watermark(20, 30, 1) == 20
    assert ids(view.wants_expand(20, 30)) == [1, 2]


def test_it_is_whole_when_all_are_in_sync() -> None:
    assert progress().is_whole
    assert not progress(isr=(1, 2)).is_whole
    assert progress(isr=(1,), replicas=(1,)).is_whole


def test_everywhere_counts_every_replica_and_the_word_of_other_doors() -> None:
    view = progress(isr=(1, 2))
    assert view.everywhere() == -1
    view.fetched(2, 9, 10, 1, EPOCH)
    view.fetched(3, 4, 10, 1, EPOCH)
    assert view.everywhere() == 4
    view.acknowledged(3, 8)
    assert view.everywhere() == 8
    assert view.end_of(3) == 4, "no word of another door moves the high watermark"
    assert progress(isr=(1,), replicas=(1,)).everywhere() == FAR


class Cluster(RuleBasedStateMachine):
    """A leader, its followers and a controller, whose answers and metadata may be late or lost."""

    def __init__(self) -> None:
        super().__init__()
        self.view = progress()
        self.now = 0
        self.log_end = self.own_flushed = self.high_watermark = 0
        self.flushed = {2: 0, 3: 0}  # the truth at the followers
        self.isr: tuple[int, ...] = (1, 2, 3)  # the truth at the controller
        self.partition_epoch = 8
        self.requests: list[tuple[Isr, int]] = []  # on their way to the controller; may arrive late and twice
        self.answers: list[tuple[Isr, bool, tuple[int, ...], int]] = []  # on their way back, may be lost

    def _look(self) -> None:
        moved = self.view.high_watermark(self.high_watermark, self.own_flushed, 1)
        assert moved >= self.high_watermark, "the high watermark fell"
        self.high_watermark = moved

    @rule(count=st.integers(1, 5), flushes=st.booleans())
    def append(self, count: int, flushes: bool) -> None:
        self.log_end += count
        if flushes:
            self.own_flushed = self.log_end
        self._look()

    @rule(follower=st.sampled_from([2, 3]), count=st.integers(0, 9), ms=st.integers(0, 3_000))
    def fetch(self, follower: int, count: int, ms: int) -> None:
        self.now += ms
        self.flushed[follower] = min(self.log_end, self.flushed[follower] + count)
        self.view.fetched(follower, self.flushed[follower], self.log_end, self.now, EPOCH)
        self._look()

    @rule(ms=st.integers(0, 12_000))
    def check_lag(self, ms: int) -> None:
        self.now += ms
        self._propose(self.view.wants_shrink(self.now, LAG_MS, self.log_end))
        self._look()

    @rule()
    def expand(self) -> None:
        self._propose(self.view.wants_expand(self.high_watermark, self.log_end))
        self._look()

    def _propose(self, isr: Isr | None) -> None:
        if isr is not None:
            self.view.proposed(isr)
            self.requests.append((isr, self.view.partition_epoch))

    @precondition(lambda self: self.view.proposal is not None)
    @rule()
    def propose_again(self) -> None:
        assert self.view.proposal is not None
        self.requests.append((self.view.proposal, self.view.partition_epoch))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), takes=st.booleans())
    def controller_decides(self, data: st.DataObject, takes: bool) -> None:
        isr, partition_epoch = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        if partition_epoch != self.partition_epoch:
            return  # an old version: no answer that decides anything
        if takes:
            self.isr, self.partition_epoch = tuple(id_ for id_, _ in isr), self.partition_epoch + 1
        else:  # it is certain that none of the same will be taken later
            self.requests = [request for request in self.requests if request != (isr, partition_epoch)]
        self.answers.append((isr, takes, self.isr, self.partition_epoch))

    @precondition(lambda self: self.answers)
    @rule(is_lost=st.booleans())
    def answer_arrives(self, is_lost: bool) -> None:
        wish, taken, isr, partition_epoch = self.answers.pop(0)
        if not is_lost and self.view.proposal is wish:
            if taken:
                self.view.settled(isr, partition_epoch)
            else:
                self.view.refused()
        self._look()

    @precondition(lambda self: not self.answers)
    @rule()
    def controller_puts_somebody_out(self) -> None:
        if len(self.isr) > 1:
            self.isr, self.partition_epoch = self.isr[:-1], self.partition_epoch + 1

    @rule()
    def metadata_arrive(self) -> None:
        self.view.update((1, 2, 3), self.isr, self.partition_epoch)
        self._look()

    @invariant()
    def nobody_who_may_lead_lacks_what_was_shown(self) -> None:
        for follower, flushed in self.flushed.items():
            if follower in self.isr or follower in self.view.maximal_isr:
                assert flushed >= self.high_watermark, f"{follower} has {flushed} of {self.high_watermark}"


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=30, stateful_step_count=40)
