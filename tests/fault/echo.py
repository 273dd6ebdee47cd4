"""A stand-in for a broker, to try the harness out with: `python echo.py HOST:PORT` says that it is ready and echoes.

To `ask HOST:PORT` it answers what another one echoes, or `no answer`. SIGTERM ends it with a status of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fault.cluster import ClusterProcesses

STOP_STATUS = 7
ASK = b"ask "
ASK_SECONDS = 0.3


def echo_command(cluster: ClusterProcesses, node: int) -> list[str]:
    """The command line of one node, in the place of `odradek serve`."""
    return [sys.executable, __file__, cluster.address(node, "kafka")]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _answer(client: socket.socket) -> None:
    while data := client.recv(100):
        client.sendall(_ask(data.removeprefix(ASK).decode()) if data.startswith(ASK) else data)


def _ask(address: str) -> bytes:
    try:
        with socket.create_connection(_address(address), ASK_SECONDS) as there:
            there.sendall(b"hello")
            return there.recv(100)
    except OSError:
        return b"no answer"


def main(address: str) -> None:
    """Echo until the end, which comes from outside."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOP_STATUS))
    listener = socket.create_server(_address(address))
    print("odradek ready", flush=True)
    while True:
        threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
