"""The collection of a classic group's members: places, leaders, votes and who waits."""

from __future__ import annotations

import pytest

from odradek.groups.classic_members import Member, Members
from odradek.groups.classic_types import Proposal
from odradek.wire.errors import ErrorCode, PeerError


def member(member_id: str, *protocols: str, instance_id: str | None = None, ticket: int | None = None) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        session_timeout_ms=1,
        rebalance_timeout_ms=len(member_id),
        proposals=tuple(Proposal(name, name.encode()) for name in protocols or ("range",)),
        expires_ms=len(member_id),
        join_ticket=ticket,
    )


def members(*each: Member) -> Members:
    made = Members()
    for one in each:
        made.add(one)
    return made


def test_the_first_leads_and_when_it_goes_the_next_in_order() -> None:
    made = members(member("a"), member("b"), member("c"))
    assert made.leader == "a"
    made.remove("a")
    assert made.leader == "b"
    made.remove("c")
    made.remove("b")
    assert made.leader is None
    assert made.remove("b") is None


def test_those_that_wait_are_counted() -> None:
    made = members(member("a", ticket=1), member("b"))
    assert made.awaiting_join == 1
    assert not made.have_all_joined
    assert made.await_join(made.by_id["b"], 2) is None
    assert made.await_join(made.by_id["b"], 3) == 2
    assert made.have_all_joined
    assert made.take_join_ticket(made.by_id["a"]) == 1
    assert made.take_join_ticket(made.by_id["a"]) is None
    made.remove("b")
    assert made.awaiting_join == 0


def test_an_id_that_was_given_out_is_waited_for() -> None:
    made = members(member("a", ticket=1))
    made.pending["b"] = 5
    assert not made.have_all_joined
    assert made.next_expiry() == 5
    made.add(member("b", ticket=2))
    assert made.have_all_joined
    assert made.pending == {}


def test_a_leader_that_waits_is_kept_and_one_that_does_not_is_replaced() -> None:
    made = members(member("a"), member("b", ticket=1), member("c", ticket=2))
    assert made.elect_leader()
    assert made.leader == "b"
    made.await_join(made.by_id["a"], 3)
    assert made.elect_leader()
    assert made.leader == "b"
    assert not members(member("a")).elect_leader()
    assert not Members().elect_leader()


def test_a_static_member_keeps_its_place_under_a_new_id() -> None:
    made = members(member("a", instance_id="i"), member("b"))
    one = made.static("i")
    assert one is not None
    made.rename(one, "a2")
    assert list(made.by_id) == ["a2", "b"]
    assert made.leader == "a2"
    assert made.static("i") is one
    made.remove("a2")
    assert made.static("i") is None


def test_a_member_is_found_by_id_and_fenced_by_instance() -> None:
    made = members(member("a", instance_id="i"), member("b"))
    assert made.require("a", "i").member_id == "a"
    assert made.require("b", None).member_id == "b"
    for member_id, instance_id, code in [
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("gone", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("gone", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(PeerError) as refused:
            made.require(member_id, instance_id)
        assert refused.value.code is code


def test_votes_count_only_for_what_all_support() -> None:
    made = members(member("a", "x", "y", "z"), member("b", "z", "y"), member("c", "z", "y"))
    assert made.select_protocol() == "z"
    assert made.support_one_of([Proposal("q", b""), Proposal("y", b"")])
    assert not made.support_one_of([Proposal("x", b"")])
    made.update(made.by_id["a"], (Proposal("y", b""),))
    assert made.select_protocol() == "y"
    assert not made.support_one_of([Proposal("z", b"")])


def test_a_protocol_named_twice_counts_once() -> None:
    made = members(member("a", "x", "x"), member("b", "x"))
    assert made.select_protocol() == "x"
    made.remove("a")
    assert made.select_protocol() == "x"


def test_silence_counts_unless_we_owe_an_answer_that_is_not_the_first() -> None:
    one = member("a")
    assert one.can_expire
    one.sync_ticket = 1
    assert not one.can_expire
    one.is_new = True
    assert one.can_expire
    assert members(member("bb"), member("a", ticket=1)).next_expiry() == 2
    assert Members().next_expiry() is None


def test_a_member_has_no_metadata_for_a_protocol_that_it_does_not_support() -> None:
    assert member("a", "x").metadata("x") == b"x"
    assert member("a", "x").metadata("y") == b""
    assert member("a", "x").metadata(None) == b""
