"""`odradek topic`: what it makes and shows, and how it refuses."""

from __future__ import annotations

import pytest

from tests.cli.commands import Cli, on_a_terminal


def own_settings(lines: list[str]) -> list[str]:
    """The settings that are the topic's own; its broker may have others that are not Kafka's defaults."""
    return [line for line in lines if line.startswith("setting ") and line.endswith(" from=topic")]


def test_a_topic_is_made_listed_and_described(cli: Cli, topic: str) -> None:
    made = cli.ok("topic", "create", topic, "-p", "3", "-c", "retention.ms=60000")
    assert made.out == f"created topic {topic} with 3 partitions\n"
    assert f"{topic} partitions=3 replication=1" in cli.ok("topic", "list").lines
    cli.ok("produce", topic, "-p", "1", stdin=b"one\ntwo\n")
    head, *rows = cli.ok("topic", "describe", topic).lines
    assert head.startswith(f"topic {topic}: 3 partitions, replication 1, id ")
    assert rows[0] == f"{topic}-0 leader=1 replicas=1 in-sync=1 start=0 end=0 bytes=0"
    assert rows[1].startswith(f"{topic}-1 leader=1 replicas=1 in-sync=1 start=0 end=2 bytes=")
    assert int(rows[1].rpartition("=")[2]) > 0
    assert own_settings(rows) == ["setting retention.ms=60000 from=topic"]


def test_programs_get_json(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2", "-c", "cleanup.policy=compact")
    (listed,) = [found for found in cli.ok("topic", "list", "--json").objects if found["topic"] == topic]
    assert listed == {"topic": topic, "partitions": 2, "replication": 1, "internal": False, "id": listed["id"]}
    (described,) = cli.ok("topic", "describe", topic, "--json").objects
    assert described["id"] == listed["id"]
    settings = described["settings"]
    assert isinstance(settings, dict)
    assert settings["cleanup.policy"] == {"value": "compact", "source": "topic"}
    partitions = described["partitions"]
    assert isinstance(partitions, list) and len(partitions) == 2
    expected = {"partition": 1, "leader": 1, "replicas": [1], "in_sync": [1], "start": 0, "end": 0, "bytes": 0}
    assert partitions[1] == expected


def test_topics_that_kafka_keeps_for_itself_are_shown_only_if_wanted(cli: Cli, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("group", "reset", group, topic, "--to", "start")
    assert "__consumer_offsets" not in cli.ok("topic", "list").out
    assert "__consumer_offsets" in cli.ok("topic", "list", "--internal").out


def test_a_topic_that_is_there_is_an_error_unless_that_is_fine(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert f"there is a topic '{topic}' already" in cli.fails("topic", "create", topic)
    assert cli.ok("topic", "create", topic, "--if-missing").out == f"topic {topic} is there already\n"


def test_what_the_broker_refuses_is_told_in_its_words(cli: Cli, topic: str) -> None:
    assert "retention.ms" in cli.fails("topic", "create", topic, "-c", "retention.mss=1")
    assert "INVALID_REPLICATION_FACTOR" in cli.fails("topic", "create", topic, "-r", "3")
    assert topic not in cli.ok("topic", "list").out
    assert "a topic's name consists of" in cli.fails("topic", "create", "no spaces", status=2)


def test_settings_are_changed_and_put_back(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-c", "retention.ms=60000")
    changed = cli.ok("topic", "alter", topic, "-c", "segment.bytes=1048576", "--unset", "retention.ms")
    assert changed.lines == [
        "segment.bytes before=1073741824 after=1048576",
        "retention.ms before=60000 after=604800000",
    ]
    assert own_settings(cli.ok("topic", "describe", topic).lines) == ["setting segment.bytes=1048576 from=topic"]
    assert "nothing to change" in cli.fails("topic", "alter", topic, status=2)
    assert "at once" in cli.fails("topic", "alter", topic, "-c", "flush=ack", "--unset", "flush", status=2)
    assert "no NAME=VALUE" in cli.fails("topic", "alter", topic, "-c", "flush", status=2)


def test_a_wrong_name_is_answered_with_the_nearest(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    wrong = topic[:-1]
    for arguments in (("describe", wrong), ("delete", wrong, "--yes"), ("trim", wrong, "--to", "end")):
        assert cli.fails("topic", *arguments) == f"there is no topic '{wrong}': did you mean '{topic}'?"
    line = cli.fails("topic", "describe", "qqq")
    assert "'odradek topic list' shows what is there, 'odradek topic create qqq' makes it" in line


def test_topics_are_deleted_when_that_is_agreed_to(cli: Cli, topic: str) -> None:
    for name in (topic, f"{topic}-2"):
        cli.ok("topic", "create", name)
    assert "add --yes to agree" in cli.fails("topic", "delete", topic, status=2)
    missing = cli.fails("topic", "delete", topic, f"{topic}-3", "--yes")
    assert "there is no topic" in missing and topic in cli.ok("topic", "list").out, "all or none"
    deleted = cli.ok("topic", "delete", topic, f"{topic}-2", "--yes")
    assert deleted.lines == [f"deleted topic {topic}", f"deleted topic {topic}-2"]
    assert topic not in cli.ok("topic", "list").out


@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"\n", 1), (b"no\n", 1), (b"\x03", 130)])
def test_a_person_is_asked_before_something_is_deleted(cli: Cli, topic: str, answer: bytes, status: int) -> None:
    cli.ok("topic", "create", topic)
    ran = on_a_terminal(["topic", "delete", topic], cli.address, answer, after=b"[y/N]")
    assert ran.status == status
    assert f"delete topic {topic} (1 partition) with all records? [y/N]" in ran.out
    assert (topic in cli.ok("topic", "list").out) == (status != 0)


def test_a_topic_grows(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    assert cli.ok("topic", "add-partitions", topic, "5").out == f"topic {topic} has 5 partitions now, 2 before\n"
    assert "cannot be taken away" in cli.fails("topic", "add-partitions", topic, "5", status=2)


@pytest.mark.parametrize(
    ("place", "first_left"),
    [("3", 3), ("end", 10), ("-2", 8), ("+4", 4), ("@5000", 5), ("@1970-01-01T00:00:07Z", 7), ("start", 0)],
)
def test_the_oldest_records_are_trimmed(cli: Cli, topic: str, place: str, first_left: int) -> None:
    cli.ok("topic", "create", topic, "-c", "retention.ms=-1")
    lines = "".join(f'{{"value": "{number}", "timestamp": {number * 1000}}}\n' for number in range(10))
    cli.ok("produce", topic, "--json", stdin=lines.encode())
    trimmed = cli.ok("topic", "trim", topic, "--to", place)
    assert trimmed.lines == [f"{topic}-0 start-before=0 start-after={first_left}"]
    assert cli.ok("consume", topic).lines == [str(number) for number in range(first_left, 10)]
    assert cli.ok("topic", "trim", topic, "--to", "0").lines == [
        f"{topic}-0 start-before={first_left} start-after={first_left}"
    ]


def test_trimming_can_be_limited_to_a_partition_and_never_goes_behind_the_end(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    for partition in "01":
        cli.ok("produce", topic, "-p", partition, stdin=b"a\nb\n" * (int(partition) + 1))
    line = cli.fails("topic", "trim", topic, "--to", "3")
    assert line == f"there is no offset 3 in {topic}-0, which ends at 2: name a smaller one, or 'end'"
    trimmed = cli.ok("topic", "trim", topic, "--to", "3", "-p", "1")
    assert trimmed.lines == [f"{topic}-1 start-before=0 start-after=3"]
    assert "no partition 2" in cli.fails("topic", "trim", topic, "--to", "end", "-p", "2", status=2)
    assert "no place in a log" in cli.fails("topic", "trim", topic, "--to", "soon", status=2)


def test_a_terminal_gets_tables(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    shown = on_a_terminal(["topic", "describe", topic], cli.address).out
    assert "in-sync" in shown and f"{topic}-1" in shown and "in-sync=" not in shown
