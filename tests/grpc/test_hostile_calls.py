"""Calls that nobody should make: each gets its documented code, never a bug of ours, and the broker goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from odradek.proto import eeylops_pb2 as ey
from odradek.proto import mykafka_pb2 as mk
from tests.grpc.doors import CALL_SECONDS, Doors, is_well
from tests.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("grpc-hostile")

MIB = 1 << 20
BAD_NAMES = ("", ".", "..", "a/b", "../up", "/root", "nul\x00", "a b", "x" * 250, "é", "line\n", "a\\b")
SERVICES = [mk.DESCRIPTOR.services_by_name["Broker"], ey.DESCRIPTOR.services_by_name["EeylopsService"]]
METHODS = [(service.full_name, method) for service in SERVICES for method in service.methods]
UNARY = [(service, method) for service, method in METHODS if method.name not in ("Publish", "Subscribe")]
EXTREMES: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_INT32: [0, 1, 2, -1, 2**31 - 1, -(2**31)],
    FieldDescriptor.TYPE_INT64: [0, 1, -1, -2, 2**63 - 1, -(2**63)],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_STRING: ["", "fuzzed", "a::b", "x" * 300, "nul\x00", "../up", "\U0010ffff"],
    FieldDescriptor.TYPE_BYTES: [b"", b"\xff", b"x" * 1_000],
}


@pytest.fixture(autouse=True)
def _no_bug_of_ours(broker: BrokerProcess) -> Any:
    said = len(broker.log())
    yield
    assert "Traceback" not in broker.log()[said:] and "bug of Odradek" not in broker.log()[said:], broker.log()[said:]


def call(doors: Doors, path: str, body: bytes, seconds: float = CALL_SECONDS) -> bytes:
    """A call with any bytes; the answer's bytes."""
    method: Any = doors.channel.unary_unary(path)
    return bytes(method(body, timeout=seconds))


def refusal(ask: Callable[[], object]) -> grpc.StatusCode:
    """The status of a call that must fail; nobody is shown a stack."""
    with pytest.raises(grpc.RpcError) as failure:
        ask()
    error: Any = failure.value
    assert "Traceback" not in error.details() and ".py" not in error.details()
    status: grpc.StatusCode = error.code()
    return status


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_one_is_refused(broker: BrokerProcess, doors: Doors, name: str) -> None:
    wanted = mk.TopicPartitionRequest(topic=name, partition=0)
    error = doors.mykafka.CreatePartition(wanted, timeout=CALL_SECONDS)
    assert error.code == mk.INVALID_FILENAME and error.msg
    sent = doors.mykafka.SendMessage(mk.SendMessageRequest(topic=name, payload=b"x"), timeout=CALL_SECONDS)
    got = doors.mykafka.GetMessage(mk.GetMessageRequest(topic=name), timeout=CALL_SECONDS)
    told = doors.mykafka.GetOffsets(mk.GetOffsetsRequest(topic=name), timeout=CALL_SECONDS)
    assert mk.OK not in {sent.error.code, got.error.code, told.error.code}
    created = doors.eeylops.CreateTopic(ey.CreateTopicRequest(topic=ey.Topic(topic_name=name)), timeout=CALL_SECONDS)
    assert created.error.error_code == ey.KErrInvalidArg and created.error.error_msg
    found = doors.eeylops.GetTopic(ey.GetTopicRequest(topic_name=name, sync=True), timeout=CALL_SECONDS)
    assert found.error.error_code in (ey.KErrTopicNotFound, ey.KErrInvalidArg)
    assert not (broker.directory.parent / "up-0").exists(), "nothing is made outside the directory"


@pytest.mark.parametrize("name", ["a.b", "a-b", "x" * 250])
def test_eeylops_takes_letters_digits_and_underscores_only(doors: Doors, name: str) -> None:
    created = doors.eeylops.CreateTopic(ey.CreateTopicRequest(topic=ey.Topic(topic_name=name)), timeout=CALL_SECONDS)
    assert created.error.error_code == ey.KErrInvalidArg
    assert name not in doors.topics()


def test_text_that_is_no_unicode_is_no_message(doors: Doors) -> None:
    body = b"\x0a\x03\xff\xfe\xfd"  # field 1, text
    assert refusal(lambda: call(doors, "/mykafka.Broker/CreatePartition", body)) == grpc.StatusCode.INVALID_ARGUMENT
    body = b"\x1a\x03\xff\xfe\xfd"  # field 3, text
    assert refusal(lambda: call(doors, "/mykafka.Broker/SendMessage", body)) == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("service", "method"), UNARY, ids=lambda given: getattr(given, "name", None))
def test_bytes_that_are_no_message_are_invalid(doors: Doors, service: str, method: Any) -> None:
    for body in (b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x10short", b"\x0b"):
        status = refusal(partial(call, doors, f"/{service}/{method.name}", body))
        assert status == grpc.StatusCode.INVALID_ARGUMENT


def test_a_method_or_service_that_does_not_exist_is_unimplemented(doors: Doors) -> None:
    for path in ("/mykafka.Broker/Nothing", "/eeylops.EeylopsService/", "/none.Such/Call", "/", "/a", "//", "/a/b/c"):
        assert refusal(partial(call, doors, path, b"")) == grpc.StatusCode.UNIMPLEMENTED


def filled(chance: random.Random, kind: type[Message], topic: int) -> Any:
    """A message with something in each field, most of it out of bounds."""
    message: Any = kind()
    fields: Any = kind.DESCRIPTOR.fields
    for field in fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(filled(chance, GetMessageClass(field.message_type), topic))
        elif field.name in ("topic_id", "topic_name", "topic") and chance.random() < 0.6:
            setattr(message, field.name, topic if field.name == "topic_id" else "fuzzed")
        elif field.is_repeated:
            getattr(message, field.name).extend(chance.choices(EXTREMES[field.type], k=chance.randrange(3)))
        else:
            setattr(message, field.name, chance.choice(EXTREMES[field.type]))
    return message


@pytest.mark.parametrize(("service", "method"), UNARY, ids=lambda given: getattr(given, "name", None))
def test_extremes_in_every_field_get_an_answer_with_a_documented_code(doors: Doors, service: str, method: Any) -> None:
    chance = random.Random(f"{method.full_name} 7")
    doors.mykafka.CreatePartition(mk.TopicPartitionRequest(topic="fuzzed", partition=1), timeout=CALL_SECONDS)
    kind, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    ask = doors.channel.unary_unary(f"/{service}/{method.name}", kind.SerializeToString, answer.FromString)
    for _ in range(40):
        request = filled(chance, kind, doors.topics().get("fuzzed", 1))
        found: Any = ask(request, timeout=CALL_SECONDS)
        error = found if method.output_type.name == "Error" else found.error
        is_ours = hasattr(error, "code")
        code, text = (error.code, error.msg) if is_ours else (error.error_code, error.error_msg)
        assert code in (mk.Code if is_ours else ey.ErrorCodes).values(), found
        assert bool(code) == bool(text), f"{request} got {found}: a text with each error, and only then"
        assert code not in (ey.KErrBackend, ey.KErrTimeout) or is_ours, f"{request} got {found}"
        assert not is_ours or code not in (mk.FILE_ERROR, mk.INDEX_ERROR, mk.LOG_ERROR), f"{request} got {found}"
    assert is_well(doors)


@pytest.mark.parametrize("number", [-1, -(2**31), 2**31 - 1])
def test_numbers_of_partitions_that_cannot_be_are_refused(doors: Doors, number: int) -> None:
    error = doors.mykafka.CreatePartition(mk.TopicPartitionRequest(topic="odd", partition=number), timeout=CALL_SECONDS)
    assert error.code == mk.INVALID_FILENAME
    topic = doors.topics().get("numbers") or doors.create_topic("numbers")
    for partition in {number, 0, 2}:
        asked = ey.ProduceRequest(topic_id=topic, partition_id=partition, values=[b"x"])
        assert doors.eeylops.Produce(asked, timeout=CALL_SECONDS).error.error_code == ey.KErrPartitionNotFound
    assert "odd" not in doors.topics()


@pytest.mark.parametrize("field", ["max_segment_size", "max_partition_size", "segment_ttl"])
def test_negative_settings_of_a_partition_are_refused(doors: Doors, field: str) -> None:
    for value in (-1, -(2**63)):
        wanted: Any = {"topic": "negative", "partition": 0, field: value}
        error = doors.mykafka.CreatePartition(mk.TopicPartitionRequest(**wanted), timeout=CALL_SECONDS)
        assert error.code != mk.OK and error.msg
    assert "negative" not in doors.topics()


def test_offsets_that_cannot_be_are_refused(doors: Doors) -> None:
    topic = doors.create_topic("offsets")
    doors.produce(topic, 1, [b"one"])
    doors.register("reader", topic)
    got = doors.mykafka.GetMessage(mk.GetMessageRequest(topic="offsets", offset=-1), timeout=CALL_SECONDS)
    assert got.error.code == mk.PARTITION_ERROR
    far = doors.mykafka.GetMessage(mk.GetMessageRequest(topic="offsets", offset=2**63 - 1), timeout=CALL_SECONDS)
    assert far.error.code == mk.NO_MESSAGE
    for offset in (-1, -(2**63), 2, 2**63 - 1):
        assert doors.commit("reader", topic, offset).error_code == ey.KErrInvalidArg
    wrong: list[dict[str, Any]] = [
        {"start_offset": -2},
        {"start_offset": 2},
        {"batch_size": -1},
        {"batch_size": -(2**31)},
    ]
    for fields in wrong:
        asked = ey.ConsumeRequest(topic_id=topic, partition_id=1, **fields)
        assert doors.eeylops.Consume(asked, timeout=CALL_SECONDS).error.error_code == ey.KErrInvalidArg, fields
        (only,) = doors.eeylops.Subscribe(asked, timeout=CALL_SECONDS)
        assert only.error.error_code == ey.KErrInvalidArg, fields
    assert doors.values(topic) == [b"one"] and doors.committed("reader", topic) == -1


@pytest.mark.parametrize("consumer", ["", "x" * 257, "a::b", "nul\x00", "line\n"])
def test_names_of_consumers_that_cannot_be_are_refused(doors: Doors, consumer: str) -> None:
    topic = doors.topics().get("consumers") or doors.create_topic("consumers")
    asked = ey.RegisterConsumerRequest(consumer_id=consumer, topic_id=topic, partition_id=1)
    assert doors.eeylops.RegisterConsumer(asked, timeout=CALL_SECONDS).error.error_code == ey.KErrInvalidArg
    assert doors.commit(consumer, topic, 0).error_code in (ey.KErrInvalidArg, ey.KErrConsumerNotRegistered)
    doors.register("x" * 256, topic)


def test_the_id_of_a_removed_topic_leads_nowhere(doors: Doors) -> None:
    old = doors.create_topic("phoenix")
    doors.produce(old, 1, [b"old"])
    doors.register("reader", old)
    doors.remove_topic(old)
    new = doors.create_topic("phoenix")
    doors.produce(new, 1, [b"new"])
    assert new > old
    where: Any = {"topic_id": old, "partition_id": 1}
    answers = [
        doors.eeylops.Produce(ey.ProduceRequest(values=[b"x"], **where), timeout=CALL_SECONDS),
        doors.eeylops.Publish(iter([ey.ProduceRequest(values=[b"x"], **where)]), timeout=CALL_SECONDS),
        doors.eeylops.Consume(ey.ConsumeRequest(**where), timeout=CALL_SECONDS),
        *doors.eeylops.Subscribe(ey.ConsumeRequest(**where), timeout=CALL_SECONDS),
        doors.eeylops.RegisterConsumer(ey.RegisterConsumerRequest(consumer_id="r", **where), timeout=CALL_SECONDS),
        doors.eeylops.Commit(ey.CommitRequest(consumer_id="reader", **where), timeout=CALL_SECONDS),
        doors.eeylops.GetLastCommitted(ey.LastCommittedRequest(consumer_id="reader", **where), timeout=CALL_SECONDS),
        doors.eeylops.GetBroker(ey.GetBrokerRequest(**where), timeout=CALL_SECONDS),
        doors.eeylops.RemoveTopic(ey.RemoveTopicRequest(topic_id=old), timeout=CALL_SECONDS),
    ]
    assert [answer.error.error_code for answer in answers] == [ey.KErrTopicNotFound] * 9
    asked = ey.LastCommittedRequest(consumer_id="reader", topic_id=new, partition_id=1)
    answer = doors.eeylops.GetLastCommitted(asked, timeout=CALL_SECONDS)
    assert answer.error.error_code == ey.KErrConsumerNotRegistered
    assert doors.values(new) == [b"new"]


def test_the_brokers_own_topics_are_nobodys_to_write_or_remove(doors: Doors) -> None:
    topic = doors.create_topic("owned")
    doors.register("maker", topic)  # makes sure that __consumer_offsets is there
    own = "__consumer_offsets"
    assert doors.mykafka.SendMessage(mk.SendMessageRequest(topic=own, payload=b"x"), timeout=CALL_SECONDS).error.code
    assert doors.mykafka.CreatePartition(mk.TopicPartitionRequest(topic=own, partition=999), timeout=CALL_SECONDS).code
    assert doors.mykafka.DeletePartition(mk.TopicPartitionRequest(topic=own, partition=0), timeout=CALL_SECONDS).code
    assert doors.mykafka.DeleteTopic(mk.TopicPartitionRequest(topic=own), timeout=CALL_SECONDS).code
    wanted = ey.CreateTopicRequest(topic=ey.Topic(topic_name=own))
    assert doors.eeylops.CreateTopic(wanted, timeout=CALL_SECONDS).error.error_code
    assert own not in doors.topics()
    assert doors.committed("maker", topic) == -1, "it is still there"


def test_messages_of_64_mib_are_refused_before_they_are_held(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("large", max_segment_size=64 * MIB)
    topic = doors.topic("large").topic_id
    before = broker.memory_bytes()
    huge = b"x" * (64 * MIB)
    sending = mk.SendMessageRequest(topic="large", payload=huge)
    producing = ey.ProduceRequest(topic_id=topic, partition_id=1, values=[huge])
    for ask in (
        lambda: doors.mykafka.SendMessage(sending, timeout=CALL_SECONDS),
        lambda: doors.eeylops.Produce(producing, timeout=CALL_SECONDS),
        lambda: doors.eeylops.Publish(iter([producing]), timeout=CALL_SECONDS),
    ):
        assert refusal(ask) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert broker.memory_bytes() - before < 64 * MIB
    assert doors.offsets("large", 0) == (0, -1, -1)


def test_what_unpacks_to_64_mib_is_refused(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("packed", max_segment_size=64 * MIB)
    gzip = grpc.Compression.Gzip
    small = mk.SendMessageRequest(topic="packed", payload=bytes(100_000))
    assert doors.mykafka.SendMessage(small, timeout=CALL_SECONDS, compression=gzip).error.code == mk.OK
    before = broker.memory_bytes()
    bomb = mk.SendMessageRequest(topic="packed", payload=bytes(64 * MIB))
    ask = partial(doors.mykafka.SendMessage, bomb, timeout=CALL_SECONDS, compression=gzip)
    assert refusal(ask) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert broker.memory_bytes() - before < 64 * MIB
    assert doors.get("packed", 0, 0) == bytes(100_000)


def test_metadata_that_is_too_large_or_makes_no_sense_harms_nobody(doors: Doors) -> None:
    doors.create_partition("told")
    asked = mk.SendMessageRequest(topic="told", payload=b"x")
    huge = (("x-huge", "x" * 100_000),)
    ask = partial(doors.mykafka.SendMessage, asked, timeout=CALL_SECONDS, metadata=huge)
    assert refusal(ask) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
    odd = (("odradek-forwarded", "yes, twice"), ("odradek-follower", "maybe"), ("x-bin", b"\x00\xff"))
    answer = doors.mykafka.SendMessage(asked, timeout=CALL_SECONDS, metadata=odd)
    assert (answer.error.code, answer.offset) == (mk.OK, 0)
    reading = ey.ConsumeRequest(topic_id=doors.topic("told").topic_id, partition_id=1)
    found = doors.eeylops.Consume(reading, timeout=CALL_SECONDS, metadata=odd)
    assert [value.value for value in found.values] == [b"x"]


def test_a_payload_that_is_too_large_for_a_batch_is_refused_with_the_limit(doors: Doors) -> None:
    doors.create_partition("batches", max_segment_size=64 * MIB)
    topic = doors.topic("batches").topic_id
    large = b"x" * (7 * MIB)  # below max.grpc.message.bytes
    sent = doors.mykafka.SendMessage(mk.SendMessageRequest(topic="batches", payload=large), timeout=CALL_SECONDS)
    asked = ey.ProduceRequest(topic_id=topic, partition_id=1, values=[b"small", large])
    produced = doors.eeylops.Produce(asked, timeout=CALL_SECONDS).error
    assert sent.error.code != mk.OK and sent.error.msg
    assert produced.error_code == ey.KErrInvalidArg and produced.error_msg
    assert doors.offsets("batches", 0) == (0, -1, -1), "all values of a request, or none"


def test_empty_payloads_are_messages_like_others(doors: Doors) -> None:
    topic = doors.create_topic("empty")
    assert doors.send("empty", 0, b"") == 0
    doors.produce(topic, 1, [b"", b""])
    assert doors.values(topic) == [b"", b"", b""] and doors.get("empty", 0, 2) == b""
    nothing = doors.eeylops.Produce(ey.ProduceRequest(topic_id=topic, partition_id=1), timeout=CALL_SECONDS)
    assert nothing.error.error_code == ey.KErrInvalidArg


def test_a_deadline_of_a_millisecond_is_kept_and_nothing_is_stored_twice(doors: Doors) -> None:
    doors.create_partition("hurried")
    asked = [mk.SendMessageRequest(topic="hurried", payload=b"%d" % number) for number in range(200)]
    under_way = [doors.mykafka.SendMessage.future(each, timeout=0.001) for each in asked]
    done = []
    for number, each in enumerate(under_way):
        if each.exception(timeout=CALL_SECONDS) is None:
            assert each.result().error.code in (mk.OK, mk.PARTITION_ERROR), each.result()
            done.append(number)
        else:
            assert each.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(done) < len(asked)
    last = doors.send("hurried", 0, b"last")
    stored = [int(doors.get("hurried", 0, offset)) for offset in range(last)]
    assert len(set(stored)) == len(stored)
