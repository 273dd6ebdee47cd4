"""`odradek group`: lag as it is, offsets moved only when nobody is in the way."""

from __future__ import annotations

import pytest

from tests.cli.commands import Cli, Process, on_a_terminal


def fill(cli: Cli, topic: str, *counts: int) -> None:
    """Make a topic with so many records in each of its partitions, a second of 1970 apart."""
    cli.ok("topic", "create", topic, "-p", str(len(counts)), "-c", "retention.ms=-1")
    for partition, count in enumerate(counts):
        lines = "".join(f'{{"value": "{number}", "timestamp": {number * 1000}}}\n' for number in range(count))
        cli.ok("produce", topic, "--json", "-p", str(partition), stdin=lines.encode())


def test_groups_are_listed(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 1)
    cli.ok("consume", topic, "--group", group)
    assert f"{group} state=Empty protocol=classic" in cli.ok("group", "list").lines
    (listed,) = [found for found in cli.ok("group", "list", "--json").objects if found["group"] == group]
    assert listed == {"group": group, "state": "Empty", "protocol": "classic", "protocol_type": "consumer"}


def test_the_state_of_sparks_sink_is_listed_only_when_asked_for(cli: Cli, topic: str) -> None:
    fill(cli, topic, 1)
    name = f"odradek-sink-{topic}-0"
    cli.ok("consume", topic, "--group", name)
    assert not [line for line in cli.ok("group", "list").lines if line.startswith(name)]
    assert [line for line in cli.ok("group", "list", "--all").lines if line.startswith(name)]


def test_a_group_is_described_with_its_members_and_lag(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 5, 0)
    with Process(["consume", topic, "-f", "--group", group, "-n", "6"], cli.address) as process:
        process.read_until(b"4\n")
        (described,) = cli.ok("group", "describe", group, "--json").objects
        members = described["members"]
        assert isinstance(members, list)
        (member,) = members
        assert (member["client"], member["instance"]) == ("odradek-cli", None)
        assert member["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        head, line, *partitions = cli.ok("group", "describe", group).lines
        assert head.startswith(f"group {group}: Stable, 1 member, total lag ")
        assert line.startswith(f"{member['member']} client=odradek-cli host=") and line.endswith(" partitions=2")
        assert partitions[1].startswith(f"{topic}-1 ") and partitions[1].endswith(f" member={member['member']}")
        cli.ok("produce", topic, "-p", "1", stdin=b"last\nunread\n")
        assert process.end().status == 0
    ran = cli.ok("group", "describe", group)
    ends = {line.partition(" member")[0] for line in ran.lines[1:]}
    assert ran.lines[0] == f"group {group}: Empty, 0 members, total lag 1"
    assert ends == {f"{topic}-0 committed=5 end=5 lag=0", f"{topic}-1 committed=1 end=2 lag=1"}


def test_offsets_of_a_topic_that_is_gone_are_no_obstacle(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 3)
    cli.ok("topic", "create", f"{topic}-2")
    cli.ok("group", "reset", group, topic, f"{topic}-2", "--to", "start")
    cli.ok("topic", "delete", f"{topic}-2", "--yes")
    lines = cli.ok("group", "describe", group).lines
    assert f"{topic}-0 committed=0 end=3 lag=3 member=-" in lines


@pytest.mark.parametrize(
    ("place", "first", "second"),
    [("start", 0, 0), ("end", 10, 4), ("3", 3, 3), ("+2", 2, 2), ("-3", 7, 1), ("@2000", 2, 2), ("@3500", 4, 4)],
)
def test_offsets_are_moved(cli: Cli, topic: str, group: str, place: str, first: int, second: int) -> None:
    fill(cli, topic, 10, 4)
    cli.ok("consume", topic, "--group", group)
    expected = [f"{topic}-0 before=10 after={first}", f"{topic}-1 before=4 after={second}"]
    tried = cli.ok("group", "reset", group, topic, "--to", place, "--dry-run")
    assert tried.lines == expected
    assert tried.err == "nothing was changed: leave --dry-run away to do it\n"
    assert cli.ok("consume", topic, "--group", group).lines == []
    assert cli.ok("group", "reset", group, topic, "--to", place).lines == expected
    assert len(cli.ok("consume", topic, "--group", group).lines) == 10 - first + 4 - second


def test_one_partition_can_be_moved_and_a_new_group_prepared(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 4, 4)
    ran = cli.ok("group", "reset", group, f"{topic}:1", "--to", "3")
    assert ran.lines == [f"{topic}-1 before=- after=3"]
    assert ran.err == f"group {group} has no offsets yet: it is new\n"
    assert sorted(cli.ok("consume", topic, "--group", group).lines) == ["0", "1", "2", "3", "3"]


def test_offsets_that_are_not_there_are_refused_or_moved_to_where_the_log_begins(
    cli: Cli, topic: str, group: str
) -> None:
    fill(cli, topic, 4)
    cli.ok("topic", "trim", topic, "--to", "2")
    assert f"there is no offset 5 in {topic}-0, which ends at 4" in cli.fails(
        "group", "reset", group, topic, "--to", "5"
    )
    assert cli.ok("group", "reset", group, topic, "--to", "1").lines == [f"{topic}-0 before=- after=2"]
    assert "is no TOPIC:PARTITION" in cli.fails("group", "reset", group, f"{topic}:x", "--to", "end", status=2)
    assert "no partition 9" in cli.fails("group", "reset", group, f"{topic}:9", "--to", "end", status=2)
    assert f"did you mean '{topic}'" in cli.fails("group", "reset", group, topic[:-1], "--to", "end")


def test_a_group_with_members_is_neither_moved_nor_deleted(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 1)
    with Process(["consume", topic, "-f", "--group", group], cli.address) as process:
        process.read_until(b"0\n")
        line = cli.fails("group", "reset", group, topic, "--to", "start")
        assert line.startswith(f"group {group} has 1 active member (odradek-cli at ") and "stop them first" in line
        assert "has 1 active member (odradek-cli at " in cli.fails("group", "delete", group, "--yes")
        process.interrupt()
        assert process.end().status == 130
    assert cli.ok("group", "reset", group, topic, "--to", "start").lines == [f"{topic}-0 before=1 after=0"]


def test_groups_are_deleted_when_that_is_agreed_to(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 1)
    for name in (group, f"{group}-2"):
        cli.ok("consume", topic, "--group", name)
    assert "add --yes to agree" in cli.fails("group", "delete", group, status=2)
    refused = on_a_terminal(["group", "delete", group], cli.address, b"n\n", after=b"[y/N]")
    assert refused.status == 1 and "nothing was changed" in refused.out
    deleted = cli.ok("group", "delete", group, f"{group}-2", "-y")
    assert deleted.lines == [f"deleted group {group}", f"deleted group {group}-2"]
    assert group not in cli.ok("group", "list").out


def test_a_wrong_group_is_answered_with_the_nearest(cli: Cli, topic: str, group: str) -> None:
    fill(cli, topic, 1)
    cli.ok("consume", topic, "--group", group)
    for action in (("describe",), ("delete", "--yes")):
        line = cli.fails("group", *action, group[:-1])
        assert line == f"there is no group '{group[:-1]}': did you mean '{group}'?"
    assert "'odradek group list' shows those" in cli.fails("group", "describe", "qqq")
