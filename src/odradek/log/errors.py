"""What can go wrong between a log and those who use it. Each error names the partition's files or offsets."""

from __future__ import annotations

from odradek.model import Offset


class LogError(Exception):
    """The base of all errors of the log."""


class OffsetOutOfRangeError(LogError):
    """An offset that this log does not have: deleted already, or not written yet."""

    def __init__(self, directory: str, offset: Offset, log_start: Offset, next_offset: Offset) -> None:
        super().__init__(f"{directory} has the offsets {log_start} to {next_offset - 1}, not {offset}")
        self.offset = offset
        self.log_start = log_start
        self.next_offset = next_offset


class DamagedLogError(LogError):
    """Bytes on the disk are not what was written. They are never served."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogStoppedError(LogError):
    """A write or a flush failed earlier: what is on the disk is in doubt until the log is opened again."""

    def __init__(self, directory: str, cause: Exception) -> None:
        super().__init__(f"{directory} takes no more records: {cause}")
        self.cause = cause


class LogClosedError(LogError):
    """The log was closed; another process may own its files by now."""


class LogDeletedError(LogError):
    """The partition is deleted; nobody failed."""


class OutOfOrderSequenceError(LogError):
    """An idempotent producer skipped a sequence number: a batch before this one is missing."""


class StaleProducerEpochError(LogError):
    """A newer instance of this producer has written already; this one is fenced."""


class StaleLeaderEpochError(LogError):
    """Somebody appends as the leader of an epoch that is over."""
