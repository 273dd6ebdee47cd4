"""Rules of the house that a machine can check; `make check` runs them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "odradek"

_GENERATED = re.compile(r"_pb2(_grpc)?\.py$")


def python_files(*folders: Path) -> list[Path]:
    """List the Python files below some folders, sorted, but for generated ones; a missing folder has none."""
    return sorted(file for folder in folders for file in folder.rglob("*.py") if not _GENERATED.search(file.name))


def relative(file: Path) -> str:
    """Name a file as a person in the repository would."""
    return str(file.relative_to(ROOT))
