"""`odradek consume`: where it begins and ends, how records are shown, and what a group remembers of it."""

from __future__ import annotations

import signal
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from odradek.clock import SystemClock
from tests.cli.commands import Cli, Process, Ran, command, on_a_terminal
from tests.process import wait_until


def fill(cli: Cli, topic: str, count: int = 10) -> None:
    """Produce 0, 1, 2, ... to a new topic, at the seconds 0, 1, 2, ... of 1970."""
    cli.ok("topic", "create", topic, "-c", "retention.ms=-1")
    lines = "".join(f'{{"value": "{number}", "timestamp": {number * 1000}}}\n' for number in range(count))
    cli.ok("produce", topic, "--json", stdin=lines.encode())


@pytest.mark.parametrize(
    ("place", "first"),
    [
        ("start", 0),
        ("end", 10),
        ("+3", 3),
        ("+99", 10),
        ("-3", 7),
        ("-99", 0),
        ("4", 4),
        ("10", 10),
        ("@3000", 3),
        ("@3001", 4),
        ("@1970-01-01T00:00:06Z", 6),
        ("@1970-01-01T02:00:08+02:00", 8),
        ("@-1h", 10),
    ],
)
def test_it_begins_where_it_is_told_and_stops_at_the_end(cli: Cli, topic: str, place: str, first: int) -> None:
    fill(cli, topic)
    assert cli.ok("consume", topic, "--from", place).lines == [str(number) for number in range(first, 10)]


def test_a_time_ago_is_counted_from_now(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    now = SystemClock().now_ms()
    for minutes in (90, 30, 0):
        cli.ok("produce", topic, "--timestamp", str(now - minutes * 60_000), stdin=b"%d\n" % minutes)
    assert cli.ok("consume", topic, "--from", "@-1h").lines == ["30", "0"]
    assert cli.ok("consume", topic, "--from", "@-1h45m").lines == ["90", "30", "0"]
    an_hour_ago = datetime.now(UTC).astimezone() - timedelta(hours=1)
    assert cli.ok("consume", topic, "--from", f"@{an_hour_ago.replace(tzinfo=None).isoformat()}").lines == ["30", "0"]


def test_an_offset_that_is_trimmed_or_not_there_yet_is_no_failure(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    cli.ok("topic", "trim", topic, "--to", "8")
    assert cli.ok("consume", topic, "--from", "2").lines == ["8", "9"]
    ran = cli.ok("consume", topic, "--from", "11")
    assert (ran.out, ran.err) == ("", f"there is no offset 11 yet: {topic}-0 ends at 10\n")


def test_so_many_records_and_no_more(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    assert cli.ok("consume", topic, "-n", "3").lines == ["0", "1", "2"]
    assert cli.ok("consume", topic, "-n", "0").lines == []
    assert len(cli.ok("consume", topic, "-n", "99").lines) == 10


def test_several_topics_and_chosen_partitions_are_read(cli: Cli, topic: str) -> None:
    other = f"{topic}-2"
    for name in (topic, other):
        cli.ok("topic", "create", name, "-p", "3")
        for partition in "012":
            cli.ok("produce", name, "-p", partition, stdin=f"{name}/{partition}\n".encode())
    everything = sorted(f"{name}/{partition}" for name in (topic, other) for partition in "012")
    assert sorted(cli.ok("consume", topic, other).lines) == everything
    assert sorted(cli.ok("consume", topic, other, "-p", "0", "-p", "2").lines) == [
        line for line in everything if not line.endswith("1")
    ]
    assert "no partition 3" in cli.fails("consume", topic, "-p", "3", status=2)


def test_a_format_shows_what_is_wanted(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok(
        "produce", topic, "-k", ":", "-H", "a=1", "-H", "b=2", "--timestamp", "123", "--null", "-", stdin=b"k:v\n-:-\n"
    )
    ran = cli.ok("consume", topic, "--format", "%t %p %o %T %k %v %h %K %V 100%%\\t\\x21\\n")
    assert ran.out == f"{topic} 0 0 123 k v a=1,b=2 1 1 100%\t!\n{topic} 0 1 123 null null a=1,b=2 -1 -1 100%\t!\n"
    assert cli.ok("consume", topic, "--null", "", "--format", "[%k]").out == "[k][]"
    line = cli.fails("consume", topic, "--format", "%z", status=2)
    assert "'%z', which means nothing: there are %t, %p" in line


def test_bytes_that_would_drive_a_terminal_are_escaped_unless_raw_is_wanted(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    given = b'{"value": "caf\xc3\xa9\\tx\\n\\u001b[2J\\u009b \\\\n"}\n{"value_base64": "/wAK"}\n'
    cli.ok("produce", topic, "--json", stdin=given)
    assert cli.ok("consume", topic).out == "café\tx\\n\\x1b[2J\\xc2\\x9b \\n\n\\xff\\x00\\n\n"
    with Process(["consume", topic, "--raw", "-p", "0", "--from", "1"], cli.address) as process:
        assert process.read_until(b"\n\n") == b"\xff\x00\n\n"
    assert "leave --raw away" in cli.fails("consume", topic, "--raw", "--json", status=2)


def test_following_waits_for_more_and_ctrl_c_ends_it_cleanly(cli: Cli, topic: str) -> None:
    fill(cli, topic, 2)
    with Process(["consume", topic, "-f"], cli.address) as process:
        process.read_until(b"1\n")
        cli.ok("produce", topic, stdin=b"later\n")
        process.read_until(b"later\n")
        process.interrupt()
        assert process.end() == Ran(130, "0\n1\nlater\n", "")


def test_following_from_the_end_shows_only_what_comes(cli: Cli, topic: str) -> None:
    fill(cli, topic, 2)
    ran = cli("consume", topic, "--from", "end", "-f", "-n", "1", "--timeout", "0.2")
    assert (ran.status, ran.err) == (1, "odradek: 0 records of 1 came, and then nothing for 0.2 s\n")
    assert cli.ok("consume", topic, "-f", "--timeout", "200ms").lines == ["0", "1"]


def test_a_reader_that_leaves_ends_it_quietly(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin=b"line\n" * 200_000)
    words = command("consume", topic, "--broker", cli.address)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


def test_a_group_goes_on_where_it_was(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic)
    assert cli.ok("consume", topic, "--group", group, "-n", "4").lines == ["0", "1", "2", "3"]
    (described,) = cli.ok("group", "describe", group, "--json").objects
    assert described["partitions"] == [
        {"topic": topic, "partition": 0, "committed": 4, "end": 10, "lag": 6, "member": None}
    ]
    assert cli.ok("consume", topic, "-g", group, "--from", "end").lines == [str(number) for number in range(4, 10)]
    assert cli.ok("consume", topic, "-g", group).lines == []


def test_a_new_group_begins_where_it_is_told(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic)
    assert cli.ok("consume", topic, "-g", group, "--from", "-2").lines == ["8", "9"]
    assert cli.ok("consume", topic, "-g", f"{group}-2", "-p", "0", "--from", "7").lines == ["7", "8", "9"]
    assert cli.ok("consume", topic, "-g", f"{group}-2", "-p", "0").lines == []


def test_a_group_does_not_commit_what_its_reader_did_not_take(cli: Cli, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin=b"line\n" * 100_000)
    words = command("consume", topic, "--group", group, "--broker", cli.address)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE
    (described,) = cli.ok("group", "describe", group, "--json").objects
    assert described["partitions"] == []


def test_ctrl_c_commits_and_leaves_the_group_at_once(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 3)
    with Process(["consume", topic, "-f", "--group", group], cli.address) as process:
        process.read_until(b"2\n")
        process.interrupt()
        assert process.end().status == 130
    ran = cli.ok("group", "describe", group)
    assert ran.lines == [
        f"group {group}: Empty, 0 members, total lag 0",
        f"{topic}-0 committed=3 end=3 lag=0 member=-",
    ]


def test_members_share_a_topic(cli: Cli, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    arguments = ["consume", topic, "-f", "--group", group, "--format", "%p %v\\n"]
    with Process(arguments, cli.address) as first, Process(arguments, cli.address) as second:

        def is_shared() -> bool:
            (described,) = cli("group", "describe", group, "--json").objects or [{}]
            members = described.get("members", [])
            assert isinstance(members, list)
            return described.get("state") == "Stable" and [len(each["assignment"]) for each in members] == [1, 1]

        wait_until(is_shared, 30, "a partition for each member")
        for partition in "01":
            cli.ok("produce", topic, "-p", partition, stdin=b"mine\n")
        seen = first.read_until(b"mine\n") + second.read_until(b"mine\n")
        assert sorted(seen.splitlines()) == [b"0 mine", b"1 mine"]
        for member in (first, second):
            member.interrupt()
            assert member.end().status == 130


def test_a_wrong_topic_is_answered_with_the_nearest(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert f"did you mean '{topic}'?" in cli.fails("consume", topic[1:], "-f")


def test_isolation_is_one_of_two(cli: Cli, topic: str) -> None:
    fill(cli, topic, 2)
    assert cli.ok("consume", topic, "--isolation", "read_committed").lines == ["0", "1"]
    assert "invalid choice" in cli.fails("consume", topic, "--isolation", "none", status=2)


def test_a_terminal_gets_the_same_lines(cli: Cli, topic: str) -> None:
    fill(cli, topic, 2)
    assert on_a_terminal(["consume", topic], cli.address).lines == ["0", "1"]
