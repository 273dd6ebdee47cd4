"""What can go wrong between a Kafka client and a broker: the protocol's error codes, and two exceptions.

The numbers, the names and which errors pass by themselves are Kafka's; the sentences are ours. A PeerError becomes an
error code in an answer; a DecodeError means that the bytes cannot be answered at all.
"""

from __future__ import annotations

from enum import IntEnum

_RETRY = True  # the same request may succeed later, once the client has looked at the metadata again


class ErrorCode(IntEnum):
    """An error as it stands in a response, with a sentence for people and whether to try again."""

    message: str  # what happened, for whoever reads a log
    retriable: bool  # the same request may succeed later

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> ErrorCode:
        """Make a member of its number, its sentence and whether to try again."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "Something went wrong in the broker; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The log does not hold this offset."
    CORRUPT_MESSAGE = 2, "The batch is damaged: its checksum or its size is wrong.", _RETRY
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker has no such topic or partition.", _RETRY
    INVALID_FETCH_SIZE = 4, "The size to fetch is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", _RETRY
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead the partition, or does not hold it.", _RETRY
    REQUEST_TIMED_OUT = 7, "The request was not done in its time.", _RETRY
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available.", _RETRY
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, "The text beside a committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection was lost before the answer came.", _RETRY
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its state.", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", _RETRY
    NOT_COORDINATOR = 16, "Another broker is the coordinator.", _RETRY
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not valid, or the topic cannot be used so."
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync; nothing was written.", _RETRY
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer replicas than required.", _RETRY
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member has no protocol in common with its group."
    INVALID_GROUP_ID = 24, "The group's id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of what the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committed offset does not fit into a batch."
    TOPIC_AUTHORIZATION_FAILED = 29, "Access to the topic is not allowed."
    GROUP_AUTHORIZATION_FAILED = 30, "Access to the group is not allowed."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Access to the cluster is not allowed."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside of what the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit into the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not speak this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is not valid."
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, "A setting is unknown or its value is not valid."
    NOT_CONTROLLER = 41, "Another broker is the controller.", _RETRY
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The format of the records does not allow this."
    POLICY_VIOLATION = 44, "A policy of the cluster forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch of this producer is missing before this one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch was written before."
    INVALID_PRODUCER_EPOCH = 47, "A newer producer of the same id has taken over."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The transactional id belongs to another producer id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, "The transaction before this one is still being ended.", _RETRY
    TRANSACTION_COORDINATOR_FENCED = 52, "Another broker has become the transaction's coordinator."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Use of the transactional id is not allowed."
    SECURITY_DISABLED = 54, "The broker runs without access rules."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, since another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed.", _RETRY
    LOG_DIR_NOT_FOUND = 57, "The broker has no such data directory."
    SASL_AUTHENTICATION_FAILED = 58, "The name or the secret is wrong."
    UNKNOWN_PRODUCER_ID = 59, "The log knows nothing of this producer id any more."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition's replicas are being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "The broker does not use delegation tokens."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be had over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Access to the delegation token is not allowed."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has run out."
    INVALID_PRINCIPAL_TYPE = 67, "Principals of this kind are not known."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is gone: open a new one.", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session expects another epoch: open a new one.", _RETRY
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name that the client used.", _RETRY
    TOPIC_DELETION_DISABLED = 73, "The broker is told not to delete topics."
    FENCED_LEADER_EPOCH = 74, "The client knows an older leader than the broker does.", _RETRY
    UNKNOWN_LEADER_EPOCH = 75, "The client knows a newer leader than the broker does.", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The codec is unknown, or this version of the API does not allow it."
    STALE_BROKER_EPOCH = 77, "The broker has been registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet.", _RETRY
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", _RETRY
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available.", _RETRY
    ELECTION_NOT_NEEDED = 84, "The partition has the leader that it should have.", _RETRY
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition's replicas are not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still reads the topic."
    INVALID_RECORD = 87, "A record breaks a rule of its topic or of the format."
    UNSTABLE_OFFSET_COMMIT = 88, "An offset is part of a transaction that has not ended.", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for now.", _RETRY
    PRODUCER_FENCED = 90, "A newer producer of the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The resource exists already, or is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, "One of the two is not a voter of the quorum."
    INVALID_UPDATE_VERSION = 95, "The version to update is not the current one."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies behind the end of the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker has no topic of this id.", _RETRY
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker of this id is registered and alive."
    BROKER_ID_NOT_REGISTERED = 102, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The log has another topic id.", _RETRY
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", _RETRY
    INELIGIBLE_REPLICA = 107, "The replica may not be in the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change has made another replica the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch has been fenced: join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group's coordinator has no such assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old: take the one of the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, "A controller was asked for brokers, or a broker for controllers."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "There are no endpoints of this type."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription has changed: ask for it again."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The controller refuses the registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed: abort it."
    INVALID_RECORD_STATE = 121, "The record is not in a state that can be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, "The share session is gone: open a new one.", _RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session expects another epoch.", _RETRY
    FENCED_STATE_EPOCH = 124, "The share coordinator knows a newer state epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not that of the replica which got the request."
    DUPLICATE_VOTER = 126, "The voter is part of the quorum already."
    VOTER_NOT_FOUND = 127, "The voter is not part of the quorum."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "Start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The group has a newer topology."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker holds as many share sessions as it may.", _RETRY


class PeerError(Exception):
    """What a client asked for cannot be done; the code goes into its answer."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        """Name the error; without a message of its own it says what the code always means."""
        self.code = code
        self.message = code.message if message is None else message
        super().__init__(code, message)

    def __str__(self) -> str:
        """Show the error as a person would look it up."""
        return f"{self.code.name}: {self.message}"


class DecodeError(Exception):
    """The bytes are not what the protocol says they should be."""
