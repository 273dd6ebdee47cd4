"""Queue: readers compete, and each message goes to one of them; what a dead reader had is given to another.

python -m examples.channels.queue
"""

from __future__ import annotations

import json
import threading
from collections import Counter

from examples.channels.places import channel_in, store_of
from odradek.objects import ChannelSpec, ChannelWriter, ObjectStore, QueueReader

JOBS = 200
WORKERS = 4


def main() -> None:
    """Share jobs between four workers."""
    with store_of("Four workers share the jobs of a queue.") as store, channel_in(store, "jobs") as spec:
        with ChannelWriter(store, spec) as writer:
            for number in range(JOBS):
                writer.publish(json.dumps({"job": number}).encode())
                if number % 10 == 9:
                    writer.flush()  # an object is what is leased: more of them are shared better
        done: Counter[int] = Counter()
        shares: Counter[str] = Counter()
        enough = threading.Event()
        together = threading.Barrier(WORKERS)
        workers = [
            threading.Thread(target=_work, args=(store, spec, f"worker-{number}", done, shares, enough, together))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        once = sum(1 for count in done.values() if count == 1)
        print(f"{once} of {JOBS} jobs were done once; at work: {', '.join(sorted(shares))}")


def _work(
    store: ObjectStore,
    spec: ChannelSpec,
    name: str,
    done: Counter[int],
    shares: Counter[str],
    enough: threading.Event,
    together: threading.Barrier,
) -> None:
    queue = QueueReader(store, spec.name, group="workers", owner=name, lease_ms=10_000)
    together.wait()  # or the first one has done it all before the others are there
    while not enough.is_set():
        leased = queue.take()
        if leased is None:
            enough.wait(0.05)  # others have leased what is left
            continue
        for message in leased.messages:
            done[json.loads(message.value or b"{}")["job"]] += 1
        queue.done(leased)
        shares[name] += 1
        if len(done) == JOBS:
            enough.set()


if __name__ == "__main__":
    main()
