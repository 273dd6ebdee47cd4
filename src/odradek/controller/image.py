"""The cluster's metadata as one value, made from records and from nothing else.

Pure: the same records give the same image on every broker. Names of the record types `create-topic` and
`delete-topic`, with `topic_name` in their body, are SSKafka's; the others are ours. Partitions and brokers are
values that are replaced, never changed, so that a copy of an image is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from odradek.controller.image_archive import (
    ARCHIVE_DELETED,
    ARCHIVE_SEGMENT,
    FORGET_ARCHIVED,
    PartitionArchive,
    archives_json,
    read_archives,
    read_piece,
)
from odradek.controller.image_partitions import (
    NO_LEADER,
    PartitionImage,
    PartitionLimits,
    bury,
    changed_partition,
    partition_body,
    read_partitions,
)
from odradek.model import INTERNAL_TOPICS

__all__ = [
    "ADD_PARTITIONS",
    "BROKER_SHUTDOWN",
    "CLUSTER",
    "CREATE_TOPIC",
    "DELETE_PARTITION",
    "DELETE_TOPIC",
    "FENCE_BROKER",
    "LEADER_CHANGE",
    "NO_LEADER",
    "NUMBER_TOPICS",
    "PARTITION_CHANGE",
    "PRODUCER_IDS",
    "REGISTER_BROKER",
    "REGISTER_CLIENT",
    "REVOKE_CLIENT",
    "SET_BROKER_CONFIGS",
    "SET_TOPIC_CONFIGS",
    "UNFENCE_BROKER",
    "UNREGISTER_BROKER",
    "Address",
    "BrokerImage",
    "ClusterImage",
    "MetadataError",
    "MetadataRecord",
    "PartitionImage",
    "PartitionLimits",
    "TopicImage",
    "metric_name",
    "partition_body",
]

CREATE_TOPIC = "create-topic"
DELETE_TOPIC = "delete-topic"
ADD_PARTITIONS = "add-partitions"
DELETE_PARTITION = "delete-partition"
NUMBER_TOPICS = "number-topics"
PARTITION_CHANGE = "partition-change"
SET_TOPIC_CONFIGS = "set-topic-configs"
REGISTER_CLIENT = "register-client"
REVOKE_CLIENT = "revoke-client"
SET_BROKER_CONFIGS = "set-broker-configs"
PRODUCER_IDS = "producer-ids"
CLUSTER = "cluster"
REGISTER_BROKER = "register-broker"
FENCE_BROKER = "fence-broker"
UNFENCE_BROKER = "unfence-broker"
BROKER_SHUTDOWN = "broker-shutdown"
UNREGISTER_BROKER = "unregister-broker"
LEADER_CHANGE = "leader-change"  # the quorum's own, at the start of a leader's term; says nothing about the cluster

Address: TypeAlias = tuple[str, int]


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
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)  # only what the topic sets for itself
    clients: dict[bytes, str] = field(default_factory=dict)  # ids of registered clients, by the hash of their keys

    archived: dict[int, PartitionArchive] = field(default_factory=dict)  # of the partitions that have something
    number: int = 0  # counts topics from 1, never used again; 0: the broker's own, or one that has none yet
    gone: dict[int, tuple[int, int]] = field(default_factory=dict)  # deleted partitions: generation, last leader epoch

    @property
    def partition_count(self) -> int:
        """One more than the highest number of a partition; not every number below it has one."""
        return max(self.partitions, default=-1) + 1

    def copy(self) -> TopicImage:
        """The same topic, to be changed apart from this one."""
        return TopicImage(
            self.name,
            self.id,
            dict(self.partitions),
            dict(self.configs),
            dict(self.clients),
            dict(self.archived),
            self.number,
            dict(self.gone),
        )


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker that has registered."""

    id: int
    epoch: int  # the offset of its registration: a later start of the same broker has a higher one
    incarnation: str  # drawn anew at each start of the process
    kafka: Address | None = None
    http: Address | None = None
    rack: str | None = None
    fenced: bool = True  # it may lead nothing, and no client is sent to it
    shutting_down: bool = False  # it is on its way out, and gets nothing new to lead
    directory: str = ""  # drawn when its data directory was new: another one has none of what this one held
    fenced_at: int = -1  # the offset of the record that has fenced it last; -1: nobody had to
    grpc: Address | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may be given something to lead or to hold."""
        return not self.fenced and not self.shutting_down


@dataclass(slots=True)
class ClusterImage:
    """All that the metadata records have said so far."""

    cluster_id: str = ""
    topics: dict[str, TopicImage] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)  # names that had a topic once and have none now
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    broker_configs: dict[str, str] = field(default_factory=dict)
    next_producer_id: int = 0
    doomed_archives: dict[str, str] = field(default_factory=dict)  # topics deleted, objects not yet: names by id in hex
    next_topic_number: int = 1
    names: dict[bytes, str] = field(default_factory=dict, repr=False)  # topic names by id
    numbered: dict[int, str] = field(default_factory=dict, repr=False)  # topic names by number
    metric_names: dict[str, str] = field(default_factory=dict, repr=False)  # by what '.' and '_' make the same

    def apply(self, record: MetadataRecord, offset: int = 0) -> None:
        """Take the change that stands at `offset`; KeyError, TypeError or ValueError if it is not one."""
        apply = _APPLY.get(record.type)
        if apply is None:
            raise ValueError(f"there is no record type {record.type!r}")
        apply(self, record.body, offset)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with this id."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_by_number(self, number: int) -> TopicImage | None:
        """The topic with this number."""
        name = self.numbered.get(number)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition of the topic of this name."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Every partition with its topic and number."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def copy(self) -> ClusterImage:
        """The same image, to be changed apart from this one."""
        return ClusterImage(
            self.cluster_id,
            {name: topic.copy() for name, topic in self.topics.items()},
            set(self.deleted),
            dict(self.brokers),
            dict(self.broker_configs),
            self.next_producer_id,
            dict(self.doomed_archives),
            self.next_topic_number,
            dict(self.names),
            dict(self.numbered),
            dict(self.metric_names),
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON can hold it, for a snapshot; the same image gives the same text."""
        return {
            "cluster_id": self.cluster_id,
            "topics": [_topic_json(self.topics[name]) for name in sorted(self.topics)],
            "deleted": sorted(self.deleted),
            "brokers": [_broker_json(self.brokers[broker_id]) for broker_id in sorted(self.brokers)],
            "broker_configs": dict(sorted(self.broker_configs.items())),
            "next_producer_id": self.next_producer_id,
            "next_topic_number": self.next_topic_number,
            **({"doomed_archives": dict(sorted(self.doomed_archives.items()))} if self.doomed_archives else {}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ClusterImage:
        """The image that `to_json` showed; KeyError, TypeError or ValueError if it is none."""
        image = cls(
            cluster_id=str(content["cluster_id"]),
            deleted={str(name) for name in content["deleted"]},
            broker_configs=_texts(content["broker_configs"]),
            next_producer_id=int(content["next_producer_id"]),
            doomed_archives=_texts(content.get("doomed_archives", {})),
            next_topic_number=int(content.get("next_topic_number", 1)),
        )
        for body in content["topics"]:
            _publish(image, _topic(body))
        for body in content["brokers"]:
            broker = _broker(body, int(body["broker_epoch"]))
            fenced, shutting_down = bool(body["fenced"]), bool(body["shutting_down"])
            fenced_at = int(body.get("fenced_at", -1))
            image.brokers[broker.id] = replace(broker, fenced=fenced, shutting_down=shutting_down, fenced_at=fenced_at)
        return image


def metric_name(topic: str) -> str:
    """What a topic is called where '.' and '_' are the same; no two topics may share it."""
    return topic.replace(".", "_")


# What each record does.


def _create_topic(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = _topic(body)
    if topic.name in image.topics:
        raise ValueError(f"topic {topic.name!r} exists already")
    _publish(image, topic)
    image.deleted.discard(topic.name)


def _delete_topic(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = image.topics.pop(body["topic_name"])
    del image.names[topic.id], image.metric_names[metric_name(topic.name)]
    image.numbered.pop(topic.number, None)
    image.deleted.add(topic.name)
    # Without an announced segment there may be objects, too: of an upload that was cut short.
    if topic.archived or "remote.storage.enable" in {*image.broker_configs, *topic.configs}:
        image.doomed_archives[topic.id.hex()] = topic.name


def _add_partitions(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = image.topics[body["topic_name"]]
    added = read_partitions(body["partitions"], topic.partition_count)
    for index in added:
        if index in topic.partitions:
            raise ValueError(f"{topic.name}-{index} exists already")
        topic.gone.pop(index, None)
    topic.partitions.update(added)


def _delete_partition(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic, index = image.topics[image.names[bytes.fromhex(body["topic_id"])]], int(body["partition"])
    if len(topic.partitions) == 1:
        raise ValueError(f"{topic.name}-{index} is the last one of its topic")
    bury(topic.gone, index, topic.partitions.pop(index))


def _number_topics(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    for topic_id, number in body["numbers"].items():
        _set_number(image, image.topics[image.names[bytes.fromhex(topic_id)]], int(number))


def _partition_change(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = image.topics[image.names[bytes.fromhex(body["topic_id"])]]
    index = int(body["partition"])
    topic.partitions[index] = changed_partition(topic.partitions[index], body)


def _set_topic_configs(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    image.topics[body["topic_name"]].configs = _texts(body["configs"])


def _register_client(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = image.topics[image.names[bytes.fromhex(body["topic_id"])]]
    topic.clients[bytes.fromhex(body["hash"])] = str(body["client_id"])


def _revoke_client(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic = image.topics[image.names[bytes.fromhex(body["topic_id"])]]
    del topic.clients[bytes.fromhex(body["hash"])]


def _archive_segment(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic, index = image.topics[image.names[bytes.fromhex(body["topic_id"])]], int(body["partition"])
    piece = read_piece(body)
    topic.archived[index] = topic.archived.get(index, PartitionArchive(piece.base_offset)).with_piece(piece)


def _forget_archived(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    topic, index = image.topics[image.names[bytes.fromhex(body["topic_id"])]], int(body["partition"])
    topic.archived[index] = topic.archived[index].from_offset(int(body["start"]))


def _archive_deleted(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    del image.doomed_archives[body["topic_id"]]


def _set_broker_configs(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    image.broker_configs = _texts(body["configs"])


def _producer_ids(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    image.next_producer_id = int(body["next"])


def _cluster(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    image.cluster_id = str(body["cluster_id"])


def _register_broker(image: ClusterImage, body: Mapping[str, Any], offset: int) -> None:
    broker = _broker(body, offset)
    image.brokers[broker.id] = broker


def _fence_broker(image: ClusterImage, body: Mapping[str, Any], offset: int) -> None:
    broker = _registered(image, body)
    image.brokers[broker.id] = replace(broker, fenced=True, fenced_at=offset)


def _unfence_broker(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    broker = _registered(image, body)
    image.brokers[broker.id] = replace(broker, fenced=False)


def _broker_shutdown(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    broker = _registered(image, body)
    image.brokers[broker.id] = replace(broker, shutting_down=True)


def _unregister_broker(image: ClusterImage, body: Mapping[str, Any], _offset: int) -> None:
    del image.brokers[_registered(image, body).id]


def _leader_change(_image: ClusterImage, _body: Mapping[str, Any], _offset: int) -> None:
    """The quorum's affair."""


_APPLY: Mapping[str, Callable[[ClusterImage, Mapping[str, Any], int], None]] = {
    CREATE_TOPIC: _create_topic,
    DELETE_TOPIC: _delete_topic,
    ADD_PARTITIONS: _add_partitions,
    DELETE_PARTITION: _delete_partition,
    NUMBER_TOPICS: _number_topics,
    PARTITION_CHANGE: _partition_change,
    SET_TOPIC_CONFIGS: _set_topic_configs,
    REGISTER_CLIENT: _register_client,
    REVOKE_CLIENT: _revoke_client,
    ARCHIVE_SEGMENT: _archive_segment,
    FORGET_ARCHIVED: _forget_archived,
    ARCHIVE_DELETED: _archive_deleted,
    SET_BROKER_CONFIGS: _set_broker_configs,
    PRODUCER_IDS: _producer_ids,
    CLUSTER: _cluster,
    REGISTER_BROKER: _register_broker,
    FENCE_BROKER: _fence_broker,
    UNFENCE_BROKER: _unfence_broker,
    BROKER_SHUTDOWN: _broker_shutdown,
    UNREGISTER_BROKER: _unregister_broker,
    LEADER_CHANGE: _leader_change,
}


# Reading bodies.


def _publish(image: ClusterImage, topic: TopicImage) -> None:
    image.topics[topic.name] = topic
    image.names[topic.id] = topic.name
    image.metric_names[metric_name(topic.name)] = topic.name
    if topic.number:
        _set_number(image, topic, topic.number)


def _set_number(image: ClusterImage, topic: TopicImage, number: int) -> None:
    if number < 1 or topic.name in INTERNAL_TOPICS or image.numbered.get(number, topic.name) != topic.name:
        raise ValueError(f"topic {topic.name!r} cannot have number {number}")
    topic.number = number
    image.numbered[number] = topic.name
    image.next_topic_number = max(image.next_topic_number, number + 1)


def _registered(image: ClusterImage, body: Mapping[str, Any]) -> BrokerImage:
    broker = image.brokers[int(body["broker_id"])]
    if broker.epoch != int(body["broker_epoch"]):
        raise ValueError(f"broker {broker.id} has epoch {broker.epoch}, not {body['broker_epoch']}")
    return broker


def _topic(body: Mapping[str, Any]) -> TopicImage:
    name, topic_id = str(body["topic_name"]), bytes.fromhex(body["topic_id"])
    clients = {bytes.fromhex(hashed): client_id for client_id, hashed in _texts(body.get("clients", {})).items()}
    archived = read_archives(body.get("archived", {}))
    return TopicImage(
        name,
        topic_id,
        read_partitions(body["partitions"], 0),
        _texts(body["configs"]),
        clients,
        archived,
        int(body.get("number", 0)),
        {int(index): (int(generation), int(epoch)) for index, generation, epoch in body.get("gone", ())},
    )


def _topic_json(topic: TopicImage) -> dict[str, Any]:
    clients = sorted((client_id, hashed.hex()) for hashed, client_id in topic.clients.items())
    return {
        "topic_name": topic.name,
        "topic_id": topic.id.hex(),
        **({"number": topic.number} if topic.number else {}),
        "configs": dict(sorted(topic.configs.items())),
        "partitions": [
            partition_body(topic.name, index, topic.partitions[index]) for index in sorted(topic.partitions)
        ],
        **({"gone": [[index, *topic.gone[index]] for index in sorted(topic.gone)]} if topic.gone else {}),
        **({"clients": dict(clients)} if clients else {}),
        **({"archived": archives_json(topic.archived)} if topic.archived else {}),
    }


def _broker(body: Mapping[str, Any], epoch: int) -> BrokerImage:
    rack = body["rack"]
    return BrokerImage(
        int(body["broker_id"]),
        epoch,
        str(body["incarnation"]),
        _address(body["kafka"]),
        _address(body["http"]),
        None if rack is None else str(rack),
        directory=str(body.get("directory", "")),
        grpc=_address(body.get("grpc")),
    )


def _broker_json(broker: BrokerImage) -> dict[str, Any]:
    return {
        "broker_id": broker.id,
        "broker_epoch": broker.epoch,
        "incarnation": broker.incarnation,
        "kafka": None if broker.kafka is None else list(broker.kafka),
        "http": None if broker.http is None else list(broker.http),
        "grpc": None if broker.grpc is None else list(broker.grpc),
        "rack": broker.rack,
        "directory": broker.directory,
        "fenced": broker.fenced,
        "shutting_down": broker.shutting_down,
        "fenced_at": broker.fenced_at,
    }


def _address(content: Any) -> Address | None:
    if content is None:
        return None
    host, port = content
    return str(host), int(port)


def _texts(configs: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in configs.items()}
