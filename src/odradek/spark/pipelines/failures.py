"""Spark's errors in one line: what it says itself, without plans, stack traces and the names of exceptions around it.

Also tells faults that pass by themselves, a broker that is away, from those that stay.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from odradek.wire.errors import ErrorCode

_MESSAGE_MAX = 600

# The last line of a Python traceback, which Spark carries within the text of its own error.
_RAISED = re.compile(r"^(?:\w+\.)*?(?P<name>[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (?P<text>.*)$", re.MULTILINE)
_OURS = re.compile(r"^(?:odradek\.[\w.]+)\.(?P<name>\w+): (?P<text>.*)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_CODE = re.compile(r"\(([A-Z_]+)\)\s*$")  # a broker's answer, at the end of our errors
_PASSING = frozenset({"UnreachableError", "BrokerUnavailableError", "TimedOutError"})
_STAYING_CODES = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)  # of a topic that is gone
_CALLED = re.compile(r"^An error occurred while calling \S+\s*: ")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL)
_STAGE_FAILED = re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\)(?: \([^)]*\))?: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\.?")
_POSITION = re.compile(r"\.?;\s*line (\d+) pos (\d+);?$")
_JAVA_NAME = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")


class Failure(NamedTuple):
    """Why a step or a query failed."""

    message: str
    passing: bool  # whether it may succeed later without anybody's doing

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Read Spark's error, or any other."""
        text = str(getattr(error, "desc", None) or error)
        ours = list(_OURS.finditer(text))
        raised = ours or (list(_RAISED.finditer(text)) if _TRACEBACK in text else [])
        passing = type(error).__name__ in _PASSING or any(map(_passes, ours))
        return Failure(_shortened(_message(text, raised[-1] if raised else None)), passing)


def _passes(raised: re.Match[str]) -> bool:
    code = _CODE.search(raised["text"])
    if code is None or code[1] not in ErrorCode.__members__:
        return raised["name"] in _PASSING
    return ErrorCode[code[1]].retriable and ErrorCode[code[1]] not in _STAYING_CODES


def _message(text: str, raised: re.Match[str] | None) -> str:
    if raised is not None:
        own = raised.re is _OURS
        return raised["text"] if own else f"{raised['name']}: {raised['text']}"
    text = _STREAM_FAILED.sub("", _CALLED.sub("", text.strip()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark gives no reason"
    line = _JAVA_NAME.sub("", _STAGE_FAILED.sub("", lines[0]))
    return _POSITION.sub(r" (line \1, position \2 of the query)", _SQLSTATE.sub("", line))


def _shortened(text: str) -> str:
    text = text.strip().rstrip(";")
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}..."
