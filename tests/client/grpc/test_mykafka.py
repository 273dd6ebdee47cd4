"""MyKafka's client, blocking and async, against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.client import BrokerUnavailableError, ClientError
from odradek.client.grpc import AsyncMyKafka, Code, GrpcError, MyKafka, MyKafkaError, Offsets
from odradek.client.grpc.channels import parse_targets
from tests.client.support import asynchronous
from tests.process import BrokerProcess


def test_a_script_without_a_loop_makes_fills_reads_and_removes_a_partition(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 7, max_segment_size=1024, max_partition_size=4096, segment_ttl=60)
        assert mykafka.get_offsets(topic, 7) == Offsets(0, -1, -1)
        payloads = [b"", b"three spools", bytes(range(256))]
        assert [mykafka.send_message(topic, 7, payload) for payload in payloads] == [0, 1, 2]
        assert [mykafka.get_message(topic, 7, offset) for offset in range(3)] == payloads
        assert mykafka.get_offsets(topic, 7) == Offsets(0, 2, 2)
        dump = mykafka.broker_info()
        assert f"Topic:{topic}" in dump and "max_partition_size: 4096" in dump
        mykafka.delete_partition(topic, 7)
        assert f"Topic:{topic}" not in mykafka.broker_info()
        mykafka.delete_topic(topic)


@asynchronous
async def test_many_calls_share_a_client(process: BrokerProcess, topic: str) -> None:
    async with AsyncMyKafka(process.grpc) as mykafka:
        await mykafka.create_partition(topic, 0)
        offsets = await asyncio.gather(*(mykafka.send_message(topic, 0, b"%d" % number) for number in range(200)))
        assert sorted(offsets) == list(range(200))
        stored = await asyncio.gather(*(mykafka.get_message(topic, 0, offset) for offset in offsets))
        assert stored == [b"%d" % number for number in range(200)]


def test_errors_have_the_codes_of_the_door_and_its_words(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
        wrong: dict[Code, Callable[[], object]] = {
            Code.NO_MESSAGE: lambda: mykafka.get_message(topic, 0, 0),
            Code.NOT_FOUND: lambda: mykafka.get_message(topic, 1, 0),
            Code.TOPIC_ERROR: lambda: mykafka.create_partition(topic, 0),
            Code.INVALID_FILENAME: lambda: mykafka.create_partition("a/b", 0),
        }
        for code, call in wrong.items():
            with pytest.raises(MyKafkaError) as caught:
                call()
            assert caught.value.code is code and caught.value.text
            assert str(caught.value).endswith(f"({code.name})") and isinstance(caught.value, ClientError)


def test_what_is_too_large_for_the_door_is_a_status_of_grpc(door: str, topic: str) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)
        with pytest.raises(GrpcError) as caught:
            mykafka.send_message(topic, 0, bytes(20 << 20))
        assert caught.value.status == "RESOURCE_EXHAUSTED"
        assert mykafka.send_message(topic, 0, b"still open") == 0


def test_the_first_address_that_answers_is_used(door: str, topic: str) -> None:
    with MyKafka(f"127.0.0.1:1,{door}") as mykafka:
        mykafka.create_partition(topic, 0)
        assert mykafka.send_message(topic, 0, b"a") == 0


def test_a_client_outlives_its_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as broker, MyKafka(broker.grpc) as mykafka:
        mykafka.create_partition("orders", 0)
        assert mykafka.send_message("orders", 0, b"before") == 0
        broker.kill()
        with pytest.raises(BrokerUnavailableError):
            mykafka.get_message("orders", 0, 0)
        broker.start()
        assert mykafka.get_message("orders", 0, 0) == b"before"
        assert mykafka.send_message("orders", 0, b"after") == 1


def test_many_clients_in_one_process_are_quiet(door: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with MyKafka(door) as mykafka:
        mykafka.create_partition(topic, 0)

    def send(_: int) -> list[int]:
        with MyKafka(door) as own:
            return [own.send_message(topic, 0, b"a") for _ in range(50)]

    with ThreadPoolExecutor(8) as threads:
        offsets = [offset for sent in threads.map(send, range(8)) for offset in sent]
    assert sorted(offsets) == list(range(400))
    assert caplog.records == []


def test_nobody_at_the_address_is_told_at_once_and_leaves_no_thread() -> None:
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"), MyKafka("127.0.0.1:1"):
        pass
    assert "odradek-grpc-client" not in {thread.name for thread in threading.enumerate()}


def test_a_client_that_is_not_open_says_so(door: str) -> None:
    with pytest.raises(RuntimeError, match="the client is not open"):
        MyKafka(door).broker_info()
    with MyKafka(door) as mykafka:
        assert isinstance(mykafka.broker_info(), str)
    mykafka.close()
    with pytest.raises(RuntimeError, match="the client is not open"):
        mykafka.broker_info()


def test_addresses_are_read_as_people_write_them() -> None:
    assert [str(address) for address in parse_targets("a, b:1,[::1]:2")] == ["a:50051", "b:1", "[::1]:2"]
    assert [str(address) for address in parse_targets(["a:1", "a:1", "b:2"])] == ["a:1", "b:2"]
    for wrong in ("", "a:b", "a:0", ":1", "[::1:2", "::1", "a:99999"):
        with pytest.raises(ValueError, match="host:port"):
            parse_targets(wrong)
