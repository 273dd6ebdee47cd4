"""Rules of the house that a machine can check; `make check` runs them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "odradek"


def python_files(*folders: Path) -> list[Path]:
    """List the Python files below some folders, sorted; a folder that does not exist has none."""
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def relative(file: Path) -> str:
    """Name a file as a person in the repository would."""
    return str(file.relative_to(ROOT))
