"""The quorum's JSON: SSKafka's own bodies word for word, and ours without loss."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller.quorum_wire import decode_request, decode_response, encode_request, encode_response, is_ours
from odradek.raft.messages import (
    BeginQuorumEpoch,
    BeginResponse,
    EndQuorumEpoch,
    EndResponse,
    Entry,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    SnapshotId,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from odradek.wire.errors import PeerError

ENTRIES = (Entry(1, "create-topic", '{"topic_name":"t1"}'), Entry(2, "delete-topic", '{"topic_name":"t1"}'))


def test_the_documents_vote_request_is_read() -> None:
    body = {"candidate_epoch": 13, "last_offset": 18, "last_offset_epoch": 12, "candidate_id": "broker-2"}
    assert decode_request("voteRequest", body, 0) == VoteRequest(2, 13, 12, 19, pre_vote=False)
    body = {"candidate_epoch": 1, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": "3"}
    assert decode_request("voteRequest", body, 0) == VoteRequest(3, 1, -1, 1, pre_vote=False)
    assert not is_ours(body)


def test_plain_answers_are_the_documents() -> None:
    assert encode_response(VoteResponse(True, 13, -1, 12), plain=True) == {"granted": True}
    refused = encode_response(VoteResponse(False, 1, -1, 0), plain=True)
    assert refused == {"granted": False, "leader_epoch": 0, "leader_id": -1}
    assert encode_response(BeginResponse(True, 1, 3), plain=True) == {"accepted": True}
    fenced = encode_response(BeginResponse(False, 2, 4), plain=True)
    assert fenced == {"accepted": False, "leader_epoch": 2, "leader_id": 4}
    fetched = encode_response(FetchResponse("", 2, 1, 9, 7, ENTRIES, None, None), plain=True)
    assert fetched == {
        "records": [
            {"offset": 7, "epoch": 1, "action": "create-topic", "payload": {"topic_name": "t1"}},
            {"offset": 8, "epoch": 2, "action": "delete-topic", "payload": {"topic_name": "t1"}},
        ]
    }
    diverging = encode_response(FetchResponse("", 2, 1, 9, 7, (), (1, 5), None), plain=True)
    assert diverging == {"diverging_epoch": 1, "diverging_offset": 5}


def test_the_documents_other_requests_are_read() -> None:
    begin = decode_request("beginQuorumEpoch", {"leader_epoch": 1, "leader_id": "3"}, 0)
    assert begin == BeginQuorumEpoch(3, 1)
    body: dict[str, Any] = {
        "last_offset": -1,
        "last_offset_epoch": -1,
        "max_batch_size": 100,
        "follower_broker_id": "2",
    }
    assert decode_request("fetchMetadata", body, 7) == FetchRequest(2, 7, -1, 0, 100)
    body["follower_broker_id"] = None
    assert decode_request("fetchMetadata", body, 7) == FetchRequest(-1, 7, -1, 0, 100)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (VoteRequest(2, 13, 12, 19, pre_vote=True), VoteResponse(True, 13, -1, 12)),
        (VoteRequest(2, 13, -1, 0, pre_vote=False), VoteResponse(False, 14, 3, 14)),
        (BeginQuorumEpoch(3, 5), BeginResponse(False, 6, 1)),
        (EndQuorumEpoch(3, 5, (1, 2)), EndResponse(5, -1)),
        (FetchRequest(2, 5, 4, 10, 500), FetchResponse("", 5, 1, 11, 10, ENTRIES, None, None)),
        (FetchRequest(2, 5, 4, 10, 500), FetchResponse("", 5, 1, 11, 10, (), (3, 8), None)),
        (FetchRequest(2, 5, -1, 0, 500), FetchResponse("", 5, 1, 11, 0, (), None, SnapshotId(9, 4))),
        (FetchRequest(2, 4, -1, 0, 500), FetchResponse("fenced-epoch", 5, 1, -1, 0, (), None, None)),
        (SnapshotRequest(2, 5, SnapshotId(9, 4)), SnapshotResponse("", 5, 1, SnapshotId(9, 4), b'{"a":"\xc3\xbc"}')),
        (SnapshotRequest(2, 5, SnapshotId(9, 4)), SnapshotResponse("not-leader", 5, 1, SnapshotId(9, 4), None)),
    ],
)
def test_our_own_come_through_whole(request_: Request, response: Response) -> None:
    name, body = encode_request(request_, "c")
    assert is_ours(body)
    assert decode_request(name, body, 99) == request_
    assert decode_response(request_, encode_response(response, plain=False)) == response


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("voteRequest", {}),
        ("voteRequest", {"candidate_epoch": 1, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": "me"}),
        ("voteRequest", {"candidate_epoch": True, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": 1}),
        ("voteRequest", {"candidate_epoch": 10**30, "last_offset": 0, "last_offset_epoch": -1, "candidate_id": 1}),
        ("beginQuorumEpoch", {"leader_id": None, "leader_epoch": 1}),
        ("endQuorumEpoch", {"leader_id": 1, "leader_epoch": 1, "preferred": 3}),
        ("fetchMetadata", {"last_offset": [1]}),
        ("fetchSnapshot", {"follower_broker_id": 1, "epoch": 1, "snapshot": [1]}),
        ("nonsense", {}),
    ],
)
def test_a_body_that_cannot_be_read_is_the_peers_fault(name: str, body: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="INVALID_REQUEST"):
        decode_request(name, body, 0)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"epoch": 1, "leader_id": 1},
        {"epoch": 1, "leader_id": 1, "start_offset": 0, "high_watermark": 0, "records": [{"offset": 1, "payload": {}}]},
        {"epoch": 1, "leader_id": 1, "start_offset": 0, "high_watermark": 0, "records": [{"offset": 0, "epoch": 1}]},
    ],
)
def test_an_answer_that_cannot_be_read_is_the_peers_fault(body: Any) -> None:
    with pytest.raises(PeerError):
        decode_response(FetchRequest(2, 5, 4, 0, 500), body)
