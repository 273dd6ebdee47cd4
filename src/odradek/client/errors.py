"""What goes wrong for a client, in words for the person who has to act on it.

Every error that this package raises on account of a broker, the network or a limit is a ClientError. A wrong
argument is a ValueError, as everywhere in Python.
"""

from __future__ import annotations

from odradek.wire.errors import ErrorCode


class ClientError(Exception):
    """A request to a Kafka broker did not succeed; the text says why, and what to do."""


class BrokerUnavailableError(ClientError):
    """No connection to a broker: nobody listens at its address, or the connection broke."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"the broker at {address} cannot be reached: {reason}."
            " Is it running, and is this the address that it listens on?"
        )
        self.address = address
        self.reason = reason


class RequestError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        """`what` is what was asked for ("creating topic orders"), `message` the broker's own words."""
        self.code = error_code(code)
        said = message or self.code.message
        super().__init__(f"{what}: {said.rstrip('.')} ({self.code.name})")
        self.what = what
        self.broker_message = message

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


class UnknownTopicError(RequestError):
    """There is no such topic."""

    def __init__(self, topic: str, *, retriable: bool = False) -> None:
        """`retriable` is for the moment after its creation, in which not every broker knows the topic yet."""
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}", "it does not exist, or not yet; create it first"
        )
        self.topic = topic
        self._retriable = retriable

    @property
    def retriable(self) -> bool:
        """Whether it may appear by itself."""
        return self._retriable


class TimedOutError(ClientError):
    """There was no (good) answer in time."""


class BufferFullError(ClientError):
    """A producer holds as many unsent bytes as it may; `await producer.room()` waits for space."""


def error_code(number: int) -> ErrorCode:
    """The code of a number on the wire; one that is newer than this client is an unknown server error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, what: str, message: str | None = None) -> None:
    """Raise a RequestError unless the number is the one of success."""
    if number != 0:
        raise RequestError(number, what, message)
