"""`odradek settings`, and the page of the reference made from the same table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.cli.reference import render_settings
from odradek.config import SETTINGS


def lines_of(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Read the plain list back: name -> value, source."""
    rows = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    return {name: (value, source) for name, value, source in rows}


def test_the_list_has_every_setting_with_its_value_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    rows = lines_of(capsys)
    assert list(rows) == list(SETTINGS)
    assert rows["segment.bytes"] == ("1073741824", "default")
    assert rows["dir"] == ("~/.odradek", "default")


def test_the_list_shows_what_file_environment_and_flags_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "odradek.toml"
    file.write_text("[segment]\nbytes = '64MiB'")
    monkeypatch.setenv("ODRADEK_CLEANUP_POLICY", "delete,compact")
    flags = ["--set", "retention.ms=7d", "--set", "retention.ms=1d", "--data", "/srv"]
    assert main(["settings", "--config", str(file), *flags]) == 0
    rows = lines_of(capsys)
    assert rows["segment.bytes"] == ("67108864", f"file {file}")
    assert rows["cleanup.policy"] == ("compact,delete", "environment ODRADEK_CLEANUP_POLICY")
    assert rows["retention.ms"] == ("86400000", "flag --set retention.ms")
    assert rows["dir"] == ("/srv", "flag --data")


@pytest.mark.parametrize("scope", ["broker", "topic"])
def test_the_list_can_be_cut_to_a_scope(capsys: pytest.CaptureFixture[str], scope: str) -> None:
    assert main(["settings", "--scope", scope]) == 0
    assert list(lines_of(capsys)) == [setting.name for setting in SETTINGS.values() if setting.scope == scope]


def test_a_named_setting_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "retention.ms", "--set", "retention.ms=-1"]) == 0
    assert capsys.readouterr().out == (
        "retention.ms = -1 (unlimited)\n"
        "  A closed segment is deleted when its newest record is older than this.\n"
        "  from         flag --set retention.ms\n"
        "  type         duration in ms\n"
        "  default      604800000 (7d)\n"
        "  allowed      0 or more, or -1 for unlimited\n"
        "  scope        topic (the broker's value is for topics without their own)\n"
        "  environment  ODRADEK_RETENTION_MS\n"
        "  flag         --set retention.ms=...\n"
    )


def test_the_directory_is_shown_with_its_tilde_expanded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/k")
    assert main(["settings", "dir"]) == 0
    assert "  directory    /home/k/.odradek\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_be_explained(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["settings", name]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in (name, SETTINGS[name].summary, *SETTINGS[name].environment))


def test_json_has_values_of_their_own_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--json", "--set", "cleanup.policy=delete,compact"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == list(SETTINGS)
    assert document["segment.bytes"]["value"] == 2**30
    assert document["min.cleanable.dirty.ratio"]["value"] == 0.5
    assert document["cleanup.policy"]["value"] == ["compact", "delete"]
    assert document["cleanup.policy"]["default"] == ["delete"]
    assert document["cleanup.policy"]["source"] == "flag --set cleanup.policy"
    assert document["dir"]["environment"] == ["ODRADEK_DIR", "ODRADEK_DATA"]


def test_json_can_be_cut_to_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--json", "flush"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["flush"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flsh"], "there is no setting 'flsh': did you mean flush? 'odradek settings' lists them all"),
        (["--set", "flush"], "--set flush has no value: write --set flush=VALUE"),
        (
            ["--set", "flush=x"],
            "flush = 'x' (flag --set flush) is not in the list; allowed: group, replicated or os",
        ),
        (["--set", "dir=/a", "--data", "/b"], "dir is set twice: to '/a' (flag --set dir) and to '/b' (flag --data)"),
        (["--config", "/none.toml"], "the settings file /none.toml cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["settings", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"odradek: {message}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_path_with_control_characters_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["settings"], ["settings", "dir"]):
        assert main([*arguments, "--data", "/tmp/\x1b[2J\n"]) == 0
        assert "/tmp/\\x1b[2J\\n" in capsys.readouterr().out


def test_the_reference_is_written_where_it_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "reference"
    subprocess.run([sys.executable, "-m", "odradek.cli.reference", str(folder)], check=True, capture_output=True)
    assert (folder / "settings.md").read_text(encoding="utf-8") == render_settings()


def test_every_row_of_the_reference_has_all_its_columns() -> None:
    rows = [line for line in render_settings().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert len(rows) == len(SETTINGS) + 4
