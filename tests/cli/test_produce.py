"""`odradek produce`: what becomes of lines, how a failure is named, and that nothing read is lost or kept too long."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.commands import Cli, Process, on_a_terminal
from tests.process import BrokerProcess

MEMORY_MAX = 200 * 2**20


def memory_peak(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def consumed(cli: Cli, topic: str) -> list[dict[str, object]]:
    return cli.ok("consume", topic, "--json").objects


def test_lines_become_records(cli: Cli, topic: str) -> None:
    ran = cli.ok("produce", topic, stdin="one\n\nwörld: two\nlast without an end".encode())
    assert ran.out == ""
    assert ran.err.splitlines() == [
        f"topic {topic} is new: it has 1 partition",
        f"4 records to {topic}: partition 0: 4",
    ]
    assert cli.ok("consume", topic).out == "one\n\nwörld: two\nlast without an end\n"


def test_no_input_is_no_record(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert cli.ok("produce", topic, stdin=b"").err == f"0 records to {topic}\n"


def test_a_key_stands_before_the_separator_and_decides_the_partition(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "8")
    lines = "".join(f"key{number % 4}=>{number}=>x\n" for number in range(40))
    ran = cli.ok("produce", topic, "-k", "=>", stdin=lines.encode())
    found = consumed(cli, topic)
    places = {(record["key"], record["partition"]) for record in found}
    assert len(places) == 4
    assert {record["value"] for record in found} == {f"{number}=>x" for number in range(40)}
    counts = {index: sum(record["partition"] == index for record in found) for _, index in places}
    where = ", ".join(f"partition {index}: {counts[index]}" for index in sorted(counts, key=str))
    assert ran.err == f"40 records to {topic}: {where}\n"


def test_a_line_without_the_separator_is_named_and_ends_it(cli: Cli, topic: str) -> None:
    ran = cli("produce", topic, "-k", "\\t", stdin=b"a\t1\nb 2\nc\t3\n")
    assert ran.status == 1
    assert "odradek: line 2 of standard input was not sent: it has no key: '\\t' does not occur in it" in ran.err
    assert f"1 record to {topic}: partition 0: 1" in ran.err
    assert cli.ok("consume", topic).lines == ["1"]


def test_headers_partition_timestamp_and_nulls_are_as_told(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "3")
    options = ["-p", "2", "-H", "a=1", "-H", "b=x=y", "--timestamp", "1234567890123", "-k", ":", "--null", "NULL"]
    cli.ok("produce", topic, *options, stdin=b"k:v\nk:NULL\nNULL:v\nk:\n")
    found = consumed(cli, topic)
    assert [(record["key"], record["value"]) for record in found] == [("k", "v"), ("k", None), (None, "v"), ("k", "")]
    for record in found:
        assert record["partition"] == 2 and record["timestamp"] == 1234567890123
        assert record["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_codec_and_every_acks_arrives(cli: Cli, topic: str, codec: str, acks: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, "--codec", codec, "--acks", acks, stdin=b"hello\n" * 100)
    ran = cli.ok("consume", topic, "-n", "100", "--follow", "--timeout", "20")
    assert ran.out == "hello\n" * 100


def test_files_are_read_one_after_the_other_up_to_a_count(cli: Cli, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1\n2\n3")
    second.write_bytes(b"4\n5\n")
    cli.ok("produce", topic, "-f", str(first), "-", str(second), "-n", "5", stdin=b"piped\n")
    assert cli.ok("consume", topic).lines == ["1", "2", "3", "piped", "4"]
    assert "missing: No such file" in cli.fails("produce", topic, "-f", str(tmp_path / "missing"))


def test_json_lines_say_everything_themselves(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    given = [
        {"value": "text", "key": "k", "partition": 1, "timestamp": 5, "headers": {"h": "v", "n": None}},
        {
            "value_base64": "/wA=",
            "key_base64": "gA==",
            "partition": 1,
            "headers": [{"key": "h", "value_base64": "/w=="}],
        },
        {"value": {"a": [1, "ü"]}, "partition": 1},
        {"value": None, "key": "gone", "partition": 1},
    ]
    cli.ok("produce", topic, "--json", stdin="".join(json.dumps(item) + "\n" for item in given).encode())
    found = consumed(cli, topic)
    assert found[0] == {
        "topic": topic, "partition": 1, "offset": 0, "timestamp": 5, "key": "k", "value": "text",
        "headers": [{"key": "h", "value": "v"}, {"key": "n", "value": None}],
    }  # fmt: skip
    assert (found[1]["value_base64"], found[1]["key_base64"]) == ("/wA=", "gA==")
    assert found[1]["headers"] == [{"key": "h", "value_base64": "/w=="}]
    assert found[2]["value"] == '{"a":[1,"ü"]}'
    assert (found[3]["key"], found[3]["value"]) == ("gone", None)


def test_what_consume_prints_as_json_can_be_produced_again(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "4")
    cli.ok("topic", "create", f"{topic}-copy", "-p", "4")
    cli.ok("produce", topic, "-k", ":", "-H", "a=b", stdin=b"".join(b"%d:\xff%d\n" % (n, n) for n in range(50)))
    printed = cli.ok("consume", topic, "--json").out
    cli.ok("produce", f"{topic}-copy", "--json", stdin=printed.encode())
    copied = cli.ok("consume", f"{topic}-copy", "--json").out
    assert sorted(copied.replace(f"{topic}-copy", topic).splitlines()) == sorted(printed.splitlines())


def test_a_record_that_the_broker_refuses_is_named(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-c", "max.message.bytes=1000")
    ran = cli("produce", topic, stdin=b"small\n" + b"x" * 2000 + b"\n")
    assert ran.status == 1
    assert "odradek: line 2 of standard input was not sent: " in ran.err and "MESSAGE_TOO_LARGE" in ran.err
    assert f"1 record to {topic}: partition 0: 1" in ran.err


def test_a_line_that_no_record_could_hold_is_refused_before_it_is_all_in_memory(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with Process(["produce", topic], cli.address) as process:
        process.write(b"fine\n")
        with pytest.raises(BrokenPipeError):
            for _ in range(200):
                process.write(bytes(2**20))
        process.read_until(b"odradek: line 2 of standard input was not sent: it has more than 16 MiB", stream=2)
    assert cli.ok("consume", topic).lines == ["fine"]


def test_a_failure_is_told_at_once_while_the_input_waits(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-c", "max.message.bytes=1000")
    with Process(["produce", topic], cli.address) as process:
        process.write(b"x" * 2000 + b"\n")
        process.read_until(b"odradek: line 1 of standard input was not sent", stream=2)
        assert process.end().status == 1


def test_a_partition_or_topic_that_cannot_be_is_refused(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    assert "it has partitions 0 to 1" in cli.fails("produce", topic, "-p", "2", status=2)
    assert "leave -k and --null away" in cli.fails("produce", topic, "--json", "-k", ":", status=2)
    assert "at least one character" in cli.fails("produce", topic, "-k", "", status=2)
    ran = cli("produce", topic, "--json", stdin=b'{"value": "x", "partition": 7}\n')
    assert ran.status == 1 and "line 1 of standard input was not sent" in ran.err


def test_ctrl_c_sends_what_was_read(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with Process(["produce", topic], cli.address) as process:
        process.write(b"one\ntwo\nhalf a li")
        with Process(["consume", topic, "-f", "-n", "2"], cli.address) as reader:
            assert reader.end().out == "one\ntwo\n"  # so they were read before
        process.interrupt()
        ran = process.end()
    assert (ran.status, ran.out) == (130, "")
    assert ran.err == f"2 records to {topic}: partition 0: 2\n"
    assert cli.ok("consume", topic).lines == ["one", "two"]


def test_endless_input_is_sent_up_to_the_last_line_that_was_read(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    block = b"".join(b"%d\n" % number for number in range(20_000))
    with Process(["produce", topic], cli.address) as process:
        for _ in range(20):
            process.write(block)
        process.interrupt()
        ran = process.end()
    assert ran.status == 130
    (described,) = cli.ok("topic", "describe", topic, "--json").objects
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    end = partitions[0]["end"]
    assert ran.err == f"{end} records to {topic}: partition 0: {end}\n"
    assert end > 100_000
    assert cli.ok("consume", topic, "--from", "-1").lines == [str((end - 1) % 20_000)]


def test_input_waits_while_the_broker_does_so_that_memory_is_bounded(topic: str, tmp_path: Path) -> None:
    lines = b"line\n" * 200_000
    with BrokerProcess(tmp_path / "data") as broker, Process(["produce", topic], broker.bootstrap) as process:
        process.write(b"first\n")
        process.read_until(b"is new", stream=2)
        with Process(["consume", topic, "-f", "-n", "1"], broker.bootstrap) as reader:
            assert reader.end().out == "first\n"  # so it is under way
        broker.process.send_signal(signal.SIGSTOP)
        try:
            taken = process.write_until_full(lines, 10)
            peak = memory_peak(process.pid)
        finally:
            broker.process.send_signal(signal.SIGCONT)
        process.interrupt()
        ran = process.end()
    assert taken < 1_000_000
    assert peak < MEMORY_MAX
    assert ran.status == 130 and f" to {topic}: partition 0: " in ran.err


def test_a_person_at_a_terminal_is_told_how_to_end(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    ran = on_a_terminal(["produce", topic], cli.address, b"hello\n\x04", after=b"Ctrl+D ends")
    assert ran.status == 0 and f"1 record to {topic}" in ran.out
    assert cli.ok("consume", topic).lines == ["hello"]


def test_many_partitions_are_summed_up(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "30")
    ran = cli.ok("produce", topic, "-k", ":", stdin=b"".join(b"%d:x\n" % number for number in range(2_000)))
    assert ran.err.startswith(f"2000 records to {topic} in 30 partitions, ")


def test_a_topic_that_the_broker_will_not_make_is_answered_with_the_nearest(topic: str, cli: Cli) -> None:
    from odradek import testing

    with testing.broker({"auto.create.topics.enable": "false"}) as strict:
        address = ("--broker", strict.bootstrap_servers)
        cli.ok("topic", "create", topic, *address)
        line = cli.fails("produce", topic[:-1], *address, stdin=b"x\n")
        assert line == f"there is no topic '{topic[:-1]}': did you mean '{topic}'?"
