"""Message classes as their users see them: keywords, defaults, equality, versions, errors."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.wire.api import ApiKey
from odradek.wire.errors import DecodeError
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string, struct

from .samples import Everything, Inner, Request, Topic, Versions

# Golden bytes, written by hand after the protocol guide.
GOLDEN = [
    (Request(topics=[Topic(name="ab")]), 0, "00000001 0002 6162"),
    (Request(topics=None), 1, "ffffffff"),
    (Request(topics=[], allow_auto_topic_creation=False), 4, "00000000 00"),
    (Request(topics=None, include_topic_authorized_operations=True), 8, "ffffffff 01 00 01"),
    (Request(topics=[Topic(name="ab"), Topic(name="")]), 9, "03 03 6162 00 01 00 01 00 00 00"),
    (Request(topics=None), 11, "00 01 00 00"),
    (Request(topics=[Topic(topic_id=bytes(range(16)), name=None)]), 12,
     "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00"),
    (Versions(), 0, "0000 00000000"),
    (Versions(error_code=35), 3, "0023 01 00000000 00"),
    (Versions(finalized_features_epoch=1), 3, "0000 01 00000000 01 01 08 0000000000000001"),
    (Versions(finalized_features_epoch=1), 2, "0000 00000000 00000000"),  # no tags below version 3
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "encoded"), GOLDEN)
def test_a_message_is_written_as_kafka_writes_it(message: Message, version: int, encoded: str) -> None:
    assert message.encode(version).hex() == encoded.replace(" ", "")


@pytest.mark.parametrize(("message", "version", "encoded"), GOLDEN[:-1])
def test_a_message_is_read_as_kafka_wrote_it(message: Message, version: int, encoded: str) -> None:
    assert type(message).decode(bytes.fromhex(encoded), version) == message


def test_tagged_structs_are_written_with_their_size_before_them() -> None:
    class Feature(Struct):
        name: str = string()
        level: int = int16()

    class Answer(Struct, flexible=0):
        features: list[Feature] = array(Feature, tag=0)
        epoch: int = int32(tag=300, default=-1)

    answer = Answer(features=[Feature(name="kv", level=2)], epoch=7)
    encoded = bytes.fromhex("02 00 07 02 03 6b76 0002 00 ac02 04 00000007")
    assert answer.encode(0) == encoded
    assert Answer.decode(encoded, 0) == answer


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    class Outer(Struct, flexible=1):
        inner: Topic | None = struct(Topic, nullable=0, default=None)

    assert Outer().encode(0).hex() == "ff"
    assert Outer(inner=Topic(name="a")).encode(0).hex() == "01000161"
    assert Outer(inner=Topic(name="a")).encode(1).hex() == "01026100" + "00"
    assert Outer.decode(b"\xff\x00", 1) == Outer()


def test_fields_have_defaults_and_lists_are_never_shared() -> None:
    one, other = Everything(), Everything()
    assert (one.small, one.medium, one.flag, one.ratio, one.name, one.blob) == (0, 5, True, 0.5, "", b"")
    assert (one.ident, one.maybe_blob, one.maybe_inner, one.alias) == (bytes(16), None, None, "")
    one.numbers.append(1)
    one.inner.number = 9
    assert (other.numbers, other.inner) == ([], Inner())
    decoded = Versions.decode(bytes(6), 0)
    decoded.supported_features.append(None)  # type: ignore[arg-type]
    assert Versions.decode(bytes(6), 0).supported_features == []


def test_a_wrong_field_name_is_refused_by_python_and_by_the_type_checker() -> None:
    with pytest.raises(TypeError, match="nam"):
        Topic(nam="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Topic(bytes(16), "x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Topic().nam = "x"  # type: ignore[attr-defined]
    assert Topic(name=None).name is None
    Request(topics="x")  # type: ignore[arg-type]


def test_objects_are_compared_by_value_and_type() -> None:
    assert Topic(name="x") == Topic(name="x")
    assert Topic(name="x") != Topic(name="y")
    assert Inner() != Topic()
    assert Topic() != "x"
    assert Everything(blob=memoryview(b"ab")) == Everything(blob=b"ab")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Topic())


def test_an_object_shows_itself_as_the_call_that_makes_it() -> None:
    topic = Topic(name="x", topic_id=bytes(range(16)))
    assert eval(repr(topic), {"Topic": Topic}) == topic


def test_a_class_says_what_it_is() -> None:
    assert (Request.api_key, Request.versions, Request.flexible_since) == (ApiKey.METADATA, (0, 13), 9)
    assert (Topic.versions, Topic.flexible_since) == ((0, 32767), None)
    assert [field.name for field in Topic.fields] == ["topic_id", "name"]
    assert not hasattr(Topic(), "__dict__")


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_does_not_exist_is_the_callers_bug(version: int) -> None:
    with pytest.raises(ValueError, match=rf"Request has versions 0 to 13, not {version}"):
        Request().encode(version)
    with pytest.raises(ValueError, match=rf"Request has versions 0 to 13, not {version}"):
        Request.decode(b"", version)


def test_trailing_bytes_are_left_alone() -> None:
    # librdkafka sends three stray bytes behind a request for all topics.
    assert Request.decode(b"\x00\x01\x00\x00" + b"\x00\x00\x00", 11) == Request(topics=None)


def test_decoding_starts_where_it_is_told() -> None:
    data = b"header" + Request(topics=[Topic(name="x")]).encode(9)
    assert Request.decode(data, 9, 6) == Request(topics=[Topic(name="x")])
    assert Request.decode(memoryview(data), 9, at=6) == Request(topics=[Topic(name="x")])
    with pytest.raises(DecodeError):
        Request.decode(data, 9, len(data) + 1)


def test_null_is_encoded_only_in_versions_that_have_it() -> None:
    assert Request(topics=None).encode(11) == b"\x00\x01\x00\x00"
    with pytest.raises(ValueError, match="cannot be encoded"):
        Request(topics=None).encode(0)


def test_raw_fields_are_not_copied_on_either_way() -> None:
    batch = memoryview(b"records" * 1000)
    parts = Everything(batch=batch).encode_parts(3)
    assert any(part is batch for part in parts)
    data = b"".join(parts)
    decoded = Everything.decode(data, 3).batch
    assert isinstance(decoded, memoryview)
    assert decoded.obj is data


def test_a_struct_without_fields_is_allowed() -> None:
    class Nothing(Struct, flexible=1):
        pass

    assert Nothing().encode(0) == b""
    assert Nothing().encode(1) == b"\0"
    assert Nothing.decode(b"", 0) == Nothing()
    with pytest.raises(DecodeError):
        Nothing.decode(b"", 1)


def test_code_for_a_version_is_made_once() -> None:
    class Once(Struct):
        number: int = int8()

    Once().encode(4)
    first = Once._encoders[4]
    Once().encode(4)
    assert Once._encoders[4] is first
    assert list(Once._encoders) == [4]


def test_declarations_that_cannot_work_are_refused() -> None:
    make: Any = type(Struct)
    with pytest.raises(TypeError, match="same tag"):
        make("Twice", (Struct,), {"a": int8(tag=1), "b": int8(tag=1)})
    with pytest.raises(TypeError, match="something of that name"):
        make("Taken", (Struct,), {"encode": int8()})
    with pytest.raises(TypeError, match="cannot be inherited"):
        make("Child", (Topic,), {"more": int8()})
    with pytest.raises(TypeError, match="METADATA is flexible since 9, not 3"):
        make("Wrong", (Message,), {}, key=ApiKey.METADATA, versions=(0, 1), flexible=3)
