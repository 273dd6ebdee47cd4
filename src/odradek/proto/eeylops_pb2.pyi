from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCodes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KNoError: _ClassVar[ErrorCodes]
    KErrInvalidArg: _ClassVar[ErrorCodes]
    KErrNotLeader: _ClassVar[ErrorCodes]
    KErrBackend: _ClassVar[ErrorCodes]
    KErrReplication: _ClassVar[ErrorCodes]
    KErrTopicNotFound: _ClassVar[ErrorCodes]
    KErrTopicExists: _ClassVar[ErrorCodes]
    KErrPartitionNotFound: _ClassVar[ErrorCodes]
    KErrConsumerNotRegistered: _ClassVar[ErrorCodes]
    KErrInvalidClusterId: _ClassVar[ErrorCodes]
    KErrTransport: _ClassVar[ErrorCodes]
    KErrTimeout: _ClassVar[ErrorCodes]
KNoError: ErrorCodes
KErrInvalidArg: ErrorCodes
KErrNotLeader: ErrorCodes
KErrBackend: ErrorCodes
KErrReplication: ErrorCodes
KErrTopicNotFound: ErrorCodes
KErrTopicExists: ErrorCodes
KErrPartitionNotFound: ErrorCodes
KErrConsumerNotRegistered: ErrorCodes
KErrInvalidClusterId: ErrorCodes
KErrTransport: ErrorCodes
KErrTimeout: ErrorCodes

class Error(_message.Message):
    __slots__ = ("error_code", "error_msg", "leader_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MSG_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: ErrorCodes
    error_msg: str
    leader_id: int
    def __init__(self, error_code: _Optional[_Union[ErrorCodes, str]] = ..., error_msg: _Optional[str] = ..., leader_id: _Optional[int] = ...) -> None: ...

class NodeConfig(_message.Message):
    __slots__ = ("id", "host", "port")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    id: int
    host: str
    port: int
    def __init__(self, id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ClusterConfig(_message.Message):
    __slots__ = ("node_config_list", "leader_id")
    NODE_CONFIG_LIST_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    node_config_list: _containers.RepeatedCompositeFieldContainer[NodeConfig]
    leader_id: int
    def __init__(self, node_config_list: _Optional[_Iterable[_Union[NodeConfig, _Mapping]]] = ..., leader_id: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic_id", "topic_name", "partition_ids", "ttl_seconds")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    topic_name: str
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    ttl_seconds: int
    def __init__(self, topic_id: _Optional[int] = ..., topic_name: _Optional[str] = ..., partition_ids: _Optional[_Iterable[int]] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("offset", "timestamp", "value")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp: int
    value: bytes
    def __init__(self, offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class RemoveTopicRequest(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class RemoveTopicResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("topic_name", "sync")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    sync: bool
    def __init__(self, topic_name: _Optional[str] = ..., sync: _Optional[bool] = ...) -> None: ...

class GetTopicResponse(_message.Message):
    __slots__ = ("error", "topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: Error
    topic: Topic
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class GetAllTopicsRequest(_message.Message):
    __slots__ = ("sync",)
    SYNC_FIELD_NUMBER: _ClassVar[int]
    sync: bool
    def __init__(self, sync: _Optional[bool] = ...) -> None: ...

class GetAllTopicsResponse(_message.Message):
    __slots__ = ("error", "topics")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("topic_id", "partition_id", "values")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition_id: int
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class RegisterConsumerRequest(_message.Message):
    __slots__ = ("consumer_id", "topic_id", "partition_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    topic_id: int
    partition_id: int
    def __init__(self, consumer_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ...) -> None: ...

class RegisterConsumerResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("consumer_id", "topic_id", "partition_id", "batch_size", "start_offset", "start_timestamp", "end_timestamp", "auto_commit", "resume_from_last_committed_offset")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    AUTO_COMMIT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FROM_LAST_COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    topic_id: int
    partition_id: int
    batch_size: int
    start_offset: int
    start_timestamp: int
    end_timestamp: int
    auto_commit: bool
    resume_from_last_committed_offset: bool
    def __init__(self, consumer_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., batch_size: _Optional[int] = ..., start_offset: _Optional[int] = ..., start_timestamp: _Optional[int] = ..., end_timestamp: _Optional[int] = ..., auto_commit: _Optional[bool] = ..., resume_from_last_committed_offset: _Optional[bool] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("error", "values", "next_offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    values: _containers.RepeatedCompositeFieldContainer[Value]
    next_offset: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("topic_id", "partition_id", "consumer_id", "offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition_id: int
    consumer_id: str
    offset: int
    def __init__(self, topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., consumer_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class LastCommittedRequest(_message.Message):
    __slots__ = ("topic_id", "partition_id", "consumer_id", "sync")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition_id: int
    consumer_id: str
    sync: bool
    def __init__(self, topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., consumer_id: _Optional[str] = ..., sync: _Optional[bool] = ...) -> None: ...

class LastCommittedResponse(_message.Message):
    __slots__ = ("error", "offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    offset: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class GetBrokerRequest(_message.Message):
    __slots__ = ("topic_id", "partition_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partition_id: int
    def __init__(self, topic_id: _Optional[int] = ..., partition_id: _Optional[int] = ...) -> None: ...

class GetLeaderRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLeaderResponse(_message.Message):
    __slots__ = ("error", "leader_config")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    error: Error
    leader_config: NodeConfig
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., leader_config: _Optional[_Union[NodeConfig, _Mapping]] = ...) -> None: ...

class GetClusterConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterConfigResponse(_message.Message):
    __slots__ = ("error", "config")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    error: Error
    config: ClusterConfig
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., config: _Optional[_Union[ClusterConfig, _Mapping]] = ...) -> None: ...
