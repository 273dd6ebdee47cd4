"""Ordered message passing: a fifo channel gives every message in the order in which it was taken.

python -m examples.channels.ordered
"""

from __future__ import annotations

import json

from examples.channels.places import channel_in, store_of
from odradek.objects import ChannelReader, ChannelWriter

STEPS = 500


def main() -> None:
    """Send numbered steps over many slices and read them in order."""
    about = "Steps arrive in the order in which they were sent."
    with store_of(about) as store, channel_in(store, "steps", fifo=True) as spec:
        with ChannelWriter(store, spec) as writer:
            for number in range(STEPS):
                writer.publish(json.dumps({"step": number}).encode())
                if number % 50 == 49:
                    writer.flush()
        steps: list[int] = []
        for message in ChannelReader(store, spec.name, start=0, poll_ms=50).follow():
            steps.append(json.loads(message.value or b"{}")["step"])
            if len(steps) == STEPS:
                break
        print(f"{len(steps)} steps, {'in order' if steps == list(range(STEPS)) else 'out of order'}")


if __name__ == "__main__":
    main()
