"""What MyKafka's codes say of an error of the broker: one table, used by all seven calls."""

from __future__ import annotations

from odradek.broker.mykafka import NoMessageError
from odradek.log.errors import DamagedLogError
from odradek.proto import mykafka_pb2 as pb
from odradek.wire.errors import ErrorCode, PeerError

OK = pb.Error(code=pb.OK)
_INDEXES = (".index", ".timeindex")
_MISSING = ("No such file", "missing")  # how the system, and the log, say that a file is not there

_CODES = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: pb.INVALID_FILENAME,
    ErrorCode.TOPIC_ALREADY_EXISTS: pb.TOPIC_ERROR,
    ErrorCode.TOPIC_DELETION_DISABLED: pb.TOPIC_ERROR,
    ErrorCode.INVALID_REQUEST: pb.TOPIC_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: pb.NOT_FOUND,
    ErrorCode.MESSAGE_TOO_LARGE: pb.LOG_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: pb.LOG_ERROR,
    ErrorCode.INVALID_RECORD: pb.LOG_ERROR,
    ErrorCode.CORRUPT_MESSAGE: pb.LOG_ERROR,
}  # all others: the partition cannot do this now


def error_of(problem: PeerError, offline: Exception | None = None) -> pb.Error:
    """An error as it stands in an answer; `offline` says why the files of the partition cannot be used, if so."""
    if isinstance(problem, NoMessageError):
        code = pb.NO_MESSAGE
    elif problem.code is ErrorCode.KAFKA_STORAGE_ERROR:
        code = _storage_code(offline or problem.__cause__)
    else:
        code = _CODES.get(problem.code, pb.PARTITION_ERROR)
    return pb.Error(code=code, msg=problem.message)


def topic_error_of(problem: PeerError) -> pb.Error:
    """The same where a partition is made or deleted: one that is not there is an error of the topic."""
    error = error_of(problem)
    return pb.Error(code=pb.TOPIC_ERROR, msg=error.msg) if error.code == pb.NOT_FOUND else error


def _storage_code(reason: BaseException | None) -> pb.Code:
    """Which file of a partition is at fault."""
    if any(word in str(reason) for word in _MISSING):
        return pb.FILE_NOT_FOUND
    if isinstance(reason, DamagedLogError):
        return pb.INDEX_ERROR if reason.path.endswith(_INDEXES) else pb.LOG_ERROR
    return pb.FILE_ERROR
