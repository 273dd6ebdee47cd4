"""What can be wrong with a record batch, by who has to act on it.

Every function of this package that reads bytes raises one of these and nothing else; a door or the log
maps them to its own answer (Kafka: CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, ...).
"""


class RecordError(Exception):
    """The bytes of a record batch cannot be taken as they are."""


class CorruptBatchError(RecordError):
    """The batch is damaged: bad CRC, impossible length, truncated bytes, or a magic that we do not read."""


class InvalidRecordError(RecordError):
    """The batch arrived whole, but what stands inside breaks a rule of the format."""


class KeylessRecordsError(InvalidRecordError):
    """Records without a key where every record needs one; `indexes` counts them from the start of their batch."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(
            f"record {indexes[0]} of the batch has no key; a compacted topic needs one in every record"
            if len(indexes) == 1
            else f"{len(indexes)} records of the batch have no key; a compacted topic needs one in every record"
        )
        self.indexes = indexes


class UnsupportedCodecError(RecordError):
    """The batch names a compression codec that does not exist (ids 5 to 7, or an unknown name)."""


class BatchTooLargeError(RecordError):
    """The batch grows beyond the allowed size when it is decompressed."""
