"""A client that has no .proto of ours, as grpcurl has none, finds out by reflection what there is and calls it."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.grpc.doors import CALL_SECONDS, Doors
from tests.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("grpc-reflection")

SERVICES = ("eeylops.EeylopsService", "mykafka.Broker")
METHODS = {
    "mykafka.Broker": {
        "SendMessage", "GetMessage", "GetOffsets", "CreatePartition", "DeletePartition", "DeleteTopic", "BrokerInfo",
    },
    "eeylops.EeylopsService": {
        "CreateTopic", "RemoveTopic", "GetTopic", "GetAllTopics", "Produce", "Publish", "RegisterConsumer", "Consume",
        "Subscribe", "Commit", "GetLastCommitted", "GetBroker", "GetLeader", "GetClusterConfig",
    },
}  # fmt: skip
Reflection = reflection_pb2.ServerReflectionRequest


class Curl:
    """Calls by name, with what the server says of itself."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self.pool = DescriptorPool(self.database)

    def call(self, service: str, method: str, **fields: Any) -> Any:
        found: Any = self.pool.FindServiceByName(service).FindMethodByName(method)
        request, answer = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
        ask: Any = self._channel.unary_unary(f"/{service}/{method}", request.SerializeToString, answer.FromString)
        return ask(request(**fields), timeout=CALL_SECONDS)


@pytest.fixture
def curl(doors: Doors) -> Curl:
    return Curl(doors.channel)


def test_the_services_are_listed(curl: Curl) -> None:
    assert {*SERVICES, "grpc.health.v1.Health"} <= set(curl.database.get_services())


@pytest.mark.parametrize("service", SERVICES)
def test_every_call_is_described(curl: Curl, service: str) -> None:
    described = curl.pool.FindServiceByName(service)
    assert {method.name for method in described.methods} == METHODS[service]


@pytest.mark.parametrize("service", SERVICES)
def test_calls_are_found_by_their_full_names(doors: Doors, service: str) -> None:
    names = [f"{service}.{method}" for method in sorted(METHODS[service])]
    asked = [Reflection(file_containing_symbol=name) for name in [*names, f"{service}.NoSuchCall", "no.such.Thing", ""]]
    stub: Any = reflection_pb2_grpc.ServerReflectionStub
    answers = list(stub(doors.channel).ServerReflectionInfo(iter(asked), timeout=CALL_SECONDS))
    kinds = [answer.WhichOneof("message_response") for answer in answers]
    assert kinds == ["file_descriptor_response"] * len(names) + ["error_response"] * 3


def test_mykafka_is_used_without_a_proto(curl: Curl) -> None:
    assert curl.call("mykafka.Broker", "CreatePartition", topic="reflected", partition=2).code == 0
    sent = curl.call("mykafka.Broker", "SendMessage", topic="reflected", partition=2, payload=b"hello")
    assert (sent.error.code, sent.offset) == (0, 0)
    got = curl.call("mykafka.Broker", "GetMessage", topic="reflected", partition=2, offset=0)
    assert got.payload == b"hello"
    assert "Topic:reflected" in curl.call("mykafka.Broker", "BrokerInfo").dump


def test_eeylops_is_used_without_a_proto(curl: Curl) -> None:
    created = curl.call("eeylops.EeylopsService", "CreateTopic", topic={"topic_name": "mirrored"})
    assert created.error.error_code == 0
    topic = curl.call("eeylops.EeylopsService", "GetTopic", topic_name="mirrored", sync=True).topic
    place = {"topic_id": topic.topic_id, "partition_id": 1}
    assert curl.call("eeylops.EeylopsService", "Produce", values=[b"a", b"b"], **place).error.error_code == 0
    found = curl.call("eeylops.EeylopsService", "Consume", **place)
    assert [value.value for value in found.values] == [b"a", b"b"]


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
def test_both_versions_of_reflection_answer(doors: Doors, version: str) -> None:
    ask: Any = doors.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        Reflection.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [Reflection(list_services=""), Reflection(file_containing_symbol="mykafka.Broker")]
    listed, found = ask(iter(asked), timeout=CALL_SECONDS)
    assert set(SERVICES) <= {service.name for service in listed.list_services_response.service}
    assert found.file_descriptor_response.file_descriptor_proto


def test_questions_after_what_does_not_exist_are_answered_so(doors: Doors) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub
    asked = [
        Reflection(file_containing_symbol="none.Such"),
        Reflection(file_by_filename="../../etc/passwd"),
        Reflection(file_containing_symbol="x" * 1_000),
        Reflection(),
    ]
    answers = list(stub(doors.channel).ServerReflectionInfo(iter(asked), timeout=CALL_SECONDS))
    codes = [answer.error_response.error_code for answer in answers]
    not_found, invalid = grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert codes == [not_found, not_found, not_found, invalid]


def test_health_says_that_each_service_serves(broker: BrokerProcess, doors: Doors) -> None:
    stub: Any = health_pb2_grpc.HealthStub
    health = stub(doors.channel)
    for service in ("", *SERVICES):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=CALL_SECONDS)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as failure:
        health.Check(health_pb2.HealthCheckRequest(service="none.Such"), timeout=CALL_SECONDS)
    status: Any = failure.value
    assert status.code() == grpc.StatusCode.NOT_FOUND
    watch = health.Watch(health_pb2.HealthCheckRequest(service="mykafka.Broker"), timeout=CALL_SECONDS)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    assert broker.stop() == 0
    try:  # it says that it stops if there is time for it, and then the connection ends
        assert [answer.status for answer in watch] in ([], [health_pb2.HealthCheckResponse.NOT_SERVING])
    except grpc.RpcError as error:
        status = error
        assert status.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    broker.start()
