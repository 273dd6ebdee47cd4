"""What people read about the quorum's routes."""

from __future__ import annotations

from odradek.edge.routing import RouteDoc

_TAG = "Quorum"
_ERRORS = {
    400: ("The body is not as it should be.", {"detail": "candidate_id is missing"}),
    401: ("The cluster has a secret, and the request does not.", {"detail": "the header x-odradek-secret is wrong"}),
    409: ("The request is for another cluster.", {"detail": "this broker is of another cluster"}),
}
_NOT_LEADER = ("This broker is not the leader.", {"detail": "leader is 1, can't accept"})
_CREATE_TOPIC = {
    "topic_name": "t1",
    "partitions": [{"id": "t1-1", "replica_brokers": ["1", "2", "3", "4", "5"]}],
}

DOCS = {
    "voteRequest": RouteDoc(
        "Ask for a vote.",
        _TAG,
        {200: ("Whether the vote is granted.", {"granted": True}), **_ERRORS},
        request={"candidate_epoch": 13, "last_offset": 18, "last_offset_epoch": 12, "candidate_id": "2"},
    ),
    "beginQuorumEpoch": RouteDoc(
        "Tell that an election has been won.",
        _TAG,
        {200: ("Whether the leader is followed; if not, whom else.", {"accepted": True}), **_ERRORS},
        request={"leader_epoch": 13, "leader_id": "2"},
    ),
    "endQuorumEpoch": RouteDoc(
        "Tell that the leader steps down, and who should stand for election first.",
        _TAG,
        {200: ("It is known.", {"leader_epoch": 13, "leader_id": -1}), **_ERRORS},
        request={"leader_epoch": 13, "leader_id": "2", "preferred": ["3", "1"]},
    ),
    "fetchMetadata": RouteDoc(
        "Read metadata records behind an offset; a log that is not the leader's is told where the two part.",
        _TAG,
        {
            200: (
                "The records.",
                {"records": [{"offset": 0, "epoch": 1, "action": "create-topic", "payload": _CREATE_TOPIC}]},
            ),
            421: _NOT_LEADER,
            **_ERRORS,
        },
        request={"last_offset": -1, "last_offset_epoch": -1, "max_batch_size": 100, "follower_broker_id": "2"},
    ),
    "fetchSnapshot": RouteDoc(
        "Read the snapshot that a fetch has named.",
        _TAG,
        {200: "The snapshot.", 421: _NOT_LEADER, **_ERRORS},
        request={"end_offset": 1000, "epoch": 12, "follower_broker_id": "2"},
    ),
}
COMMAND = RouteDoc(
    "Have the active controller change something; an error of Kafka's is part of the answer.",
    _TAG,
    {200: ("What came of it, or an error.", {"error": 41, "message": "Another broker is the controller."}), **_ERRORS},
    request={"command": "rebalance", "args": {}},
    optional=frozenset({"args"}),
)
STATUS = RouteDoc("Tell how the quorum stands.", _TAG, {200: "The quorum as this broker sees it.", **_ERRORS})
