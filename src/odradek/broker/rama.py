"""Channels as RAMA's door needs them of a broker. Implements `edge.rest.rama.RamaPort`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.broker import Broker
from odradek.broker.channel_scan import StoredMessage
from odradek.broker.channels import Channels
from odradek.broker.plain import PlainBroker
from odradek.objects.spec import ChannelSpec
from odradek.records.record import NewRecord

_STORE = "channel.store"


class RamaBroker:
    """A broker for RAMA's door."""

    def __init__(self, broker: Broker, channels: Channels) -> None:
        self._broker = broker
        self._channels = channels
        plain = PlainBroker(broker)
        self.leads = plain.leads
        self.leader_url = plain.leader_url
        self.now_ms = broker.clock.now_ms

    def is_channel(self, topic: str) -> bool:
        """Say whether there is such a channel, be it served here or not, or not yet."""
        image = self._broker.metadata.image.topics.get(topic)
        return image is not None and bool(image.configs.get(_STORE, self._broker.settings.values[_STORE]))

    def times(self, topic: str) -> ChannelSpec:
        """How a channel that is led here goes by time."""
        return self._channels.spec(self._broker.topic(topic))

    async def create(self, name: str, *, store: str | None, fifo: bool, overrides: Mapping[str, str]) -> None:
        """Make a channel."""
        await self._channels.create(name, store=store, fifo=fifo, overrides=overrides)

    async def publish(self, name: str, records: Sequence[NewRecord]) -> tuple[int, int]:
        """Store messages in a channel that is led here; give the first and the last offset when the store has them."""
        return await self._channels.publish(name, records, 0)

    async def read(self, name: str, start_ms: int, skip: int, count: int, wait_ms: int) -> Sequence[StoredMessage]:
        """Read messages that are not older than a time, bucket by bucket, in the order of arrival within each."""
        return await self._channels.read(name, start_ms, skip, count, wait_ms)
