"""Where pipelines keep things on this machine: a folder each below the data directory, with status and checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"


def home() -> Path:
    """The folder of all pipelines."""
    directory = os.environ.get("ODRADEK_DIR") or os.environ.get("ODRADEK_DATA") or "~/.odradek"
    return Path(directory).expanduser().absolute() / "pipelines"


def folder_of(name: str) -> Path:
    """The folder of one pipeline."""
    return home() / name


def default_bootstrap() -> str:
    """The broker that is meant if none is named."""
    return os.environ.get("ODRADEK_BROKER") or BOOTSTRAP_DEFAULT
