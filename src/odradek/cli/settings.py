"""`odradek settings`: the values in force and where each came from; with names, all there is to know about those.

`add_setting_arguments` and `settings_from` are for every command that takes settings.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from odradek.cli.terminal import CommandError, escape, is_terminal, table
from odradek.config import Setting, SettingError, Settings, Value, find_setting, load_settings
from odradek.settings_rows import SETTINGS

_EXIT_USAGE = 2

_DESCRIPTION = """\
Show the settings in force and where each value came from: a default, the settings file, an ODRADEK_* environment
variable or a flag, each stronger than the one before. With a NAME, explain that setting."""

_EXAMPLES = """\
examples:
  odradek settings                               all settings, one a line
  odradek settings segment.bytes flush           what these two do, and what is allowed
  odradek settings --scope topic                 only those that a topic can set for itself
  odradek settings --config odradek.toml         as a broker with this file would see them
  odradek settings --set retention.ms=7d         try a value: is it allowed, and how much is it?
  ODRADEK_SEGMENT_BYTES=64MiB odradek settings   the same by environment
  odradek settings --json | jq '."retention.ms".value'

a settings file (TOML):
  dir = "/var/lib/odradek"
  segment.bytes = "256MiB"
  [retention]
  ms = "30d"
"""


def add_setting_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command take settings: --config, --set and --data."""
    group = parser.add_argument_group("settings")
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="read this TOML file (default: the one ODRADEK_CONFIG names)"
    )
    group.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], dest="set", help="set one setting; repeatable"
    )
    group.add_argument("--data", metavar="DIR", help="the data directory; the same as --set dir=DIR")


_NONE = "(none)"


def settings_from(args: argparse.Namespace) -> Settings:
    """Load the settings that a command was given by `add_setting_arguments` and the environment."""
    flags = dict(_name_and_value(text) for text in args.set)
    if args.data is not None:
        flags["--data"] = args.data
    try:
        return load_settings(args.config, os.environ, flags)
    except SettingError as error:
        raise CommandError(str(error), _EXIT_USAGE) from error


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"--set {text} has no value: write --set {text}=VALUE", _EXIT_USAGE)
    return name.strip(), value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek settings` takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.add_argument("names", metavar="NAME", nargs="*", help="explain these settings")
    parser.add_argument("--scope", choices=("broker", "topic"), help="only settings of the broker, or of topics")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_setting_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the settings."""
    settings = settings_from(args)
    try:
        chosen = [find_setting(name) for name in args.names] or list(SETTINGS.values())
    except SettingError as error:
        raise CommandError(str(error), _EXIT_USAGE) from error
    chosen = [setting for setting in chosen if args.scope in (None, setting.scope)]
    if args.json:
        print(json.dumps({setting.name: _for_programs(setting, settings) for setting in chosen}, indent=2))
    elif args.names:
        print("\n\n".join(_explained(setting, settings) for setting in chosen))
    else:
        _list(chosen, settings)
    return 0


def _list(chosen: Sequence[Setting], settings: Settings) -> None:
    # A person gets 1GiB explained; a script gets the same plain number whatever the unit is.
    written = _with_meaning if is_terminal() else Setting.text
    table(
        ("setting", "value", "from"),
        [(each.name, written(each, settings[each.name]) or _NONE, settings.source(each.name)) for each in chosen],
    )


def _with_meaning(setting: Setting, value: Value) -> str:
    meaning = setting.meaning(value)
    return f"{setting.text(value)} ({meaning})" if meaning else setting.text(value) or _NONE


def _explained(setting: Setting, settings: Settings) -> str:
    scope = "topic (the broker's value is for topics without their own)" if setting.scope == "topic" else "broker"
    facts = [
        ("from", settings.source(setting.name)),
        ("type", f"{setting.kind.value} in {setting.unit}" if setting.unit else setting.kind.value),
        ("default", _with_meaning(setting, setting.default)),
        ("allowed", setting.allowed),
        ("scope", scope),
        ("environment", " or ".join(setting.environment)),
        ("flag", f"--set {setting.name}=..." + (f" or {setting.flag}" if setting.flag else "")),
    ]
    if setting.name == "dir":
        facts.insert(0, ("directory", str(settings.directory)))
    lines = [
        f"{setting.name} = {_with_meaning(setting, settings[setting.name])}",
        f"  {setting.summary}",
        *(f"  {label:<11}  {fact}" for label, fact in facts),
    ]
    return "\n".join(map(escape, lines))


def _for_programs(setting: Setting, settings: Settings) -> dict[str, object]:
    return {
        "value": _plain(settings[setting.name]),
        "source": settings.source(setting.name),
        "default": _plain(setting.default),
        "scope": setting.scope,
        "type": setting.kind.value,
        "unit": setting.unit,
        "allowed": setting.allowed,
        "environment": list(setting.environment),
        "summary": setting.summary,
    }


def _plain(value: Value) -> int | float | str | list[str]:
    return sorted(value) if isinstance(value, frozenset) else value
