from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Code]
    INVALID_FILENAME: _ClassVar[Code]
    FILE_NOT_FOUND: _ClassVar[Code]
    FILE_ERROR: _ClassVar[Code]
    INDEX_ERROR: _ClassVar[Code]
    LOG_ERROR: _ClassVar[Code]
    PARTITION_ERROR: _ClassVar[Code]
    TOPIC_ERROR: _ClassVar[Code]
    NOT_FOUND: _ClassVar[Code]
    NO_MESSAGE: _ClassVar[Code]
OK: Code
INVALID_FILENAME: Code
FILE_NOT_FOUND: Code
FILE_ERROR: Code
INDEX_ERROR: Code
LOG_ERROR: Code
PARTITION_ERROR: Code
TOPIC_ERROR: Code
NOT_FOUND: Code
NO_MESSAGE: Code

class Error(_message.Message):
    __slots__ = ("code", "msg")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MSG_FIELD_NUMBER: _ClassVar[int]
    code: Code
    msg: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., msg: _Optional[str] = ...) -> None: ...

class SendMessageRequest(_message.Message):
    __slots__ = ("producer_id", "group_id", "topic", "partition", "payload")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    group_id: int
    topic: str
    partition: int
    payload: bytes
    def __init__(self, producer_id: _Optional[int] = ..., group_id: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class SendMessageResponse(_message.Message):
    __slots__ = ("error", "offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    offset: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("consumer_id", "group_id", "topic", "partition", "offset")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    group_id: int
    topic: str
    partition: int
    offset: int
    def __init__(self, consumer_id: _Optional[int] = ..., group_id: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GetMessageResponse(_message.Message):
    __slots__ = ("error", "payload")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    error: Error
    payload: bytes
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class GetOffsetsRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class GetOffsetsResponse(_message.Message):
    __slots__ = ("first_offset", "commit_offset", "last_offset", "error")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    commit_offset: int
    last_offset: int
    error: Error
    def __init__(self, first_offset: _Optional[int] = ..., commit_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class TopicPartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "max_segment_size", "max_partition_size", "segment_ttl")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MAX_SEGMENT_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_PARTITION_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TTL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    max_segment_size: int
    max_partition_size: int
    segment_ttl: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., max_segment_size: _Optional[int] = ..., max_partition_size: _Optional[int] = ..., segment_ttl: _Optional[int] = ...) -> None: ...

class Void(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerInfoResponse(_message.Message):
    __slots__ = ("error", "dump")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DUMP_FIELD_NUMBER: _ClassVar[int]
    error: Error
    dump: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., dump: _Optional[str] = ...) -> None: ...
