"""Eeylops' service (seed 004) over gRPC: topics by number, values in batches and streams, consumers that commit.

Every method answers with an Error of its own; a gRPC status other than OK means that the call itself went wrong. What
the methods do stands in `broker.eeylops_topics`, `eeylops_writing`, `eeylops_reading` and `broker.consumers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from odradek.broker.broker import Broker
from odradek.broker.consumers import Consumers
from odradek.broker.eeylops_reading import ConsumeSpec, EeylopsReading
from odradek.broker.eeylops_topics import EeylopsTopics, NodeView, TopicView
from odradek.broker.eeylops_writing import EeylopsWriting, PublishError, PublishStream, Request
from odradek.broker.value_cursor import Batch
from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.eeylops_errors import NOBODY, Subject, error_of
from odradek.edge.grpc.guarding import Context
from odradek.proto import eeylops_pb2 as pb
from odradek.wire.errors import ErrorCode, PeerError

FOLLOWER = "odradek-follower"  # metadata of a call: any replica may answer
STORED = "odradek-stored"  # metadata behind Publish: so many requests, from the first on, are stored
_SECONDS_MAX = 30.0  # for a call without a deadline
_DEADLINE_PART = 0.9  # of what is left: the answer that says what happened must arrive, too
_OK = pb.Error(error_code=pb.KNoError, leader_id=NOBODY)


class EeylopsDoor:
    """All methods of `eeylops.EeylopsService`."""

    name = "eeylops.EeylopsService"

    def __init__(self, broker: Broker, reading: EeylopsReading, consumers: Consumers, config: GrpcDoorConfig) -> None:
        self._topics = EeylopsTopics(broker)
        self._writing = EeylopsWriting(broker, self._topics)
        self._reading = reading
        self._consumers = consumers
        self._config = config
        self._streams: set[asyncio.Timeout] = set()  # each ends one stream
        self._is_closed = False

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        """The methods by name."""
        unary: dict[str, tuple[Callable[..., Awaitable[Message]], type[Message]]] = {
            "CreateTopic": (self._create_topic, pb.CreateTopicRequest),
            "RemoveTopic": (self._remove_topic, pb.RemoveTopicRequest),
            "GetTopic": (self._get_topic, pb.GetTopicRequest),
            "GetAllTopics": (self._get_all_topics, pb.GetAllTopicsRequest),
            "RegisterConsumer": (self._register_consumer, pb.RegisterConsumerRequest),
            "Consume": (self._consume, pb.ConsumeRequest),
            "Commit": (self._commit, pb.CommitRequest),
            "GetLastCommitted": (self._get_last_committed, pb.LastCommittedRequest),
            "GetBroker": (self._get_broker, pb.GetBrokerRequest),
            "GetLeader": (self._get_leader, pb.GetLeaderRequest),
            "GetClusterConfig": (self._get_cluster_config, pb.GetClusterConfigRequest),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(method, asked.FromString, _encoded)
            for name, (method, asked) in unary.items()
        }
        handlers["Produce"] = grpc.unary_unary_rpc_method_handler(self._produce, _request, _encoded)
        handlers["Publish"] = grpc.stream_unary_rpc_method_handler(self._publish, _request, _encoded)
        handlers["Subscribe"] = grpc.unary_stream_rpc_method_handler(
            self._subscribe, pb.ConsumeRequest.FromString, _encoded
        )
        return handlers

    async def close(self) -> None:
        """End all streams: their clients are told to ask another broker."""
        self._is_closed = True
        for stream in self._streams:
            stream.reschedule(0)

    # Topics.

    async def _create_topic(self, request: pb.CreateTopicRequest, context: Context) -> Message:
        topic = request.topic

        async def create() -> None:
            if topic.topic_id != 0:
                raise PeerError(ErrorCode.INVALID_REQUEST, "topic_id must be 0: the cluster chooses it")
            await self._topics.create(topic.topic_name, topic.partition_ids, topic.ttl_seconds, _left_ms(context))

        return pb.CreateTopicResponse(error=await self._tried(create()))

    async def _remove_topic(self, request: pb.RemoveTopicRequest, context: Context) -> Message:
        removing = self._topics.remove(request.topic_id, _left_ms(context))
        return pb.RemoveTopicResponse(error=await self._tried(removing))

    async def _get_topic(self, request: pb.GetTopicRequest, context: Context) -> Message:
        try:
            found = await self._topics.topic(request.topic_name, sync=request.sync, timeout_ms=_left_ms(context))
        except PeerError as error:
            return pb.GetTopicResponse(error=error_of(error, self._topics))
        return pb.GetTopicResponse(error=_OK, topic=_topic(found))

    async def _get_all_topics(self, request: pb.GetAllTopicsRequest, context: Context) -> Message:
        try:
            found = await self._topics.topics(sync=request.sync, timeout_ms=_left_ms(context))
        except PeerError as error:
            return pb.GetAllTopicsResponse(error=error_of(error, self._topics))
        return pb.GetAllTopicsResponse(error=_OK, topics=map(_topic, found))

    # Brokers.

    async def _get_broker(self, request: pb.GetBrokerRequest, context: Context) -> Message:
        try:
            found = await self._topics.leader(request.topic_id, request.partition_id, _left_ms(context))
        except PeerError as error:
            return pb.GetLeaderResponse(error=error_of(error, self._topics))
        return pb.GetLeaderResponse(error=_OK, leader_config=_node(found))

    async def _get_leader(self, _request: pb.GetLeaderRequest, _context: Context) -> Message:
        try:
            found = self._topics.controller()
        except PeerError as error:
            return pb.GetLeaderResponse(error=error_of(error, self._topics))
        return pb.GetLeaderResponse(error=_OK, leader_config=_node(found))

    async def _get_cluster_config(self, _request: pb.GetClusterConfigRequest, _context: Context) -> Message:
        nodes, leader_id = self._topics.nodes()
        config = pb.ClusterConfig(node_config_list=map(_node, nodes), leader_id=leader_id)
        return pb.GetClusterConfigResponse(error=_OK, config=config)

    # Writing.

    async def _produce(self, request: Request, context: Context) -> Message:
        producing = self._writing.produce(request, _left_ms(context))
        return pb.ProduceResponse(error=await self._tried(producing, _subject(request)))

    async def _publish(self, requests: AsyncIterator[Request], context: Context) -> Message:
        stream = PublishStream(self._writing, self._config.max_grpc_stream_bytes)
        error = _OK
        try:
            async with self._while_open():
                await stream.run(requests)
        except PublishError as failed:
            error = error_of(failed.error, self._topics, _subject(failed.request))
        except PeerError as closed:
            error = error_of(closed, self._topics)
        if error is not _OK:
            error.error_msg += f" ({stream.stored} requests are stored)"
        context.set_trailing_metadata(((STORED, str(stream.stored)),))
        return pb.ProduceResponse(error=error)

    # Consumers.

    async def _register_consumer(self, request: pb.RegisterConsumerRequest, context: Context) -> Message:
        async def register() -> None:
            place, key = await self._topics.find_place(request.topic_id, request.partition_id, _left_ms(context))
            await self._consumers.register(request.consumer_id, place, _left_s(context), topic_id=key)

        return pb.RegisterConsumerResponse(error=await self._tried(register(), _subject(request)))

    async def _commit(self, request: pb.CommitRequest, context: Context) -> Message:
        async def commit() -> None:
            place, key = await self._topics.find_place(request.topic_id, request.partition_id, _left_ms(context))
            await self._consumers.commit(request.consumer_id, place, request.offset, _left_s(context), topic_id=key)

        return pb.CommitResponse(error=await self._tried(commit(), _subject(request)))

    async def _get_last_committed(self, request: pb.LastCommittedRequest, context: Context) -> Message:
        try:
            place, key = await self._topics.find_place(request.topic_id, request.partition_id, _left_ms(context))
            offset = await self._consumers.last_committed(
                request.consumer_id, place, _left_s(context), sync=request.sync, topic_id=key
            )
        except PeerError as error:
            return pb.LastCommittedResponse(error=error_of(error, self._topics, _subject(request)), offset=NOBODY)
        return pb.LastCommittedResponse(error=_OK, offset=offset)

    # Reading.

    async def _consume(self, request: pb.ConsumeRequest, context: Context) -> Message:
        try:
            await self._topics.find(request.topic_id, _left_ms(context))
            place = self._topics.place(request.topic_id, request.partition_id)
            batch = await self._reading.consume(
                place, _spec(request), follower=_allows_follower(context), timeout_s=_left_s(context)
            )
        except PeerError as error:
            return pb.ConsumeResponse(error=error_of(error, self._topics, _subject(request)), next_offset=NOBODY)
        return _batch(batch)

    async def _subscribe(self, request: pb.ConsumeRequest, context: Context) -> None:
        next_offset, is_sending = NOBODY, False
        try:
            await self._topics.find(request.topic_id, _left_ms(context))
            place = self._topics.place(request.topic_id, request.partition_id)
            async with self._while_open():
                batches = self._reading.subscribe(place, _spec(request), follower=_allows_follower(context))
                async with aclosing(batches):
                    async for batch in batches:
                        next_offset = batch.next_offset
                        is_sending = True
                        await context.write(_batch(batch))
                        is_sending = False
        except PeerError as error:
            if is_sending:  # the door closes, and gRPC takes nothing behind an answer that its reader does not take
                await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
            told = error_of(error, self._topics, _subject(request))
            await context.write(pb.ConsumeResponse(error=told, next_offset=next_offset))

    # What they share.

    async def _tried(self, doing: Awaitable[object], subject: Subject | None = None) -> pb.Error:
        try:
            await doing
        except PeerError as error:
            return error_of(error, self._topics, subject)
        return _OK

    @asynccontextmanager
    async def _while_open(self) -> AsyncIterator[None]:
        """Go on until the door closes; then it is a PeerError."""
        stream = asyncio.timeout(None)
        try:
            async with stream:
                self._streams.add(stream)
                if self._is_closed:
                    stream.reschedule(0)
                yield
        except TimeoutError:
            if not stream.expired():
                raise
            raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, "this broker stops: ask another one") from None
        finally:
            self._streams.discard(stream)


# Messages and what they say.


def _encoded(answer: Message) -> bytes:
    return answer.SerializeToString()


def _request(raw: bytes) -> Request:
    message = pb.ProduceRequest.FromString(raw)
    return Request(message.topic_id, message.partition_id, message.values, len(raw))


def _subject(
    request: Request | pb.ConsumeRequest | pb.RegisterConsumerRequest | pb.CommitRequest | pb.LastCommittedRequest,
) -> Subject:
    return Subject(request.topic_id, request.partition_id)


def _topic(topic: TopicView) -> pb.Topic:
    return pb.Topic(
        topic_id=topic.id,
        topic_name=topic.name,
        partition_ids=topic.partition_ids,
        ttl_seconds=topic.ttl_seconds,
    )


def _node(node: NodeView) -> pb.NodeConfig:
    return pb.NodeConfig(id=node.id, host=node.host, port=node.port)


def _spec(request: pb.ConsumeRequest) -> ConsumeSpec:
    return ConsumeSpec(
        consumer_id=request.consumer_id,
        batch_size=request.batch_size,
        start_offset=request.start_offset,
        start_timestamp=request.start_timestamp,
        end_timestamp=request.end_timestamp,
        auto_commit=request.auto_commit,
        resume=request.resume_from_last_committed_offset,
    )


def _batch(batch: Batch) -> pb.ConsumeResponse:
    answer = pb.ConsumeResponse(error=_OK, next_offset=batch.next_offset)
    add = answer.values.add
    for offset, timestamp, value in batch.values:
        add(offset=offset, timestamp=timestamp, value=value)
    return answer


def _allows_follower(context: Context) -> bool:
    return any(key == FOLLOWER and value == "1" for key, value in context.invocation_metadata() or ())


def _left_s(context: Context) -> float:
    """How long a call may take."""
    left_s = context.time_remaining()
    return _SECONDS_MAX if left_s is None else min(max(left_s, 0.0) * _DEADLINE_PART, _SECONDS_MAX)


def _left_ms(context: Context) -> int:
    return max(1, int(_left_s(context) * 1000))
