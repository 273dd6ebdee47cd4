"""Every setting is documented, and every setting is read by something."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from odradek.cli.reference import render_settings
from odradek.config import SETTINGS
from tests.architecture import ROOT, SOURCE, python_files, relative

REFERENCE = ROOT / "docs" / "reference" / "settings.md"

# What the parts are handed in place of a setting's name, where it is not a field called the same.
READ_AS = {
    "dir": "directory",
    "broker.heartbeat.interval.ms": "heartbeat_interval_ms",
    "broker.session.timeout.ms": "session_timeout_ms",
    "cluster.secret.file": "secret",
    "controller.quorum.election.timeout.ms": "election_timeout_ms",
    "controller.quorum.fetch.timeout.ms": "fetch_timeout_ms",
    "local.retention.bytes": "retention_bytes",  # what the log of an archived topic keeps on the disk
    "local.retention.ms": "retention_ms",
    "metadata.snapshot.bytes": "snapshot_bytes",
    "metadata.snapshot.interval.ms": "snapshot_interval_ms",
}
# Addresses, which the composition root reads by their names: `settings.address("kafka")`.
READ_BY_NAME = {"kafka", "http", "grpc", "advertised.kafka", "advertised.http", "advertised.grpc"}

# These two make the objects that others read: what they mention is not a use.
MAKERS = (SOURCE / "config.py", SOURCE / "settings_table.py")


def attributes_read(source: str) -> set[str]:
    """Collect the names x in every `something.x` that is read: not assigned, and not called as `file.flush()` is."""
    nodes = list(ast.walk(ast.parse(source)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called
    }


@cache
def attributes_read_in_source() -> set[str]:
    files = [file for file in python_files(SOURCE) if file not in MAKERS]
    return set().union(*(attributes_read(file.read_text(encoding="utf-8")) for file in files))


def test_the_checker_of_readers_tells_reading_from_mentioning() -> None:
    assert attributes_read("if size > self.config.segment_bytes: roll()") >= {"segment_bytes"}
    for mention in (
        "segment_bytes: int",
        "x.segment_bytes()",
        "x.segment_bytes = 1",
        "f(segment_bytes=1)",
        "# config.segment_bytes",
    ):
        assert "segment_bytes" not in attributes_read(mention)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_is_read_by_something(name: str) -> None:
    if name in READ_BY_NAME:
        is_read = f'"{name}"' in (SOURCE / "node.py").read_text(encoding="utf-8")
    else:
        is_read = READ_AS.get(name, name.replace(".", "_")) in attributes_read_in_source()
    assert is_read, f"nothing in src reads {name}: let something read it, or take it out of the table"


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_documented_with_its_sentence(name: str) -> None:
    (row,) = [line for line in REFERENCE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    assert SETTINGS[name].summary in row
    assert SETTINGS[name].summary.endswith(".")


def test_the_committed_reference_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_settings(), (
        f"{relative(REFERENCE)} is not what the table says: run `make docs`"
    )


def test_the_makers_are_where_this_test_believes_them() -> None:
    assert [file for file in MAKERS if not Path(file).exists()] == []
