"""A client in a process of its own, to be killed in the middle of its streams: `python -m tests.grpc.streamer ...`.

`publish` sends values 0, 1, 2, ... until it is ended; `subscribe` opens streams and reads none of them. It says
`ready` when its streams are under way.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from odradek.proto import eeylops_pb2 as ey
from tests.grpc.doors import Doors

ROOT = Path(__file__).parents[2]
VALUES_A_REQUEST = 100
REQUESTS_BEFORE_READY = 50


def numbered(topic: int, partition: int, said: threading.Event) -> Iterator[ey.ProduceRequest]:
    """Requests without end."""
    for at in itertools.count():
        first = at * VALUES_A_REQUEST
        values = [b"%d" % number for number in range(first, first + VALUES_A_REQUEST)]
        if at == REQUESTS_BEFORE_READY:
            said.set()
        yield ey.ProduceRequest(topic_id=topic, partition_id=partition, values=values)


def main() -> None:
    """Do it until the process is ended."""
    kind, address, topic, partition, streams = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    doors, said = Doors(address), threading.Event()
    if kind == "publish":
        threading.Thread(target=lambda: said.wait() and print("ready", flush=True), daemon=True).start()
        doors.eeylops.Publish(numbered(topic, partition, said))
        return
    asked = ey.ConsumeRequest(topic_id=topic, partition_id=partition, batch_size=10)
    opened = [doors.eeylops.Subscribe(asked) for _ in range(streams)]
    for stream in opened:
        next(stream)
    print("ready", flush=True)
    threading.Event().wait()


def start(kind: str, address: str, topic: int, partition: int = 1, streams: int = 1) -> subprocess.Popen[str]:
    """Start one, and wait until its streams are under way."""
    command = [sys.executable, "-m", "tests.grpc.streamer", kind, address, str(topic), str(partition), str(streams)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """End it as a power cut would."""
    process.kill()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


if __name__ == "__main__":
    main()
