"""The guide's examples: each command is run in its order, and must answer what the guide says."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.guides import agrees, commands
from tests.process import BrokerProcess

EXAMPLES = 8


def test_the_guide_tells_the_truth(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        found = commands("rama.md")
        assert len(found) == EXAMPLES
        for command, told in found:
            run = command.replace("http://localhost:8080", broker.http_url).replace("curl", "curl -sS", 1)
            result = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=60, check=True)
            assert agrees(result.stdout.strip(), told), (command, result.stdout)
