"""What goes wrong at a gRPC door, and the codes by which its answers say so.

A broker that is not there is a BrokerUnavailableError, an answer that does not come a TimedOutError, as for Kafka
clients; all are ClientErrors. The codes are those of proto/, written out so that nothing of gRPC is imported for them.
"""

from __future__ import annotations

from enum import IntEnum

from odradek.client.errors import ClientError


class Code(IntEnum):
    """MyKafka's codes; proto/mykafka.proto says what each means."""

    OK = 0
    INVALID_FILENAME = 1
    FILE_NOT_FOUND = 2
    FILE_ERROR = 3
    INDEX_ERROR = 4
    LOG_ERROR = 5
    PARTITION_ERROR = 6
    TOPIC_ERROR = 7
    NOT_FOUND = 8
    NO_MESSAGE = 9


class ErrorCodes(IntEnum):
    """Eeylops' codes; proto/eeylops.proto says what each means."""

    NO_ERROR = 0
    INVALID_ARG = 1
    NOT_LEADER = 2
    BACKEND = 3
    REPLICATION = 4
    TOPIC_NOT_FOUND = 5
    TOPIC_EXISTS = 6
    PARTITION_NOT_FOUND = 7
    CONSUMER_NOT_REGISTERED = 8
    INVALID_CLUSTER_ID = 9
    TRANSPORT = 10
    TIMEOUT = 11


class GrpcError(ClientError):
    """A call ended with a status of gRPC itself: too large, too many calls, no such service."""

    def __init__(self, status: str, details: str, address: str) -> None:
        """`status` is gRPC's name of it, such as RESOURCE_EXHAUSTED."""
        super().__init__(f"{address} ended the call with {status}: {details or 'it does not say why'}")
        self.status = status
        self.details = details


class MyKafkaError(ClientError):
    """MyKafka's door answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        self.code = _known(Code, code)
        self.text = text
        super().__init__(f"{text.rstrip('.')} ({_name(self.code)})")


class EeylopsError(ClientError):
    """Eeylops' door answered with an error."""

    def __init__(self, code: int, text: str, leader_id: int = -1) -> None:
        """`leader_id` is the broker that leads, where that matters; -1: nobody, or it does not matter."""
        self.code = _known(ErrorCodes, code)
        self.text = text
        self.leader_id = leader_id
        super().__init__(f"{text.rstrip('.')} ({_name(self.code)})")


def _known(kind: type[IntEnum], code: int) -> int:
    """The code by its name; one that is newer than this client stays a number."""
    try:
        return kind(code)
    except ValueError:
        return code


def _name(code: int) -> str:
    return code.name if isinstance(code, IntEnum) else f"code {code}"
