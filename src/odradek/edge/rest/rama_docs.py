"""What people read about RAMA's routes."""

from __future__ import annotations

from odradek.edge.routing import RouteDoc

_TAG = "Channels"
_KEY = {"client_key": "The key of a registered client, as in `client_key: KEY`; no white space before the colon."}
_MESSAGE = {"x": 42, "_ts": 1_700_000_000_000}
_NOT_JSON = ("The body is not JSON.", {"detail": "the body is not JSON: ..."})
_NO_CHANNEL = (
    "There is no such channel.",
    {"detail": "there is no channel orders: make it by PUT /create_topic"},
)
_UNREGISTERED = (
    "The key is missing, not registered with the channel, or revoked.",
    {"detail": "the client_key is not registered with topic orders, or was revoked: register by POST /register/orders"},
)
_TOO_LARGE = (
    "The message is larger than 1 MiB.",
    {"detail": "a message has at most 1048576 bytes, this one 2000000"},
)
_NO_TIME = (
    "It is no JSON object, or its _ts is missing, not a number, or too far from the broker's clock (rama.max.skew.ms).",
    {
        "detail": "_ts is 12131313131 (1970-05-21T09:48:33.131Z), and the broker's clock says "
        "1700000000000 (2023-11-14T22:13:20.000Z): more than rama.max.skew.ms = 10000 lies between"
    },
)
_GUESSES = (
    "There were too many wrong keys from this address (client.failures.max a minute); see Retry-After.",
    {"detail": "too many wrong keys for topic orders from this address: try again in 57 s"},
)
_AWAY = ("The channel has no leader that answers, or the object store is away.", {"detail": "try again"})

CREATE = RouteDoc(
    "Create a channel. fifo keeps strict order, store is its object store's URL, config are settings of the topic.",
    _TAG,
    {
        201: ("The channel has been created.", {"topic": "orders"}),
        400: _NOT_JSON,
        409: ("A topic of this name exists already.", {"detail": "topic orders already exists"}),
        422: (
            "The name cannot be a channel's, or a setting cannot be.",
            {"detail": "a channel cannot be called docs: /docs is a path of the broker itself; choose another name"},
        ),
        503: _AWAY,
    },
    request={"topic": "orders", "fifo": False, "store": "s3://bucket/channels", "config": {"channel.slice.ms": 500}},
    optional=frozenset({"fifo", "store", "config"}),
)
REGISTER = RouteDoc(
    "Register a client with a topic, by a key of its own or, with an empty body, by one that is made; it is shown "
    "once and stored hashed. The client_id is for revoking.",
    _TAG,
    {
        201: (
            "The client has been registered.",
            {"topic": "orders", "client_key": "8c1f0e...", "client_id": "5d41402abc4b2a76"},
        ),
        200: (
            "This key was registered already.",
            {"topic": "orders", "client_key": "my-key", "client_id": "5d41402abc4b2a76"},
        ),
        400: _NOT_JSON,
        404: _NO_CHANNEL,
        422: ("The key cannot be one.", {"detail": "a client_key is 1 to 200 printable characters of ASCII"}),
        503: _AWAY,
    },
    request={"client_key": "my-key"},
    optional=frozenset({"client_key"}),
)
REVOKE = RouteDoc(
    "Let a client's key be good no longer. It takes a good key of the same topic, or the cluster's secret.",
    _TAG,
    {
        204: "The client has been revoked.",
        401: _UNREGISTERED,
        404: ("There is no such topic or client.", {"detail": "topic 'orders' has no client '5d41402abc4b2a76'"}),
        429: _GUESSES,
        503: _AWAY,
    },
    headers=_KEY,
)
_REFUSALS = {
    400: _NOT_JSON,
    401: _UNREGISTERED,
    404: _NO_CHANNEL,
    413: _TOO_LARGE,
    422: _NO_TIME,
    429: _GUESSES,
    503: _AWAY,
}
PUBLISH = RouteDoc(
    "Publish a message: a JSON object with its time in ms since 1970, UTC, as _ts; answered when the store has it.",
    _TAG,
    {201: ("The message has been stored.", {"offset": 0, "timestamp": 1_700_000_000_000}), **_REFUSALS},
    request=_MESSAGE,
    optional=frozenset({"x"}),
    headers=_KEY,
)
PUBLISH_MANY = RouteDoc(
    "Publish many messages by one request: an array of them, each of at most 1 MiB; answered when the store has all.",
    _TAG,
    {201: ("They have been stored; the first and the last offset.", {"offsets": [0, 1]}), **_REFUSALS},
    request=[_MESSAGE, _MESSAGE],
    headers=_KEY,
)
READ = RouteDoc(
    "Read messages from a time on (ms since 1970, UTC), bucket by bucket; `next` says where to read on.",
    _TAG,
    {
        200: ("The messages.", {"messages": [_MESSAGE], "next": {"timestamp": 1_700_000_000_000, "o": 1}}),
        401: _UNREGISTERED,
        404: _NO_CHANNEL,
        422: ("The time or a number cannot be.", {"detail": "n must be a whole number from 1 to 10000"}),
        429: _GUESSES,
        503: _AWAY,
    },
    query={
        "o": "How many messages to pass over; 0 if it is left out.",
        "n": "How many to give at most, up to 10000; 100 if it is left out.",
        "wait_ms": "How long to wait for a message when there is none, up to 30000.",
    },
    headers=_KEY,
)
