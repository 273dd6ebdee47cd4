"""The guide's examples: each command is run in its order, and must answer what the guide says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.guides import agrees, commands
from tests.process import BrokerProcess

STREAM_SECONDS = "3"
TIMEOUT_STATUS = 28  # of a curl that was told how long a stream may take


def same(text: str) -> str:
    """A text without the time of day."""
    return re.sub(r'"timestamp":\d{13}', '"timestamp":0', text)


def test_the_guide_tells_the_truth(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        done = 0
        for command, told in commands("katar.md"):
            run = command.replace("http://localhost:8080", broker.http_url)
            run = run.replace("curl", f"curl -sS --max-time {STREAM_SECONDS if '-N' in command else '60'}", 1)
            result = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=70, check=False)
            assert result.returncode in (0, TIMEOUT_STATUS), result.stderr
            assert agrees(same(result.stdout.strip()), same(told)), (command, result.stdout)
            done += 1
        assert done == 11
