"""The quorum's requests and answers as JSON: SSKafka's bodies, with what KRaft needs beside them.

SSKafka speaks of the last entry (`last_offset`, -1 when there is none), Raft of the offset behind it. A request of ours
carries `cluster_id`; its answer then carries more than the document's. A plain request gets a plain answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from odradek.raft.messages import (
    NO_NODE,
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
from odradek.wire.errors import ErrorCode, PeerError

VOTE = "voteRequest"
BEGIN = "beginQuorumEpoch"
END = "endQuorumEpoch"
FETCH = "fetchMetadata"
SNAPSHOT = "fetchSnapshot"
COMMAND = "command"

Json = dict[str, Any]

_ID = re.compile(r"(?:broker-)?(-?\d{1,10})", re.ASCII)
_NUMBER_MAX = 2**63 - 1


def is_ours(body: Mapping[str, Any]) -> bool:
    """Whether a broker of ours asks, and not a person who follows SSKafka's document."""
    return "cluster_id" in body


def node_id(value: Any) -> int:
    """Read an id: 2, "2" or the document's "broker-2"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{value!r} is no broker id")
    return int(match[1])


def number(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Read a number, which may stand in quotes."""
    value = body.get(name, default)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _NUMBER_MAX:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name!r} must be a number")
    return value


# Requests.


def encode_request(request: Request, cluster_id: str) -> tuple[str, Json]:
    """The name of the endpoint, and the body."""
    match request:
        case VoteRequest():
            return VOTE, {
                "candidate_epoch": request.epoch,
                "last_offset": request.end_offset - 1,
                "last_offset_epoch": request.last_epoch,
                "candidate_id": request.candidate_id,
                "pre_vote": request.pre_vote,
                "cluster_id": cluster_id,
            }
        case BeginQuorumEpoch():
            return BEGIN, {"leader_id": request.leader_id, "leader_epoch": request.epoch, "cluster_id": cluster_id}
        case EndQuorumEpoch():
            return END, {
                "leader_id": request.leader_id,
                "leader_epoch": request.epoch,
                "preferred": list(request.preferred),
                "cluster_id": cluster_id,
            }
        case FetchRequest():
            return FETCH, {
                "last_offset": request.end_offset - 1,
                "last_offset_epoch": request.last_epoch,
                "max_batch_size": request.max_entries,
                "follower_broker_id": request.replica_id,
                "epoch": request.epoch,
                "cluster_id": cluster_id,
            }
        case SnapshotRequest():
            return SNAPSHOT, {
                "follower_broker_id": request.replica_id,
                "epoch": request.epoch,
                "snapshot": list(request.snapshot),
                "cluster_id": cluster_id,
            }


def decode_request(name: str, body: Mapping[str, Any], epoch: int) -> Request:
    """What a body asks; PeerError if it is none. `epoch` is ours, for a plain fetch, which names none."""
    match name:
        case "voteRequest":
            end_offset, last_epoch = number(body, "last_offset") + 1, number(body, "last_offset_epoch")
            candidate, candidate_epoch = node_id(body.get("candidate_id")), number(body, "candidate_epoch")
            return VoteRequest(candidate, candidate_epoch, last_epoch, max(end_offset, 0), body.get("pre_vote") is True)
        case "beginQuorumEpoch":
            return BeginQuorumEpoch(node_id(body.get("leader_id")), number(body, "leader_epoch"))
        case "endQuorumEpoch":
            preferred = _list(body.get("preferred", []), "preferred")
            leader = node_id(body.get("leader_id"))
            return EndQuorumEpoch(leader, number(body, "leader_epoch"), tuple(map(node_id, preferred)))
        case "fetchMetadata":
            follower = body.get("follower_broker_id")
            return FetchRequest(
                NO_NODE if follower is None else node_id(follower),
                number(body, "epoch", epoch),
                number(body, "last_offset_epoch", -1),
                max(number(body, "last_offset") + 1, 0),
                max(number(body, "max_batch_size", 100), 0),
            )
        case "fetchSnapshot":
            follower_id = node_id(body.get("follower_broker_id"))
            return SnapshotRequest(follower_id, number(body, "epoch"), _snapshot(body.get("snapshot")))
    raise PeerError(ErrorCode.INVALID_REQUEST, f"the quorum has no request {name!r}")


# Answers.


def encode_response(response: Response, *, plain: bool) -> Json:
    """The body of an answer; a plain one has what SSKafka's document names and no more."""
    match response:
        case VoteResponse():
            body: Json = {"granted": response.granted}
            if not (response.granted and plain):
                body |= {"leader_epoch": response.leader_epoch, "leader_id": response.leader_id}
        case BeginResponse():
            body = {"accepted": response.accepted}
            if not (response.accepted and plain):
                body |= {"leader_epoch": response.epoch, "leader_id": response.leader_id}
        case EndResponse():
            body = {"leader_epoch": response.epoch, "leader_id": response.leader_id}
        case FetchResponse():
            return _encode_fetch(response, plain=plain)
        case SnapshotResponse():
            data = None if response.data is None else response.data.decode()
            body = {
                "error": response.error,
                "leader_id": response.leader_id,
                "snapshot": list(response.snapshot),
                "data": data,
            }
    return body if plain else {**body, "epoch": response.epoch}


def _encode_fetch(response: FetchResponse, *, plain: bool) -> Json:
    records = [
        {"offset": offset, "epoch": entry.epoch, "action": entry.type, "payload": json.loads(entry.body)}
        for offset, entry in enumerate(response.entries, response.start_offset)
    ]
    body: Json = {"records": records}
    if response.diverging is not None:
        body = {"diverging_epoch": response.diverging[0], "diverging_offset": response.diverging[1]}
    if plain:
        return body
    return {
        **body,
        "error": response.error,
        "epoch": response.epoch,
        "leader_id": response.leader_id,
        "high_watermark": response.high_watermark,
        "start_offset": response.start_offset,
        "snapshot": None if response.snapshot is None else list(response.snapshot),
    }


def decode_response(request: Request, body: Any) -> Response:
    """The answer of a broker of ours to this request; PeerError if it is none."""
    if not isinstance(body, dict):
        raise PeerError(ErrorCode.INVALID_REQUEST, "an answer must be a JSON object")
    epoch = number(body, "epoch")
    leader_id = node_id(body.get("leader_id"))
    match request:
        case VoteRequest():
            return VoteResponse(body.get("granted") is True, epoch, leader_id, number(body, "leader_epoch"))
        case BeginQuorumEpoch():
            return BeginResponse(body.get("accepted") is True, epoch, leader_id)
        case EndQuorumEpoch():
            return EndResponse(epoch, leader_id)
        case FetchRequest():
            return _decode_fetch(body, epoch, leader_id)
        case SnapshotRequest():
            data = body.get("data")
            if data is not None and not isinstance(data, str):
                raise PeerError(ErrorCode.INVALID_REQUEST, "a snapshot's data must be text")
            text = None if data is None else data.encode()
            return SnapshotResponse(str(body.get("error", "")), epoch, leader_id, _snapshot(body.get("snapshot")), text)


def _decode_fetch(body: Json, epoch: int, leader_id: int) -> FetchResponse:
    diverging = None
    if "diverging_epoch" in body:
        diverging = (number(body, "diverging_epoch"), number(body, "diverging_offset"))
    start_offset = number(body, "start_offset")
    snapshot = None if body.get("snapshot") is None else _snapshot(body["snapshot"])
    entries = []
    for offset, record in enumerate(_list(body.get("records", []), "records"), start_offset):
        if (
            not isinstance(record, dict)
            or record.get("offset") != offset
            or not isinstance(record.get("payload"), dict)
        ):
            raise PeerError(ErrorCode.INVALID_REQUEST, f"record {offset} cannot be read")
        entries.append(Entry(number(record, "epoch"), str(record.get("action")), body_text(record["payload"])))
    high_watermark, error = number(body, "high_watermark"), str(body.get("error", ""))
    return FetchResponse(error, epoch, leader_id, high_watermark, start_offset, tuple(entries), diverging, snapshot)


def body_text(body: Mapping[str, Any]) -> str:
    """A record's body as it stands in the log: the same on every broker."""
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def _snapshot(value: Any) -> SnapshotId:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value)):
        raise PeerError(ErrorCode.INVALID_REQUEST, "a snapshot is named by its end offset and its epoch")
    return SnapshotId(value[0], value[1])


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name!r} must be a list")
    return value
