"""The real command in a process of its own: a Spark of its own, progress on standard error, and Ctrl+C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.client.sync import Client
from tests.cli.commands import command
from tests.process import wait_until
from tests.spark.conftest import Produce

START_SECONDS_MAX = 180.0

PIPELINE = """\
from odradek.spark.pipelines import Pipeline

pipeline = Pipeline("{name}", trigger="200 milliseconds")
pipeline.topic("lines", "{name}.lines", format="string")
pipeline.write_topic("lines", "{name}.copy", format="string")
"""


@pytest.mark.xdist_group("spark")
def test_ctrl_c_ends_a_pipeline_that_follows(
    bootstrap: str, client: Client, produce: Produce, tmp_path: Path, new_name: Callable[[], str]
) -> None:
    name = new_name()
    (tmp_path / "mirror.py").write_text(PIPELINE.format(name=name))
    client.admin.create_topic(f"{name}.copy")
    produce(f"{name}.lines", ["one", "two"])
    environment = {**os.environ, "ODRADEK_BROKER": bootstrap, "ODRADEK_DIR": str(tmp_path / "home")}

    def status() -> dict[str, object]:
        arguments = command("pipeline", "status", name, "--json")
        ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
        found: dict[str, object] = json.loads(ran.stdout)
        return found

    said = tmp_path / "said.txt"
    with said.open("w") as stderr:
        process = subprocess.Popen(
            command("pipeline", "run", "mirror.py", "--follow", "--master", "local[1]"),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        first = f"{name}.copy: batch 0, 2 rows, "
        wait_until(
            lambda: first in said.read_text() or process.poll() is not None, START_SECONDS_MAX, "the first batch"
        )
        assert process.poll() is None, said.read_text()
        told = status()
        assert (told["running"], told["pid"], told["mode"]) == (True, process.pid, "follow")
        produce(f"{name}.lines", ["three"])
        wait_until(lambda: "batch 1, 1 rows, " in said.read_text(), 60, "the second batch")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Java and Spark's workers get it, too
        out, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, said.read_text()
    assert out.startswith(f"{name}: stopped after ") and out.endswith("3 rows in 2 batches\n")
    noise = [
        line
        for line in said.read_text().splitlines()
        if not line.startswith(
            (f"{name}.copy: batch ", "stopping after the batch under way", "WARNING: Using incubator")
        )
    ]
    assert noise == []
    told = status()
    assert (told["state"], told["running"], told["lag"]) == ("stopped", False, 0)
    with client.consumer(f"{name}.copy") as consumer:
        assert [next(iter(consumer)).value for _ in range(3)] == [b"one", b"two", b"three"]
