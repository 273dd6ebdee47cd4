"""What a batch of metadata records has changed, for those who act on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.controller.image import (
    ADD_PARTITIONS,
    BROKER_SHUTDOWN,
    CREATE_TOPIC,
    DELETE_PARTITION,
    DELETE_TOPIC,
    FENCE_BROKER,
    PARTITION_CHANGE,
    REGISTER_BROKER,
    SET_BROKER_CONFIGS,
    SET_TOPIC_CONFIGS,
    UNFENCE_BROKER,
    UNREGISTER_BROKER,
    ClusterImage,
    MetadataRecord,
)
from odradek.controller.image_archive import ARCHIVE_SEGMENT, FORGET_ARCHIVED
from odradek.model import TopicPartition

_TOPICS = frozenset({
    CREATE_TOPIC, DELETE_TOPIC, ADD_PARTITIONS, DELETE_PARTITION, SET_TOPIC_CONFIGS,
})  # fmt: skip
_PARTITIONS = frozenset({PARTITION_CHANGE, ARCHIVE_SEGMENT, FORGET_ARCHIVED})
_BROKERS = frozenset({
    REGISTER_BROKER, FENCE_BROKER, UNFENCE_BROKER, BROKER_SHUTDOWN,
    UNREGISTER_BROKER,
})  # fmt: skip


@dataclass(slots=True)
class Changes:
    """Names of what is no longer as it was; look it up in the image, where it may be gone."""

    topics: set[str] = field(default_factory=set)  # made, deleted, or with other settings or partitions
    partitions: set[TopicPartition] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    configs: bool = False  # the settings of all brokers
    everything: bool = False  # a snapshot was loaded: compare all of it

    def __bool__(self) -> bool:
        return bool(self.topics or self.partitions or self.brokers or self.configs or self.everything)

    def take(self, image: ClusterImage, record: MetadataRecord, offset: int) -> None:
        """Apply a record to the image and note what it changes."""
        body = record.body
        if record.type == DELETE_TOPIC:
            self._note_partitions(image, body["topic_name"])
        image.apply(record, offset)
        if record.type in _TOPICS:
            self.topics.add(body["topic_name"])
            if record.type == DELETE_PARTITION:  # a topic may have thousands that are as they were
                self.partitions.add(TopicPartition(body["topic_name"], int(body["partition"])))
            elif record.type == ADD_PARTITIONS and isinstance(body["partitions"], list):
                self.partitions.update(
                    TopicPartition(body["topic_name"], int(each["partition"])) for each in body["partitions"]
                )
            else:
                self._note_partitions(image, body["topic_name"])
        elif record.type in _PARTITIONS:
            name = image.names[bytes.fromhex(body["topic_id"])]
            self.partitions.add(TopicPartition(name, int(body["partition"])))
        elif record.type in _BROKERS:
            self.brokers.add(int(body["broker_id"]))
        elif record.type == SET_BROKER_CONFIGS:
            self.configs = True

    def _note_partitions(self, image: ClusterImage, name: str) -> None:
        topic = image.topics.get(name)
        if topic is not None:
            self.partitions.update(TopicPartition(name, index) for index in topic.partitions)
