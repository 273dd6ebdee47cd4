"""The guides about object stores: each command, run at a terminal, prints what they say, and the programs run."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.guides import agrees, commands, programs
from tests.process import BrokerProcess

SECONDS_MAX = 60
CHANNEL_COMMANDS = 12
TIERED_COMMANDS = 4
BOX = "─"


class Terminal:
    """A shell in a directory, whose programs take their standard output for a terminal."""

    def __init__(self, directory: Path, variables: dict[str, str]) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.directory = directory
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "120", "TERM": "dumb", **variables}

    def run(self, command: str) -> str:
        """What a person sees of it, without the spaces that fill a table; of what is said beside it, only that."""
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123 - it is a descriptor
            ran = subprocess.Popen(
                ["bash", "-c", command], cwd=self.directory, env=self.environment, stdout=theirs, stderr=subprocess.PIPE
            )
            os.close(theirs)
            shown = _read_all(screen.fileno()).decode()
            _, said = ran.communicate(timeout=SECONDS_MAX)
        assert ran.returncode == 0, (command, said)
        lines = [" ".join(line.split()) for line in (shown or said.decode()).splitlines()]
        return "\n".join(line for line in lines if line.strip(BOX))

    def export(self, name: str, command: str) -> str:
        """Give a variable what a command prints, for the commands that follow; what it says beside it is seen."""
        said = self.run(f"{command} > printed")
        self.environment[name] = (self.directory / "printed").read_text(encoding="utf-8").strip()
        return said


def _read_all(descriptor: int) -> bytes:
    read = b""
    try:
        while piece := os.read(descriptor, 65536):
            read += piece
    except OSError:  # the last program has closed its end
        return read
    return read


def check_commands(broker: BrokerProcess, guide: str, count: int) -> Terminal:
    """Run the commands of a guide at a broker; return where that was."""
    http = broker.http_url.removeprefix("http://")
    terminal = Terminal(broker.directory.parent, {"ODRADEK_REST": http, "ODRADEK_BROKER": broker.bootstrap})
    found = commands(guide)
    assert len(found) == count
    for command, told in found:
        exported = re.fullmatch(r"export (\w+)=\$\((.*)\)", command)
        printed = terminal.run(command) if exported is None else terminal.export(*exported.groups())
        wanted = "\n".join(" ".join(line.split()) for line in told.splitlines() if line.strip(f" {BOX}"))
        assert agrees(printed, wanted), (command, printed)
    return terminal


def test_the_guide_to_channels_tells_the_truth(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        terminal = check_commands(broker, "channels.md", CHANNEL_COMMANDS)
    reading, working = programs("channels.md")
    assert terminal.run(f"python - <<'END'\n{reading}\nEND").count('"page":') == 3
    assert terminal.run(f"python - <<'END'\n{working}\nEND") == "stored up to sequence 99\n100 jobs done"


def test_the_guide_to_archived_topics_tells_the_truth(tmp_path: Path) -> None:
    settings = {"remote.log.manager.task.interval.ms": "10", "log.retention.check.interval.ms": "10"}
    with BrokerProcess(tmp_path / "data", settings, http=True) as broker:
        check_commands(broker, "tiered.md", TIERED_COMMANDS)
