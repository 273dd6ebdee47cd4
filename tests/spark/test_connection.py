"""Connections of Spark's Python processes: one for all tasks of a process, patient where a broker was seen before."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.spark import connection
from odradek.spark.connection import ConnectionOptions, connect, connect_first
from odradek.spark.errors import UnreachableError
from tests.process import BrokerProcess

FORKS = """
import os, sys
from odradek.spark.connection import ConnectionOptions, connect

options = ConnectionOptions(sys.argv[1])
mine = connect(options)
child = os.fork()
if child == 0:
    theirs = connect(options)
    os._exit(0 if theirs is not mine and theirs.admin.list_topics() == [] else 1)
assert os.waitpid(child, 0)[1] == 0
assert connect(options) is mine and mine.admin.list_topics() == []
"""


def test_all_tasks_of_a_process_share_one_client(bootstrap: str) -> None:
    options = ConnectionOptions(bootstrap, client_id="shared")
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: connect(options), range(8)))
    assert len(clients) == 1
    assert connect_first(ConnectionOptions(bootstrap, client_id="shared")) in clients
    assert connect(ConnectionOptions(bootstrap, client_id="another")) not in clients
    (client,) = clients
    assert client.cluster.nodes


def test_a_forked_process_has_a_client_of_its_own(bootstrap: str) -> None:
    subprocess.run([sys.executable, "-c", FORKS, bootstrap], check=True, timeout=60)


def test_a_first_contact_gives_up_soon_and_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_CONTACT_MS", 300)
    started = time.monotonic()
    with pytest.raises(
        UnreachableError, match=r"no Kafka broker answered at .* = 127\.0\.0\.1:1 within 0\.3 s: .*refused"
    ):
        connect_first(ConnectionOptions("127.0.0.1:1"))
    assert time.monotonic() - started < 5
    with pytest.raises(UnreachableError, match=r"within 0\.2 s"):
        connect(ConnectionOptions("127.0.0.1:1", timeout_ms=200))


def test_a_task_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    process.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connect, ConnectionOptions(process.bootstrap, timeout_ms=60_000))
        assert not threading.Event().wait(0.3) and not waiting.done()
        with process:
            assert waiting.result(60).admin.list_topics() == []
