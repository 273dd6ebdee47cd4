"""Topics and records as Katar's door (seed 000) needs them of a broker: settings, batches of values, reads with a wait.

Nothing is kept for whoever reads: where he stands comes with each call. Partitions are those that this broker leads;
what is refused is refused by PeerError. How records are written stands in `broker.value_writing`, how they are read in
`broker.katar_reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from odradek.broker.broker import Broker
from odradek.broker.value_writing import ValueWriter
from odradek.client.partitioner import partition_of_key
from odradek.controller.image import TopicImage
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.settings_rows import SETTINGS
from odradek.wire.errors import ErrorCode, PeerError

_FIND_TIMEOUT_MS = 5_000  # for the active controller to say whether there is a topic

Plain: TypeAlias = "bool | int | float | str"  # a setting's value as JSON has it


class Description(NamedTuple):
    """A topic, and the settings in force for it."""

    name: str
    partitions: int
    replication_factor: int
    config: dict[str, Plain]
    overrides: list[str]  # the settings that it has for itself; all others are the broker's defaults


class KatarBroker(ValueWriter):
    """A broker for Katar's door."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._turn = 0  # values without a key go to one partition after another, a request each

    # Topics.

    def topics(self) -> list[str]:
        """The names of all topics but the brokers' own."""
        return sorted(name for name in self._broker.metadata.image.topics if name not in INTERNAL_TOPICS)

    def has(self, name: str) -> bool:
        """Whether there is a topic that people may use."""
        return name in self._broker.metadata.image.topics and name not in INTERNAL_TOPICS

    def _image(self, name: str) -> TopicImage:
        topic = self._broker.metadata.image.topics.get(name)
        if topic is None or name in INTERNAL_TOPICS:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def describe(self, name: str) -> Description:
        """A topic with its settings."""
        topic = self._image(name)
        settings = self._broker.settings.with_overrides(topic.configs)
        config: dict[str, Plain] = {}
        for setting in SETTINGS.values():
            if setting.scope == "topic":
                value = settings.values[setting.name]
                config[setting.name] = setting.text(value) if isinstance(value, frozenset) else value
        factor = max((len(role.replicas) for role in topic.partitions.values()), default=0)
        return Description(name, topic.partition_count, factor, config, sorted(topic.configs))

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str | None]
    ) -> str:
        """Make a topic and say what it is called: a name that is taken gets `__0` behind it, or the next free number.

        Two who ask for one name at once each get a topic of their own.
        """
        overrides = _without_nulls(self._checked(config))
        candidate, number = name, 0
        while True:
            if candidate not in self._broker.metadata.image.topics or candidate in INTERNAL_TOPICS:
                try:
                    await self._broker.create_topic(
                        candidate, partitions, overrides, replication_factor=replication_factor
                    )
                    return candidate
                except PeerError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
            candidate, number = f"{name}__{number}", number + 1

    async def find_topic(self, name: str) -> None:
        """See that there is such a topic; somebody else may be making it at this moment, or have made it elsewhere."""
        if not self.has(name) and name not in INTERNAL_TOPICS:
            await self._broker.change("find-topic", {"name": name}, _FIND_TIMEOUT_MS)
        self._image(name)

    async def ensure_topic(self, name: str) -> None:
        """Make a topic on its first use, where the broker is told to."""
        if await self._is_there(name):
            return
        if not self._broker.config.auto_create_topics_enable:
            raise PeerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {name!r}, and auto.create.topics.enable is false: create it with POST /topic",
            )
        try:
            await self._broker.create_topic(name, -1, {})
        except PeerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self.find_topic(name)

    async def _is_there(self, name: str) -> bool:
        try:
            await self.find_topic(name)
        except PeerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    async def replace_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Give a topic exactly these settings; all others go back to their defaults."""
        self._image(name)
        await self._broker.set_topic_overrides(name, _without_nulls(self._checked(config)))

    async def change_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change only these settings of a topic; None takes one back to its default."""
        self._image(name)
        changes = self._checked(config)
        await self._broker.set_topic_overrides(name, lambda present: _without_nulls({**present, **changes}))

    def _checked(self, config: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Refuse what no topic can set, also where it is only to be reset."""
        for name, value in config.items():
            setting = SETTINGS.get(name)
            if value is None and (setting is None or setting.scope != "topic"):
                self._broker.check_overrides({name: ""})
        return config

    async def delete_topic(self, name: str) -> None:
        """Take a topic away with all its records."""
        self._image(name)
        await self._broker.delete_topic(name)

    # Who leads.

    def partitions(self, name: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return sorted(self._image(name).partitions)

    def leads(self, place: TopicPartition) -> bool:
        """Say whether this broker leads a partition; False for one that does not exist."""
        found = self._broker.topics.get(place.topic)
        replica = None if found is None else found.partitions.get(place.partition)
        return replica is not None and replica.is_leader and not self._broker.is_fenced

    def leader_url(self, place: TopicPartition) -> tuple[str, int] | None:
        """Where the HTTP door of another broker is that leads a partition; None without one.

        Also None where this broker is to lead, and does not yet.
        """
        image = self._broker.metadata.image
        role = image.partition(*place)
        leader = None if role is None or role.leader == self._broker.node_id else image.brokers.get(role.leader)
        return None if leader is None else leader.http

    # Publishing.

    def choose(self, topic: str, key: bytes | None, wanted: int | None) -> TopicPartition:
        """The partition for a request's values: the one that is named, the key's, or the next one that has a leader."""
        partitions = self._image(topic).partitions
        if wanted is not None:
            if wanted not in partitions:
                raise PeerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {wanted}: they are "
                    f"{', '.join(map(str, sorted(partitions)))}"
                )  # fmt: skip
            return TopicPartition(topic, wanted)
        if len(partitions) == 1:
            return TopicPartition(topic, next(iter(partitions)))
        numbers = sorted(partitions)
        if key is not None:
            return TopicPartition(topic, numbers[partition_of_key(key, len(numbers))])
        self._turn += 1
        led = [number for number in numbers if partitions[number].leader >= 0] or numbers
        return TopicPartition(topic, led[self._turn % len(led)])


def _without_nulls(config: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in config.items() if value is not None}
