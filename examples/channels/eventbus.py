"""Event bus: many channels, and listeners that name them by patterns; a channel that is made later is heard, too.

python -m examples.channels.eventbus
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from fnmatch import fnmatchcase

from examples.channels.places import store_of
from odradek.objects import (
    ChannelReader,
    ChannelSpec,
    ChannelWriter,
    ObjectStore,
    create_channel,
    delete_channel,
    list_channels,
)


class Listener:
    """Hears all channels whose names fit a pattern."""

    def __init__(self, store: ObjectStore, pattern: str) -> None:
        self._store = store
        self._pattern = pattern
        self._readers: dict[str, ChannelReader] = {}

    def poll(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Give what is new: the channel's name and the event."""
        for name in list_channels(self._store):
            if name not in self._readers and fnmatchcase(name, self._pattern):
                self._readers[name] = ChannelReader(self._store, name, start=0, poll_ms=50)
        for name, reader in self._readers.items():
            for message in reader.poll():
                yield name, json.loads(message.value or b"{}")


def main() -> None:
    """Publish to three channels and listen by two patterns."""
    with store_of("Listeners hear the channels that fit their patterns.") as store:
        bus = f"bus-{secrets.token_hex(4)}"
        events = {f"{bus}.orders.made": 3, f"{bus}.orders.paid": 2, f"{bus}.users.born": 4}
        listeners = {"orders": Listener(store, f"{bus}.orders.*"), "everything": Listener(store, f"{bus}.*")}
        try:
            for name, count in events.items():
                _publish(store, name, count)
            for title, listener in listeners.items():
                heard = sorted(name.removeprefix(f"{bus}.") for name, _ in listener.poll())
                print(f"{title}: {', '.join(heard)}")
        finally:
            for name in events:
                delete_channel(store, name)


def _publish(store: ObjectStore, name: str, count: int) -> None:
    spec = ChannelSpec(name=name, id=secrets.token_hex(16), slice_ms=200)
    create_channel(store, spec)
    with ChannelWriter(store, spec) as writer:
        for number in range(count):
            writer.publish(json.dumps({"event": name, "number": number}).encode())


if __name__ == "__main__":
    main()
