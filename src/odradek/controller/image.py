"""The cluster's metadata as one value, made from records and from nothing else.

Pure: the same records give the same image on every broker. Names of the record types `create-topic` and
`delete-topic`, with `topic_name` in their body, are SSKafka's; the others are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CREATE_TOPIC = "create-topic"
DELETE_TOPIC = "delete-topic"
ADD_PARTITIONS = "add-partitions"
SET_TOPIC_CONFIGS = "set-topic-configs"
SET_BROKER_CONFIGS = "set-broker-configs"
PRODUCER_IDS = "producer-ids"
CLUSTER = "cluster"


class MetadataError(Exception):
    """The metadata on the disk cannot be understood; the message names the file, the line and what to do."""


class MetadataRecord(NamedTuple):
    """One change, as it stands in the log: what happened, and to what."""

    type: str
    body: Mapping[str, Any]


@dataclass(slots=True)
class TopicImage:
    """One topic."""

    name: str
    id: bytes  # 16 bytes, never used again
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)  # only what the topic sets for itself


@dataclass(slots=True)
class ClusterImage:
    """All that the metadata records have said so far."""

    cluster_id: str = ""
    topics: dict[str, TopicImage] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)  # names that had a topic once and have none now
    broker_configs: dict[str, str] = field(default_factory=dict)
    next_producer_id: int = 0

    def apply(self, record: MetadataRecord) -> None:
        """Take one change; KeyError, TypeError or ValueError if it is not one."""
        body = record.body
        match record.type:
            case "create-topic":
                name = str(body["topic_name"])
                topic = TopicImage(
                    name, bytes.fromhex(body["topic_id"]), int(body["partitions"]), _texts(body["configs"])
                )
                self.topics[name] = topic
                self.deleted.discard(name)
            case "delete-topic":
                del self.topics[body["topic_name"]]
                self.deleted.add(body["topic_name"])
            case "add-partitions":
                self.topics[body["topic_name"]].partition_count = int(body["partitions"])
            case "set-topic-configs":
                self.topics[body["topic_name"]].configs = _texts(body["configs"])
            case "set-broker-configs":
                self.broker_configs = _texts(body["configs"])
            case "producer-ids":
                self.next_producer_id = int(body["next"])
            case "cluster":
                self.cluster_id = str(body["cluster_id"])
            case _:
                raise ValueError(f"there is no record type {record.type!r}")


def _texts(configs: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in configs.items()}
