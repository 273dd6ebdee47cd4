"""What people read about SSKafka's routes."""

from __future__ import annotations

from odradek.edge.routing import RouteDoc

_REPLICAS = ["1", "2", "3", "4", "5"]
_TOPIC = {
    "topic_name": "testtopic",
    "partitions": [{"id": f"testtopic-{number}", "replica_brokers": _REPLICAS} for number in (1, 2, 3)],
}
_NOT_LEADER = ("This broker is not the leader; the text says who is, -1 for nobody.",
               {"detail": "leader is 1, can't accept"})  # fmt: skip
_INVALID = ("The body is not as it should be; the text names the field.", {"detail": "payload is missing"})
_NO_PARTITION = ("There is no such topic or partition.", {"detail": "topic_partition testtopic-9 does not exist"})
_NO_ANSWER = ("The partition, or the cluster, has no leader that answers.", {"detail": "try again"})
_UNREGISTERED = (
    "The topic is for registered clients (clients.required), and the key is missing or not registered with it.",
    {"detail": "the client_key is not registered with topic testtopic, or was revoked"},
)
_KEY = {"client_key": "The key of a registered client, where the topic has clients.required."}
_ADMIN, _DATA = "Topics", "Records"

HEALTH = RouteDoc(
    "Say that the broker is up, which one it is, and who the leader is (-1 for nobody).",
    "Broker",
    {200: ("The broker is up.", {"status": "up", "broker_id": 1, "leader_broker_id": 1})},
)
CREATE = RouteDoc(
    "Create a topic; answered when a majority of the brokers has it.",
    _ADMIN,
    {
        201: ("The topic has been created.", _TOPIC),
        400: ("The name or the number of partitions cannot be.", {"detail": "topic_name is empty"}),
        409: ("The topic exists already.", {"detail": "topic testtopic already exists"}),
        421: _NOT_LEADER,
        503: _NO_ANSWER,
    },
    request={"topic_name": "testtopic", "partition_count": 3},
)
LIST = RouteDoc("List all topics.", _ADMIN, {200: ("The topics.", {"topics": [_TOPIC]}), 421: _NOT_LEADER})
DELETE = RouteDoc(
    "Delete a topic and its records; answered when a majority of the brokers knows.",
    _ADMIN,
    {
        204: "The topic has been deleted.",
        404: ("There is no such topic.", {"detail": "topic testtopic does not exist"}),
        421: _NOT_LEADER,
        503: _NO_ANSWER,
    },
)
PRODUCE = RouteDoc(
    "Store a record in a partition. acks is all (every replica has it), 1 (its leader has it) or 0 (do not wait).",
    _DATA,
    {
        204: "The record has been stored.",
        400: _INVALID,
        401: _UNREGISTERED,
        404: _NO_PARTITION,
        421: _NOT_LEADER,
        503: _NO_ANSWER,
    },
    request={"key": "msg1", "payload": "this is a message", "topic_partition": "testtopic-1", "acks": "all"},
    optional=frozenset({"key", "acks"}),
    headers=_KEY,
)
CONSUME = RouteDoc(
    "Read records of a partition behind last_offset (-1 for all), at most max_batch_size of them.",
    _DATA,
    {
        200: (
            "The records, and the offset of the last one.",
            {"last_offset": 0, "records": [{"offset": 0, "key": "msg1", "payload": "this is a message"}]},
        ),
        400: _INVALID,
        401: _UNREGISTERED,
        404: _NO_PARTITION,
        421: _NOT_LEADER,
        503: _NO_ANSWER,
    },
    request={
        "last_offset": -1,
        "topic_partition": "testtopic-1",
        "max_batch_size": 100,
        "follower_broker_id": None,
    },
    optional=frozenset({"last_offset", "max_batch_size", "follower_broker_id"}),
    headers=_KEY,
)
