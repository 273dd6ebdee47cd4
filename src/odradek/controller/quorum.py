"""Drives the Raft machine: the shell that persists, sends and applies what `odradek.raft` decides.

One task takes all that has arrived, steps the machine through it, makes the outcome durable in a thread with one
fsync, then sends and answers, then applies. While the disk works more arrives, and shares the next fsync. A disk that
fails ends it: `failed` is told, and nothing leaves this broker any more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any

from odradek.client.http import HttpError
from odradek.clock import Clock
from odradek.controller.applier import Applier
from odradek.controller.config import QuorumConfig
from odradek.controller.files import MetadataFiles
from odradek.controller.image import CLUSTER, MetadataRecord
from odradek.controller.quorum_disk import persist
from odradek.controller.quorum_errors import LostError, NotLeaderError, QuorumStoppedError
from odradek.controller.quorum_reading import committed_after, describe, majority_ms, refusal_of
from odradek.controller.quorum_wire import body_text, decode_request, decode_response, encode_request, encode_response
from odradek.controller.quorum_wire import is_ours as is_from_a_broker
from odradek.controller.transport import HttpTransport, RefusedError, Transport
from odradek.controller.voter_lists import VoterLists
from odradek.disk.interface import Disk
from odradek.raft import messages
from odradek.raft.machine import Raft, RaftConfig, Stored
from odradek.raft.messages import NO_NODE, Effects, Event, FetchRequest, Persist, Request, Response, SnapshotId
from odradek.wire.errors import ErrorCode, PeerError

_ENTRIES_MAX = 1_000  # in one answer
_SNAPSHOT_FETCH_MS = 30_000
_GOODBYE_SECONDS = 1.0  # for the others to hear that the leader leaves
_PAUSE_SECONDS_MAX = 60.0  # between looks at whether a snapshot is due

logger = logging.getLogger(__name__)


class Quorum:
    """One member of the metadata quorum: a voter, or an observer."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        disk: Disk,
        directory: str,
        clock: Clock,
        chance: Random,
        apply: Applier,
        failed: Callable[[Exception], None],
        transport: Transport | None = None,
    ) -> None:
        self.config = config
        self.voters = config.voters
        self.applied_offset = 0  # <= high_watermark
        self._voter_lists = VoterLists(config.named_voters, config.node_id)
        self._clock = clock
        self._chance = chance
        self._applier = apply
        self._failed = failed
        self._files = MetadataFiles(disk, directory, config.node_id, config.voters)
        self._transport = transport or HttpTransport(config.voters, lambda: self.cluster_id, config.secret)
        self._raft: Raft | None = None
        self._inbox: list[Event] = []
        self._arrived = asyncio.Event()
        self._tickets = 0
        self._requests: dict[int, asyncio.Future[Response]] = {}
        self._proposals: dict[int, asyncio.Future[int]] = {}
        self._uncommitted: dict[int, int] = {}  # ticket -> where its entries end
        self._tasks: dict[asyncio.Task[None], Request | None] = {}  # sends, and work on snapshots
        self._runner: asyncio.Task[None] | None = None
        self._resigned: asyncio.Future[None] | None = None  # done when this node leads no longer, before it closes
        self._threads = ThreadPoolExecutor(2, "quorum")
        self._failure: Exception | None = None
        self._is_closed = False
        self._state_is_old = False  # quorum-state does not know the cluster's id yet
        self._applied_epoch = -1
        self._bytes_since_snapshot = 0
        self._snapshot_ms = clock.now_ms()
        self._is_taking_snapshot = False
        self._complaints: dict[int, HttpError | PeerError] = {}  # the last of each peer's refusals

    # What it knows.

    @property
    def raft(self) -> Raft:
        """The machine; there is one after `start`."""
        assert self._raft is not None, "the quorum is used after start()"
        return self._raft

    @property
    def node_id(self) -> int:
        """Who we are."""
        return self.config.node_id

    @property
    def role(self) -> str:
        """What we are at present, as Raft names it."""
        return self.raft.role

    @property
    def epoch(self) -> int:
        """The latest epoch that we have heard of."""
        return self.raft.epoch

    @property
    def leader_id(self) -> int:
        """Whom we take for the leader; -1: nobody."""
        return NO_NODE if self._raft is None else self._raft.leader_id

    @property
    def high_watermark(self) -> int:
        """Below this offset all is committed, as far as we have heard."""
        return self.raft.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset behind our last entry."""
        return self.raft.end_offset

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty while none is known."""
        return self._files.cluster_id

    def majority_ms(self) -> int:
        """Until when, by the loop's clock, a majority of the voters has been heard of, if this one leads."""
        return majority_ms(self.raft, self._now())

    @property
    def is_stopped(self) -> bool:
        """Whether it is closed, or its disk has failed."""
        return self._is_closed or self._failure is not None

    @property
    def differing_voters(self) -> dict[str, list[str]]:
        """Lists of voters that are not ours, by who has them."""
        return self._voter_lists.differing

    @property
    def directory_id(self) -> str:
        """The id of the data directory: another one has none of what this one holds."""
        return self._files.directory_id

    @property
    def refusal(self) -> str | None:
        """What the leader or each of the others says, if it says that we are of another cluster, or not one of them."""
        return refusal_of(self._complaints, set(self.voters) - {self.node_id}, self.leader_id)

    def describe(self) -> dict[str, Any]:
        """The state of the quorum as this node sees it, as JSON can hold it."""
        return describe(self, self._now(), self._clock.now_ms())

    # Life.

    async def start(self) -> None:
        """Read the directory and begin. MetadataError or DiskError if it cannot be read."""
        loop = asyncio.get_running_loop()
        loaded = await loop.run_in_executor(self._threads, self._files.load)
        stored = Stored(loaded.quorum_state, loaded.log_start, loaded.entries)
        self._saved_state = loaded.quorum_state
        config = RaftConfig(
            node_id=self.config.node_id,
            voters=frozenset(self.voters),
            election_timeout_ms=self.config.election_timeout_ms,
            fetch_timeout_ms=self.config.fetch_timeout_ms,
            fetch_wait_ms=self.config.fetch_wait_ms,
            max_entries=_ENTRIES_MAX,
        )
        self._raft = Raft(config, stored, self._chance, self._now())
        if loaded.image is not None:
            self._load(loaded.log_start, loaded.image)
        self._runner = asyncio.create_task(self._run())

    async def close(self, *, resign: bool = True) -> None:
        """End everything; a leader says so to the others first, unless told not to."""
        if self._is_closed:
            return
        if resign and self._runner is not None and self._failure is None and self.role == "leader":
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._say_goodbye()
        self._is_closed = True
        tasks = [task for task in (self._runner, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._abandon(QuorumStoppedError())
        await self._transport.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    async def _say_goodbye(self) -> None:
        self._resigned = asyncio.get_running_loop().create_future()
        self._post(messages.Resign())
        await self._resigned
        farewells = [task for task, sent in self._tasks.items() if isinstance(sent, messages.EndQuorumEpoch)]
        if farewells:
            await asyncio.wait(farewells)

    def _fail(self, error: Exception) -> None:
        """Let nothing leave this broker any more."""
        if self._failure is None and not self._is_closed:
            self._failure = error
            for task in (self._runner, *self._tasks):
                if task is not None and task is not asyncio.current_task():
                    task.cancel()
            self._abandon(QuorumStoppedError())
            self._failed(error)

    def _abandon(self, error: QuorumStoppedError) -> None:
        self._inbox.clear()
        proposals, self._proposals = self._proposals, {}
        requests, self._requests = self._requests, {}
        self._uncommitted.clear()
        for proposal in proposals.values():
            if not proposal.done():
                proposal.set_exception(LostError())
        for request in requests.values():
            if not request.done():
                request.set_exception(error)

    # Requests from outside.

    async def propose(self, records: Sequence[MetadataRecord]) -> int:
        """Have records committed; return the offset behind them when they are applied here.

        NotLeaderError: they went nowhere. LostError: nobody knows.
        """
        if self.is_stopped:
            raise NotLeaderError(NO_NODE)
        self._tickets += 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._proposals[self._tickets] = future
        entries = tuple((record.type, body_text(record.body)) for record in records)
        self._post(messages.Propose(entries, self._tickets))
        return await future

    async def receive(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer /kraft/v1/<name>. PeerError when it cannot be; NotLeaderError is one."""
        if self.is_stopped or self._raft is None:
            raise QuorumStoppedError
        request = decode_request(name, body, self.epoch)
        if not is_from_a_broker(body):
            if isinstance(request, FetchRequest):
                return self._answer_plainly(request)
            return encode_response(await self._ask(request), plain=True)
        self._check_sender(body)
        return self._voter_lists.introduce(encode_response(await self._ask(request), plain=False))

    def resign(self) -> None:
        """Lead no longer, if we do."""
        self._post(messages.Resign())

    def peer_lost(self, node: int) -> None:
        """A connection to or from this node broke: it may have died."""
        self._post(messages.PeerLost(node))

    def _answer_plainly(self, request: FetchRequest) -> dict[str, Any]:
        """Answer at once, and count it as an acknowledgement if a follower asks."""
        if self.role != "leader":
            raise NotLeaderError(self.leader_id)
        if request.replica_id != NO_NODE:
            self._tickets += 1
            self._post(messages.Requested(self._tickets, request))
        return encode_response(committed_after(self.raft, request), plain=True)

    def _check_sender(self, body: Mapping[str, Any]) -> None:
        theirs = body["cluster_id"]
        if theirs and self.cluster_id and theirs != self.cluster_id:
            raise PeerError(
                ErrorCode.INCONSISTENT_CLUSTER_ID, f"this broker is of cluster {self.cluster_id}, not of {theirs}"
            )
        self._voter_lists.note(body)

    async def _ask(self, request: Request) -> Response:
        self._tickets += 1
        ticket = self._tickets
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._requests[ticket] = future
        self._post(messages.Requested(ticket, request))
        try:
            return await future
        finally:
            self._requests.pop(ticket, None)

    def _post(self, event: Event) -> None:
        if not self.is_stopped:
            self._inbox.append(event)
            self._arrived.set()

    # The loop.

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _run(self) -> None:
        try:
            while True:
                await self._wait()
                await self._turn()
        except Exception as error:
            logger.exception("the metadata quorum stops")
            self._fail(error)

    async def _wait(self) -> None:
        """Wait until something has arrived, or until the machine wants to know the time."""
        seconds = (self.raft.next_deadline() - self._now()) / 1000
        if not self._arrived.is_set() and seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, _PAUSE_SECONDS_MAX)):
                    await self._arrived.wait()

    async def _turn(self) -> None:
        self._arrived.clear()
        events, self._inbox = self._inbox, []
        now = self._now()
        if self.raft.next_deadline() <= now:
            events.append(messages.Tick())
        wanted = Effects()
        for event in events:
            effects = self.raft.step(event, now)
            wanted.persist += effects.persist
            wanted.send += effects.send
            wanted.replies += effects.replies
            wanted.apply += effects.apply
        if self._state_is_old:
            self._state_is_old = False
            if not any(isinstance(effect, messages.SaveQuorumState) for effect in wanted.persist):
                wanted.persist.append(messages.SaveQuorumState(self._saved_state))
        await self._persist(wanted.persist)
        for send in wanted.send:
            self._spawn(self._send(send), send.request)
        for reply in wanted.replies:
            self._reply(reply)
        for effect in wanted.apply:
            self._apply(effect)
        self._answer_proposals()
        self._consider_snapshot()
        if self._resigned is not None and not self._resigned.done() and self.role != "leader":
            self._resigned.set_result(None)

    async def _persist(self, wanted: Sequence[Persist]) -> None:
        states = [effect.state for effect in wanted if isinstance(effect, messages.SaveQuorumState)]
        if states:
            self._saved_state = states[-1]
        if wanted:
            await asyncio.get_running_loop().run_in_executor(self._threads, persist, self._files, wanted)

    # Sending.

    def _spawn(self, work: Coroutine[Any, Any, None], request: Request | None = None) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = request
        task.add_done_callback(self._tasks.pop)

    async def _send(self, send: messages.Send) -> None:
        request = send.request
        name, body = encode_request(request, self.cluster_id)
        body = self._voter_lists.introduce(body)
        timeout_ms = self.config.election_timeout_ms
        if isinstance(request, FetchRequest):
            timeout_ms = self.config.fetch_timeout_ms
        elif isinstance(request, messages.SnapshotRequest):
            timeout_ms = _SNAPSHOT_FETCH_MS
        try:
            answer = await self._transport.send(send.node, name, body, timeout_ms)
            response = decode_response(request, answer)
            self._voter_lists.note(answer)
        except (HttpError, PeerError) as error:
            self._complain(send.node, error)
            if isinstance(request, FetchRequest) and _is_lost(error):
                self._post(messages.PeerLost(send.node))
            self._post(messages.Failed(send.node, request))
        except Exception:
            logger.exception("a bug in what asks broker %d", send.node)
            self._post(messages.Failed(send.node, request))
        else:
            self._complaints.pop(send.node, None)
            self._post(messages.Answered(send.node, request, response))

    def _complain(self, node: int, error: HttpError | PeerError) -> None:
        """Log what a person must look at, once; that a broker is down is not news here."""
        if isinstance(error, RefusedError | PeerError) and str(self._complaints.get(node)) != str(error):
            self._complaints[node] = error
            logger.warning("broker %d cannot be asked: %s", node, error)

    def _reply(self, reply: messages.Reply) -> None:
        response = reply.response
        if isinstance(response, messages.SnapshotResponse) and not response.error:
            self._spawn(self._reply_with_snapshot(reply.ticket, response))
            return
        self._resolve(reply.ticket, response)

    async def _reply_with_snapshot(self, ticket: int, response: messages.SnapshotResponse) -> None:
        read = asyncio.get_running_loop().run_in_executor
        data = await read(self._threads, self._files.read_snapshot, response.snapshot)
        self._resolve(ticket, response._replace(data=data, error="" if data is not None else messages.UNKNOWN_SNAPSHOT))

    def _resolve(self, ticket: int, response: Response) -> None:
        waiting = self._requests.pop(ticket, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    # Applying.

    def _apply(self, effect: messages.Apply) -> None:
        match effect:
            case messages.Committed():
                records = [MetadataRecord(entry.type, json.loads(entry.body)) for entry in effect.entries]
                self._applier.applied(effect.start_offset, records)
                self.applied_offset = effect.start_offset + len(records)
                self._applied_epoch = effect.entries[-1].epoch
                self._bytes_since_snapshot += sum(len(entry.body) for entry in effect.entries)
                for record in records:
                    if record.type == CLUSTER:
                        self._join(str(record.body["cluster_id"]))
            case messages.LoadSnapshot():
                self._load(effect.snapshot, json.loads(effect.data))
            case messages.LeaderChanged():
                self._applier.leader_changed(effect.leader_id, effect.epoch)
            case messages.Elected():
                self._applier.elected(effect.epoch)
            case messages.Deposed():
                self._applier.deposed()
            case messages.Proposed():
                self._uncommitted[effect.ticket] = effect.end_offset
            case messages.Refused():
                self._give_up(effect.ticket, NotLeaderError(self.leader_id))
            case messages.Lost():
                self._give_up(effect.ticket, LostError())

    def _load(self, snapshot: SnapshotId, image: Mapping[str, Any]) -> None:
        self._applier.loaded(image, snapshot.end_offset)
        self.applied_offset, self._applied_epoch = snapshot
        self._bytes_since_snapshot = 0
        self._join(str(image["cluster_id"]))

    def _join(self, cluster_id: str) -> None:
        """Remember the cluster beside the votes: whoever forgets it might follow another cluster's leader."""
        if cluster_id and cluster_id != self._files.cluster_id:
            self._files.cluster_id = cluster_id
            self._state_is_old = True
            self._arrived.set()

    def _give_up(self, ticket: int, error: Exception) -> None:
        self._uncommitted.pop(ticket, None)
        proposal = self._proposals.pop(ticket, None)
        if proposal is not None and not proposal.done():
            proposal.set_exception(error)

    def _answer_proposals(self) -> None:
        for ticket, end_offset in list(self._uncommitted.items()):
            if end_offset > self.applied_offset:
                break  # they were proposed in the order of their tickets
            del self._uncommitted[ticket]
            proposal = self._proposals.pop(ticket)
            if not proposal.done():
                proposal.set_result(end_offset)

    # Snapshots.

    def _consider_snapshot(self) -> None:
        if self._is_taking_snapshot or self.applied_offset <= self.raft.log_start.end_offset:
            return
        is_old = self._clock.now_ms() - self._snapshot_ms >= self.config.snapshot_interval_ms
        if is_old or self._bytes_since_snapshot >= self.config.snapshot_bytes:
            self._is_taking_snapshot = True
            self._snapshot_ms = self._clock.now_ms()
            self._bytes_since_snapshot = 0
            snapshot = SnapshotId(self.applied_offset, self._applied_epoch)
            self._spawn(self._take_snapshot(snapshot, self._applier.snapshot()))

    async def _take_snapshot(self, snapshot: SnapshotId, image: dict[str, Any]) -> None:
        def write() -> None:
            self._files.write_snapshot(snapshot, json.dumps(image, separators=(",", ":")).encode() + b"\n")

        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, write)
        except Exception as error:
            self._fail(error)
        else:
            if snapshot.end_offset > self.raft.log_start.end_offset:
                self._post(messages.SnapshotTaken(snapshot))
        finally:
            self._is_taking_snapshot = False


def _is_lost(error: HttpError | PeerError) -> bool:
    """Whether the peer's process may have ended: it answers nothing, and at once."""
    return isinstance(error, HttpError) and error.kind != "timeout" and not isinstance(error, RefusedError)
