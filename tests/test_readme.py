"""The README is word for word true: its program runs, and the commands print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for found, text in fenced if found == language]


def _run(directory: Path, *words: str) -> str:
    return subprocess.run(words, cwd=directory, check=True, capture_output=True, text=True).stdout


def test_the_program_in_the_readme_runs_and_the_commands_print_what_it_shows(tmp_path: Path) -> None:
    (program,) = _blocks("python")
    assert _run(tmp_path, sys.executable, "-c", program).splitlines()[1] == "1 b'order-1' b'a star-shaped bobbin'"
    (session,) = (block for block in _blocks("") if block.startswith("$ "))
    for command, expected in re.findall(r"^\$ \.venv/bin/odradek (.*)\n((?:[^$].*\n)*)", session, re.MULTILINE):
        printed = _run(tmp_path, sys.executable, "-m", "odradek.cli.main", *command.split())
        assert printed == expected, command
    assert len(_run(tmp_path, sys.executable, "-c", program).splitlines()) == 4, "it can be run again"


def test_every_make_command_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pages = README + (ROOT / "CONTRIBUTING.md").read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_every_page_that_is_linked_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "ARCHITECTURE.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
