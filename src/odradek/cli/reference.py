"""Writes the generated pages of docs/reference: `python -m odradek.cli.reference docs/reference`.

The pages come from the tables and .proto files that the code itself is made from, so that they cannot say anything
else; `make docs` renews them and tests assert that the committed ones are current.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from odradek.cli.grpc_reference import render_grpc
from odradek.config import CONFIG_VARIABLE, SETTINGS, Scope, Setting

_SETTINGS_HEAD = f"""\
# Settings

<!-- Generated from src/odradek/settings_table.py by `make docs`; edit that table, not this page. -->

A value comes from the strongest source that gives one: the default, then the settings file, then the environment,
then a flag. `odradek settings` shows the values in force and where each came from, `odradek settings NAME` explains
one.

- **File**: TOML, named by `--config` or `{CONFIG_VARIABLE}`. `segment.bytes = 4096`, `"segment.bytes" = 4096` and
  `[segment]` with `bytes = 4096` below it mean the same.
- **Environment**: `ODRADEK_` and the name in capitals with `_` for `.`; an empty variable counts as none.
- **Flag**: `--set segment.bytes=4096`.

Sizes are bytes, durations are milliseconds; both also take a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024),
`KB`, `MB`, `GB`, `TB` (powers of 1000); `ms`, `s`, `min`, `h`, `d`. A name or value that is not in these tables is
refused, never ignored.
"""

_SCOPES: tuple[tuple[Scope, str, str], ...] = (
    (
        "topic",
        "Settings of a topic",
        "A topic can set these for itself; what the broker is given is the default for topics that do not.",
    ),
    ("broker", "Settings of the broker", "These hold for the whole process; a topic cannot set them."),
)


def render_settings() -> str:
    """Write the page of the settings, the same text for the same table."""
    return "\n".join((_SETTINGS_HEAD, *_sections()))


def _sections() -> Iterator[str]:
    for scope, title, introduction in _SCOPES:
        yield f"## {title}\n\n{introduction}\n"
        yield "| setting | type | default | allowed | environment | what it does |\n|---|---|---|---|---|---|"
        yield from (_row(setting) for setting in SETTINGS.values() if setting.scope == scope)
        yield ""


def _row(setting: Setting) -> str:
    meaning = setting.meaning(setting.default)
    default = f"`{setting.text(setting.default)}`" + (f" ({meaning})" if meaning else "")
    environment = ", ".join(f"`{variable}`" for variable in setting.environment)
    flag = f" Flag: `{setting.flag}`." if setting.flag else ""
    cells = (
        f"`{setting.name}`",
        setting.kind.value,
        default,
        setting.allowed,
        environment,
        setting.summary + flag,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write all pages into the directory that the command line names."""
    parser = argparse.ArgumentParser(description="Write the generated pages of the reference.")
    parser.add_argument("directory", type=Path, help="where they go, such as docs/reference")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in (("settings.md", render_settings()), ("grpc.md", render_grpc())):
        page = directory / name
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
