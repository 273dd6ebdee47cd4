"""What a batch of metadata records has changed, for those who act on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.controller import image as records
from odradek.controller.image import ClusterImage, MetadataRecord
from odradek.model import TopicPartition

_TOPICS = frozenset({
    records.CREATE_TOPIC, records.DELETE_TOPIC, records.ADD_PARTITIONS, records.SET_TOPIC_CONFIGS,
})  # fmt: skip
_BROKERS = frozenset({
    records.REGISTER_BROKER, records.FENCE_BROKER, records.UNFENCE_BROKER, records.BROKER_SHUTDOWN,
    records.UNREGISTER_BROKER,
})  # fmt: skip


@dataclass(slots=True)
class Changes:
    """Names of what is no longer as it was; look it up in the image, where it may be gone."""

    topics: set[str] = field(default_factory=set)  # made, deleted, or with other settings or more partitions
    partitions: set[TopicPartition] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    configs: bool = False  # the settings of all brokers
    everything: bool = False  # a snapshot was loaded: compare all of it

    def __bool__(self) -> bool:
        return bool(self.topics or self.partitions or self.brokers or self.configs or self.everything)

    def take(self, image: ClusterImage, record: MetadataRecord, offset: int) -> None:
        """Apply a record to the image and note what it changes."""
        body = record.body
        if record.type == records.DELETE_TOPIC:
            self._note_partitions(image, body["topic_name"])
        image.apply(record, offset)
        if record.type in _TOPICS:
            self.topics.add(body["topic_name"])
            self._note_partitions(image, body["topic_name"])
        elif record.type == records.PARTITION_CHANGE:
            name = image.names[bytes.fromhex(body["topic_id"])]
            self.partitions.add(TopicPartition(name, int(body["partition"])))
        elif record.type in _BROKERS:
            self.brokers.add(int(body["broker_id"]))
        elif record.type == records.SET_BROKER_CONFIGS:
            self.configs = True

    def _note_partitions(self, image: ClusterImage, name: str) -> None:
        topic = image.topics.get(name)
        if topic is not None:
            self.partitions.update(TopicPartition(name, index) for index in topic.partitions)
