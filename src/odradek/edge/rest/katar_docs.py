"""What people read about Katar's routes."""

from __future__ import annotations

from odradek.edge.routing import RouteDoc

_TOPICS, _RECORDS = "Katar: topics", "Katar: records"
_TOPIC = {
    "name": "sample",
    "partitions": 1,
    "replication_factor": 1,
    "config": {"segment.bytes": 1073741824, "retention.ms": 604800000, "cleanup.policy": "delete"},
    "overrides": ["retention.ms"],
}
_NO_TOPIC = ("There is no such topic; the text names it.", {"detail": "there is no topic 'sample'"})
_NO_CLIENT = (
    "The topic has clients.required, and the header client_key has no key that is registered with it (429: too many "
    "wrong keys came from this address).",
    {"detail": "the client_key is not registered with topic sample, or was revoked"},
)
_BAD_SETTING = (
    "A setting is unknown or its value is not allowed; the text says what is.",
    {"detail": "segment.bytes = '1' (topic) is too small; allowed: 14B to 2147483647B"},
)
_NOT_JSON = ("The body is not JSON.", {"detail": "the body is not JSON: Input data was truncated"})
_NO_ANSWER = ("The partition, or the cluster, has no leader that answers.", {"detail": "try again"})

LIST = RouteDoc("List the names of all topics.", _TOPICS, {200: ("The names.", {"topics": ["sample"]})})
DESCRIBE = RouteDoc(
    "Tell the configuration of a topic, or of several: names with commas between. `overrides` are the settings that a "
    "topic has for itself, all others are the broker's.",
    _TOPICS,
    {200: ("The topics, in the order of the names.", {"topics": [_TOPIC]}), 401: _NO_CLIENT, 404: _NO_TOPIC},
)
CREATE = RouteDoc(
    "Create a topic. A name that exists gets __0 behind it, then __1, and so on: the answer says what the topic is "
    "called. `config` takes every setting of a topic, its values as strings, numbers or booleans.",
    _TOPICS,
    {
        201: ("The topic as it was created.", _TOPIC),
        400: _NOT_JSON,
        422: _BAD_SETTING,
        503: _NO_ANSWER,
    },
    request={"name": "sample", "config": {"retention.ms": 604800000}, "partitions": 1, "replication_factor": 1},
    optional=frozenset({"config", "partitions", "replication_factor"}),
)
_CHANGED = {
    200: ("The topic as it is now.", _TOPIC),
    400: _NOT_JSON,
    401: _NO_CLIENT,
    404: _NO_TOPIC,
    422: _BAD_SETTING,
    503: _NO_ANSWER,
}
_SETTINGS = {"retention.ms": 3600000, "segment.bytes": "64MiB"}
PUT = RouteDoc(
    "Give a topic exactly these settings. All that is not sent, or is null, goes back to its default.",
    _TOPICS,
    _CHANGED,
    request=_SETTINGS,
    optional=frozenset(_SETTINGS),
)
PATCH = RouteDoc(
    "Change only these settings of a topic. One that is null goes back to its default.",
    _TOPICS,
    _CHANGED,
    request=_SETTINGS,
    optional=frozenset(_SETTINGS),
)
DELETE = RouteDoc(
    "Delete a topic with all its records.",
    _TOPICS,
    {204: "It is deleted.", 401: _NO_CLIENT, 404: _NO_TOPIC, 503: _NO_ANSWER},
)
PUBLISH = RouteDoc(
    "Store a payload, which is any JSON value and is kept byte for byte as it was sent; or several: send `payloads`, a "
    "list, in place of `payload`. `topics`, a list, in place of `topic` stores them in each. Answered when all "
    "replicas in sync have them on stable storage. A topic that does not exist is made, unless "
    "auto.create.topics.enable is false. `key`, a string, is that of all payloads and chooses the partition, if "
    "`partition` does not; without both, requests go to one partition after the other. A "
    "payload of null is the JSON value null, not a tombstone.",
    _RECORDS,
    {
        200: (
            "Where each payload is, in the order they were sent, topic by topic.",
            {"offsets": [{"topic": "sample", "partition": 0, "offset": 57, "timestamp": 1700000000000}]},
        ),
        400: _NOT_JSON,
        401: _NO_CLIENT,
        404: _NO_TOPIC,
        413: (
            "A payload is larger than the topic's max.message.bytes, or there are more than 10,000 of them.",
            {"detail": "a payload of 2000000 bytes is ..."},
        ),
        422: ("A field is not as it should be.", {"detail": "send either payload, any JSON value, or payloads, ..."}),
        503: _NO_ANSWER,
    },
    request={"topic": "sample", "payload": {"any": ["JSON", 1, None]}, "key": "k"},
    optional=frozenset({"key"}),
)
SUBSCRIBE = RouteDoc(
    "Read records of a topic, or of `topics`, a list, from an `offset`, or from a `timestamp` in milliseconds, or from "
    "the `position` that the last answer gave, or, with none of these, what comes after this call. An offset that was "
    "deleted already means the first that is there; one beyond the end is refused with 422 and the range. At most "
    "`max` records come (100 unless said, up to 10,000); `wait_ms` (up to 60,000) is how long to wait when there is "
    "none. Send `position` back to go on: the broker keeps nothing. With `Accept: text/event-stream` the same call "
    "streams: events `record`, whose `id` can be sent back as `Last-Event-ID`. A record whose value is not JSON has "
    "its text as payload, or, if it is no text either, payload_base64 in place of it; the same holds for key.",
    _RECORDS,
    {
        200: (
            "The records; true_offset = base_offset (that of the segment) + offset.",
            {
                "records": [
                    {
                        "topic": "sample",
                        "partition": 0,
                        "base_offset": 57,
                        "offset": 4,
                        "true_offset": 61,
                        "timestamp": 1700000000000,
                        "key": "k",
                        "payload": {"any": ["JSON", 1, None]},
                    }
                ],
                "position": {"sample": {"0": 62}},
            },
        ),
        400: _NOT_JSON,
        401: _NO_CLIENT,
        404: _NO_TOPIC,
        422: (
            "A field is not as it should be, or the offset is beyond the end.",
            {"detail": "offset 99 is beyond the end of topic 'sample', partition 0: send one from 0 to 62, ..."},
        ),
        503: _NO_ANSWER,
    },
    request={"topic": "sample", "offset": 0, "max": 100, "wait_ms": 0},
    optional=frozenset({"offset", "max", "wait_ms"}),
)
