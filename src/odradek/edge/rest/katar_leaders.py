"""Publishing and reading wherever the leaders are: any broker of a cluster answers Katar's clients.

What this broker leads is done here; the rest is asked of the leaders by the same paths, marked as forwarded. A request
that was certainly not carried out is tried again for a while: leaders change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader, Positions, Start
from odradek.broker.value_writing import Prepared, Written
from odradek.client.http import HttpError
from odradek.edge.rest import katar_body as forms
from odradek.edge.rest.forwarding import Address, Forwarder
from odradek.edge.rest.katar_errors import problem_of
from odradek.edge.routing import RequestError
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

PUBLISH_PATH, SUBSCRIBE_PATH = "/publish", "/subscribe"
_FORWARD_TIMEOUT_MS = 35_000  # more than a leader waits for its replicas
_LEADER_SECONDS_MAX = 5.0  # for a partition to get a leader that answers
_LEADER_RETRY_SECONDS = 0.1
_UNDONE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE})

Starts = Mapping[TopicPartition, Start]


_NO_HEADERS: Mapping[str, str] = {}


class Reading(NamedTuple):
    """Records, and where to go on."""

    records: list[forms.Shown]
    positions: Positions


class UnansweredError(Exception):
    """A partition's leader has not answered."""

    def __init__(self, text: str, *, is_undone: bool) -> None:
        super().__init__(text)
        self.is_undone = is_undone  # the request has certainly not been carried out


class _Patience:
    """How long to try again."""

    def __init__(self) -> None:
        self._deadline: float | None = None  # begins with the first failure

    async def wait(self) -> bool:
        """Wait a little; False when it has been long enough."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + _LEADER_SECONDS_MAX
        if now >= self._deadline:
            return False
        await asyncio.sleep(_LEADER_RETRY_SECONDS)
        return True


class Leaders:
    """All partitions of the cluster."""

    def __init__(
        self, port: KatarBroker, reader: KatarReader, forwarder: Forwarder, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        """`headers` go with what is passed on."""
        self._port = port
        self._reader = reader
        self._forwarder = forwarder
        self._headers = headers

    def carrying(self, headers: Mapping[str, str]) -> Leaders:
        """The same, for a client whose headers go along: its key is asked for again where its request ends."""
        return Leaders(self._port, self._reader, self._forwarder, headers) if headers else self

    # Publishing.

    async def publish(self, place: TopicPartition, values: list[bytes], key: bytes | None) -> Written:
        """Have values stored by the partition's leader, wherever it is; RequestError if they are not, or may not be."""
        patience = _Patience()
        while True:
            try:
                return await self._publish_once(place, values, key)
            except UnansweredError as error:
                if not error.is_undone or not await patience.wait():
                    raise RequestError(503, str(error)) from None

    async def _publish_once(self, place: TopicPartition, values: list[bytes], key: bytes | None) -> Written:
        if self._port.leads(place):
            try:
                prepared = self._port.prepare(place, values, key)
            except PeerError as error:
                raise _answered(error) from None
            return await self.publish_here(place, prepared)
        content = forms.publish_body(place, values, key)
        answer = await self._ask(self._address(place), PUBLISH_PATH, content, _FORWARD_TIMEOUT_MS)
        return forms.written_from(answer)

    async def publish_here(self, place: TopicPartition, prepared: Prepared) -> Written:
        """Append what was prepared, and wait until it is safe."""
        try:
            written, future = self._port.append(prepared)
            await self._port.safe(place, future)
        except PeerError as error:
            raise problem_of(error) from None
        return written

    # Reading.

    async def read(self, starts: Starts, max_records: int, wait_ms: int) -> Reading:
        """Read from all partitions; wait for the first record of any if there is none."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        patience = _Patience()
        is_first = True  # everybody is asked where he stands before anybody waits
        while True:
            left_ms = 0 if is_first else max(round((deadline - loop.time()) * 1000), 0)
            try:
                groups = self._grouped(starts)
                if len(groups) == 1:
                    ((address, wanted),) = groups.items()
                    return await self._ask_one(address, wanted, max_records, wait_ms if is_first else left_ms)
                found = await (self._each(groups, max_records) if is_first else self._any(groups, max_records, left_ms))
            except UnansweredError as error:
                if not await patience.wait():
                    raise RequestError(503, str(error)) from None
                continue
            starts, is_first = {**starts, **_starts(found.positions)}, False
            if found.records or loop.time() >= deadline:
                return Reading(found.records, {place: start.at for place, start in starts.items()})

    def _grouped(self, starts: Starts) -> dict[Address | None, dict[TopicPartition, Start]]:
        """Partitions by their leaders; None is this broker."""
        groups: dict[Address | None, dict[TopicPartition, Start]] = {}
        for place, start in starts.items():
            address = None if self._port.leads(place) else self._address(place)
            groups.setdefault(address, {})[place] = start
        return groups

    async def _each(self, groups: Mapping[Address | None, Starts], max_records: int) -> Reading:
        """Ask one leader after the other for what is there; also those for whose records there is no room."""
        records: list[forms.Shown] = []
        positions: Positions = {}
        for address, starts in groups.items():
            found = await self._ask_one(address, starts, max_records - len(records), 0)
            records += found.records
            positions |= found.positions
        return Reading(records, positions)

    async def _any(self, groups: Mapping[Address | None, Starts], max_records: int, wait_ms: int) -> Reading:
        """Ask all leaders at once, and take what the first have. Those given up have kept nothing, and lose nothing."""
        tasks = [
            asyncio.create_task(self._ask_one(address, starts, max(max_records // len(groups), 1), wait_ms))
            for address, starts in groups.items()
        ]
        try:
            waiting = set(tasks)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(task.result().records for task in done):
                    break
            ended = [task.result() for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        while sum(len(found.records) for found in ended) > max_records:  # more leaders than records are wanted
            ended.remove(next(found for found in ended if found.records))
        positions: Positions = {}
        for found in ended:
            positions |= found.positions
        return Reading(list(chain.from_iterable(found.records for found in ended)), positions)

    async def _ask_one(self, address: Address | None, starts: Starts, max_records: int, wait_ms: int) -> Reading:
        if address is None:
            return await self.read_here(starts, max_records, wait_ms)
        content = forms.read_body(starts, max_records, wait_ms)
        answer = await self._ask(address, SUBSCRIBE_PATH, content, wait_ms + _FORWARD_TIMEOUT_MS)
        return Reading(*forms.read_answer(answer))

    async def read_here(self, starts: Starts, max_records: int, wait_ms: int) -> Reading:
        """Read partitions that this broker leads."""
        try:
            found, positions = await self._reader.read(starts, max_records, wait_ms)
        except PeerError as error:
            raise _answered(error) from None
        return Reading([forms.shown(each) for each in found], positions)

    # Asking others.

    def _address(self, place: TopicPartition) -> Address:
        address = self._port.leader_url(place)
        if address is None:
            if not self._port.has(place.topic) or place.partition not in self._port.partitions(place.topic):
                raise RequestError(404, f"there is no partition {place.partition} of topic {place.topic!r}")
            raise UnansweredError(f"{place} has no leader at the moment; try again", is_undone=True)
        return address

    async def _ask(self, address: Address, path: str, content: bytes, timeout_ms: int) -> bytes:
        try:
            status, answer = await self._forwarder.send(address, "POST", path, self._headers, content, timeout_ms)
        except HttpError as error:
            is_undone = error.kind == "refused" or path == SUBSCRIBE_PATH
            told = "try again" if is_undone else "whether it has done its work is not known"
            raise UnansweredError(f"a partition's leader: {error}; {told}", is_undone=is_undone) from None
        if status == 421:
            raise UnansweredError("a partition has just changed its leader; try again", is_undone=True)
        if status != 200:
            raise RequestError(status, _detail(answer))
        return answer


def _answered(error: PeerError) -> Exception:
    """What a refusal of this broker's is: one that passes when the next leader is known, or the client's."""
    if error.code in _UNDONE:
        return UnansweredError(error.message, is_undone=True)
    return problem_of(error)


def _starts(positions: Positions) -> dict[TopicPartition, Start]:
    return {place: Start("offset", offset) for place, offset in positions.items()}


def _detail(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.decode("utf-8", "replace")
