"""Tells the broker how far a pipeline has come: its offsets are committed to the group that is called as it is.

For those who look on (lag in /metrics, `odradek group describe`): the checkpoint is the truth, and nothing is read from
here. A broker that does not answer costs nothing but the commit. The slowest of a pipeline's queries counts.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping
from contextlib import suppress

from odradek.client.client import Client
from odradek.model import TopicPartition

COMMIT_MS_MAX = 5_000
END_SECONDS_MAX = 10.0

_log = logging.getLogger("odradek.spark")

ByBootstrap = Mapping[str, Mapping[TopicPartition, int]]


class Observation:
    """Commits in a thread of its own, so that a broker that is away holds nothing up; only the newest matters."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._wanted: queue.SimpleQueue[ByBootstrap | None] = queue.SimpleQueue()
        self._committed: dict[str, Mapping[TopicPartition, int]] = {}
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="odradek-observation", daemon=True)
        self._thread.start()

    def commit(self, positions: ByBootstrap) -> None:
        """Commit soon."""
        self._wanted.put(positions)

    def close(self) -> None:
        """Commit what is left to commit, and end."""
        self._wanted.put(None)
        self._thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        while (positions := self._newest()) is not None:
            for bootstrap, wanted in positions.items():
                if wanted and self._committed.get(bootstrap) != wanted:
                    self._commit(bootstrap, wanted)

    def _newest(self) -> ByBootstrap | None:
        positions = self._wanted.get()
        with suppress(queue.Empty):
            while positions is not None:
                following = self._wanted.get_nowait()
                if following is None:
                    self._wanted.put(None)  # first what came before the end
                    break
                positions = following
        return positions

    def _commit(self, bootstrap: str, wanted: Mapping[TopicPartition, int]) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._send(bootstrap, wanted), COMMIT_MS_MAX / 1000))
            self._committed[bootstrap] = wanted
        except Exception as error:
            if str(error) != self._complaint:  # once is enough
                _log.warning("the offsets could not be committed to group %s: %s", self._group, error)
            self._complaint = str(error)

    async def _send(self, bootstrap: str, wanted: Mapping[TopicPartition, int]) -> None:
        async with Client(bootstrap, client_id="odradek-pipeline", timeout_ms=COMMIT_MS_MAX) as client:
            await client.admin.set_group_offsets(self._group, dict(wanted))
