"""The README is word for word true: its programs run, and the commands print what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides import agrees
from tests.process import BrokerProcess

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for found, text in fenced if found == language]


def _run(directory: Path, command: str) -> str:
    ran = subprocess.run(command, cwd=directory, shell=True, check=False, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("readme") / "data", http=True, grpc=True) as process:
        yield process


def _programs() -> list[str]:
    return _blocks("python")


@pytest.mark.parametrize("program", _programs(), ids=lambda text: text.splitlines()[-1])
def test_the_programs_in_the_readme_run(tmp_path: Path, broker: BrokerProcess, program: str) -> None:
    text = program.replace("127.0.0.1:9092", broker.bootstrap).replace("127.0.0.1:50051", broker.grpc)
    (tmp_path / "program.py").write_text(text)
    printed = _run(tmp_path, f"{sys.executable} program.py").splitlines()
    if "a star-shaped bobbin" in program:
        assert printed[:2] == ["acknowledged at offset 0", "acknowledged at offset 1"]
        assert printed[3] == "1 b'odradek' b'a star-shaped bobbin'"
    elif "Eeylops" in program:
        assert printed == ["100000 published, the last one read at offset 99999"]
    elif "spark" in program:
        assert printed == ["1000 records, the last one at offset 999"]
    else:
        assert printed[0].startswith("give this to your client: 127.0.0.1:")


def _sessions() -> list[tuple[str, str]]:
    """Each command line of the README with what it says that is printed."""
    blocks = (block for block in _blocks("") if block.startswith("$ "))
    return [found for block in blocks for found in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)]


def test_the_commands_in_the_readme_print_what_it_shows(tmp_path: Path, broker: BrokerProcess) -> None:
    odradek = Path(sys.executable).with_name("odradek")
    os.environ["ODRADEK_BROKER"] = broker.bootstrap
    for command, expected in _sessions():
        if "kcat" in command and shutil.which("kcat") is None:
            continue
        short = f"{command} --count 1000" if " bench " in command else command
        line = short.replace("127.0.0.1:9092", broker.bootstrap).replace(".venv/bin/odradek", str(odradek))
        line = line.replace("127.0.0.1:50051", broker.grpc)
        printed = _run(tmp_path, line.replace("http://127.0.0.1:8080", broker.http_url))
        assert not expected or agrees(printed.strip(), expected.strip()), (command, printed)


def test_every_make_command_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pages = README + (ROOT / "CONTRIBUTING.md").read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_every_page_that_is_linked_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
