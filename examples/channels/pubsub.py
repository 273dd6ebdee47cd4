"""Pub/sub: one publishes, and every reader gets every message.

python -m examples.channels.pubsub
"""

from __future__ import annotations

import json
import threading

from examples.channels.places import channel_in, store_of
from odradek.objects import ChannelReader, ChannelSpec, ChannelWriter, ObjectStore

MESSAGES = 20


def main() -> None:
    """Let three readers follow what one writer sends."""
    with store_of("One publishes, three subscribe.") as store, channel_in(store, "news") as spec:
        start = 0  # from the beginning of the channel: nobody can come too late
        seen: dict[str, list[int]] = {name: [] for name in ("ann", "bob", "eve")}
        readers = [threading.Thread(target=_follow, args=(store, spec, start, numbers)) for numbers in seen.values()]
        for reader in readers:
            reader.start()
        with ChannelWriter(store, spec) as writer:
            for number in range(MESSAGES):
                writer.publish(json.dumps({"number": number}).encode())
        for reader in readers:
            reader.join()
        for name, numbers in seen.items():
            which = "all" if sorted(numbers) == list(range(MESSAGES)) else f"only {numbers}"
            print(f"{name} has read {len(numbers)} messages: {which}")


def _follow(store: ObjectStore, spec: ChannelSpec, start: int, numbers: list[int]) -> None:
    reader = ChannelReader(store, spec.name, start=start, poll_ms=50)
    for message in reader.follow():
        numbers.append(json.loads(message.value or b"{}")["number"])
        if len(numbers) == MESSAGES:
            return


if __name__ == "__main__":
    main()
