"""The two sides of the Spark comparison as processes: started, sent jobs, weighed by the processor time they take."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kafka_clients import servers
from bench.kafka_process import BenchError, Process

START_SECONDS = 120.0
JOB_SECONDS = 330.0
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    """What came of one job."""

    seconds: float
    rows: int | None  # where the job itself can tell
    batches: tuple[tuple[int, int], ...]  # rows and milliseconds of each micro-batch
    spark_cpu_s: float
    broker_cpu_s: float
    digest: tuple[Any, ...] = ()


class Side:
    """One Spark session in a process of its own."""

    def __init__(self, name: str, source: str, jars: Sequence[Path], port: int, work: Path, broker: Process) -> None:
        self.name = name
        self.version = ""
        self._broker = broker
        directory = work / name
        directory.mkdir()
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(directory / "jobs"))
            door.listen(1)
            door.settimeout(0.5)
            arguments = {
                "source": source,
                "servers": servers(port),
                "jars": ",".join(map(str, jars)),
                "socket": str(directory / "jobs"),
                "local": str(directory / "local"),
            }
            command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "bench.spark_driver"]
            command += [f"--{option}={value}" for option, value in arguments.items()]
            self.process = Process(f"Spark ({name})", command, directory)
            try:
                self._connection = self._accept(door)
                self._connection.settimeout(JOB_SECONDS)
                self._lines = self._connection.makefile("rw", encoding="utf-8")
                self.version = str(self._receive()["version"])
            except BaseException:
                self.process.stop()
                raise

    def run(self, kind: str, **job: object) -> Outcome:
        """Let it do a job; raise with what Spark says if it fails."""
        before = self.process.cpu_seconds(), self._broker.cpu_seconds()
        self._lines.write(json.dumps({"kind": kind, **job}) + "\n")
        self._lines.flush()
        result = self._receive()
        after = self.process.cpu_seconds(), self._broker.cpu_seconds()
        if "error" in result:
            raise BenchError(f"{kind} failed with {self.name}: {result['error']}")
        return Outcome(
            seconds=result.get("seconds", 0.0),
            rows=result.get("rows"),
            batches=tuple((rows, ms) for rows, ms in result.get("batches", ())),
            spark_cpu_s=after[0] - before[0],
            broker_cpu_s=after[1] - before[1],
            digest=tuple(result.get("digest", ())),
        )

    def stop(self) -> None:
        """End the session and whatever it started."""
        self._lines.close()
        self._connection.close()
        self.process.stop()

    def _accept(self, door: socket.socket) -> socket.socket:
        begin = os.times().elapsed
        while os.times().elapsed - begin < START_SECONDS:
            try:
                return door.accept()[0]
            except TimeoutError:
                self.process.check()
        raise BenchError(f"{self.process.name} was not ready after {START_SECONDS:.0f} s")

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise BenchError(f"{self.process.name} did not answer for {JOB_SECONDS:.0f} s") from None
        if not line:
            self.process.check()
            raise BenchError(f"{self.process.name} hung up")
        found: dict[str, Any] = json.loads(line)
        return found
