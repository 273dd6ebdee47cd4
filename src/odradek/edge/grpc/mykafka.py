"""MyKafka's door (seed 001): the service `mykafka.Broker`, seven calls. Any broker of a cluster answers all of them.

An answer says in its own words what went wrong; gRPC's status is for calls that could not be answered at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import Message

from odradek.broker.broker import Broker
from odradek.broker.mykafka import MyKafkaBroker, Offsets
from odradek.broker.mykafka_sending import MyKafkaSending, UnsureError
from odradek.controller.image import PartitionLimits
from odradek.edge.config import GrpcDoorConfig
from odradek.edge.grpc.forwarding import (
    Forwarding,
    RefusedError,
    is_forwarded,
    refuse,
    time_left_s,
)
from odradek.edge.grpc.guarding import Context
from odradek.edge.grpc.mykafka_errors import OK, error_of, topic_error_of
from odradek.edge.grpc.mykafka_info import read_offsets, render
from odradek.model import TopicPartition
from odradek.proto import mykafka_pb2 as pb
from odradek.wire.errors import PeerError

_NAME = "mykafka.Broker"
_CHANGE_SECONDS_MAX = 30.0  # for the controller, where the caller sets no deadline
_INFO_SECONDS_MAX = 5.0  # for the other brokers to say how far their partitions reach
_ANSWER_BYTES_MORE = 1_024  # of a message beside a payload or a text


class MyKafkaDoor:
    """The service."""

    name = _NAME

    def __init__(self, broker: Broker, config: GrpcDoorConfig) -> None:
        self._port = MyKafkaBroker(broker)
        self._sending = MyKafkaSending(broker)
        self._forwarding = Forwarding(self._port, config)
        self._message_bytes_max = config.max_grpc_message_bytes

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[Any, Any]]:
        """The seven methods."""
        return {
            "SendMessage": _method(self._send, pb.SendMessageRequest, pb.SendMessageResponse),
            "GetMessage": _method(self._get, pb.GetMessageRequest, pb.GetMessageResponse),
            "GetOffsets": _method(self._get_offsets, pb.GetOffsetsRequest, pb.GetOffsetsResponse),
            "CreatePartition": _method(self._create, pb.TopicPartitionRequest, pb.Error),
            "DeletePartition": _method(self._delete, pb.TopicPartitionRequest, pb.Error),
            "DeleteTopic": _method(self._delete_topic, pb.TopicPartitionRequest, pb.Error),
            "BrokerInfo": _method(self._info, pb.Void, pb.BrokerInfoResponse),
        }

    async def close(self) -> None:
        """Hang up on other brokers."""
        await self._forwarding.close()

    # Messages.

    async def _send(self, request: pb.SendMessageRequest, context: Context) -> pb.SendMessageResponse:
        try:  # the usual case, by the shortest way: this broker leads the partition
            return await self._send_here(request, context)
        except PeerError as error:
            if isinstance(error, UnsureError):
                return pb.SendMessageResponse(error=error_of(error))
        place = TopicPartition(request.topic, request.partition)
        there = (f"/{_NAME}/SendMessage", request, pb.SendMessageResponse.FromString)
        try:
            return await self._forwarding.answer(
                place, context, lambda: self._send_here(request, context), there, may_repeat=False
            )
        except PeerError as error:
            return pb.SendMessageResponse(error=self._error(error, place))
        except RefusedError as error:
            await refuse(context, error)

    async def _send_here(self, request: pb.SendMessageRequest, context: Context) -> pb.SendMessageResponse:
        offset = await self._sending.send(request.topic, request.partition, request.payload, time_left_s(context))
        return pb.SendMessageResponse(error=OK, offset=offset)

    async def _get(self, request: pb.GetMessageRequest, context: Context) -> pb.GetMessageResponse:
        place = TopicPartition(request.topic, request.partition)

        async def here() -> pb.GetMessageResponse:
            payload = await self._port.read(place, request.offset)
            if len(payload) + _ANSWER_BYTES_MORE > self._message_bytes_max:
                text = (
                    f"the message at offset {request.offset} of {place} has {len(payload)} bytes: more than "
                    f"max.grpc.message.bytes = {self._message_bytes_max} lets through"
                )
                raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            return pb.GetMessageResponse(error=OK, payload=payload)

        there = (f"/{_NAME}/GetMessage", request, pb.GetMessageResponse.FromString)
        try:
            return await self._forwarding.answer(place, context, here, there, may_repeat=True)
        except PeerError as error:
            return pb.GetMessageResponse(error=self._error(error, place))
        except RefusedError as error:
            await refuse(context, error)

    async def _get_offsets(self, request: pb.GetOffsetsRequest, context: Context) -> pb.GetOffsetsResponse:
        place = TopicPartition(request.topic, request.partition)

        async def here() -> pb.GetOffsetsResponse:
            first, commit, last = self._port.offsets(place)
            return pb.GetOffsetsResponse(first_offset=first, commit_offset=commit, last_offset=last, error=OK)

        there = (f"/{_NAME}/GetOffsets", request, pb.GetOffsetsResponse.FromString)
        try:
            return await self._forwarding.answer(place, context, here, there, may_repeat=True)
        except PeerError as error:
            return pb.GetOffsetsResponse(error=self._error(error, place))
        except RefusedError as error:
            await refuse(context, error)

    def _error(self, error: PeerError, place: TopicPartition) -> pb.Error:
        return error_of(error, self._port.offline_reason(place))

    # Partitions.

    async def _create(self, request: pb.TopicPartitionRequest, context: Context) -> pb.Error:
        place = TopicPartition(request.topic, request.partition)
        limits = PartitionLimits(request.max_segment_size, request.max_partition_size, request.segment_ttl)
        try:
            await self._port.create(place, limits, _change_s(context))
        except PeerError as error:
            return topic_error_of(error)
        return OK

    async def _delete(self, request: pb.TopicPartitionRequest, context: Context) -> pb.Error:
        try:
            await self._port.delete(TopicPartition(request.topic, request.partition), _change_s(context))
        except PeerError as error:
            return topic_error_of(error)
        return OK

    async def _delete_topic(self, request: pb.TopicPartitionRequest, context: Context) -> pb.Error:
        try:
            await self._port.delete_topic(request.topic, _change_s(context))
        except PeerError as error:
            return topic_error_of(error)
        return OK

    # The whole cluster.

    async def _info(self, request: pb.Void, context: Context) -> pb.BrokerInfoResponse:
        described = [each async for each in self._port.describe()]
        learnt: dict[TopicPartition, Offsets] = {}
        if is_forwarded(context):
            described = [
                each for each in described if each.offsets is not None
            ]  # for the others they have to ask others
        else:
            left_s = time_left_s(context)
            timeout_s = _INFO_SECONDS_MAX if left_s is None else min(left_s, _INFO_SECONDS_MAX)
            answers = await asyncio.gather(*(self._ask(peer, request, timeout_s) for peer in self._port.peers()))
            for answer in answers:
                learnt |= answer
        text = render(described, learnt, self._message_bytes_max - _ANSWER_BYTES_MORE)
        return pb.BrokerInfoResponse(error=OK, dump=text)

    async def _ask(self, peer: int, request: pb.Void, timeout_s: float) -> dict[TopicPartition, Offsets]:
        address = self._port.address(peer)
        if address is None:
            return {}
        method = f"/{_NAME}/BrokerInfo"
        answer = await self._forwarding.ask(address, method, request, pb.BrokerInfoResponse.FromString, timeout_s)
        return {} if answer is None else read_offsets(answer.dump)


def _change_s(context: Context) -> float:
    left_s = time_left_s(context)
    return _CHANGE_SECONDS_MAX if left_s is None else left_s


def _method(call: Callable[..., Any], request: type[Message], answer: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(call, request.FromString, answer.SerializeToString)
