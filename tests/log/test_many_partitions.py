"""Bounds: a thousand partitions of ten segments each open in seconds and in little memory, also after a crash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.disk.real import RealDisk
from tests.log.support import LogOnDisk, batch

PARTITIONS = 1_000
SEGMENTS = 10
SECONDS_MAX = 10.0
MEMORY_BYTES_MAX = 200 * 1024 * 1024
BATCHES_A_SEGMENT = 8

MEASURE = """
import json, resource, sys, time
from odradek.clock import SystemClock
from odradek.disk.real import RealDisk
from odradek.log.store import LogStore
from tests.log.support import log_config, records_of, store_config

begin = time.perf_counter()
store = LogStore(RealDisk(), sys.argv[1], store_config(), SystemClock(), lambda _: log_config())
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
logs = list(store.logs.values())
print(json.dumps({
    "seconds": seconds,
    "peak_bytes": peak,
    "partitions": len(logs),
    "segments": sum(len(log.segments) for log in logs),
    "offsets": sorted({log.next_offset for log in logs}),
    "scanned": len(store.reports),
    "first": len(records_of(logs[0].read(0, 1 << 20).data)),
    "last": len(records_of(logs[-1].read(logs[-1].next_offset - 1, 1 << 20).data)),
}))
"""


def make_template(directory: Path, *, clean: bool) -> None:
    """Write one partition, and stop in good order or in the middle of things."""
    subject = LogOnDisk(RealDisk(), str(directory), index_interval_bytes=512)
    for number in range(SEGMENTS):
        for _ in range(BATCHES_A_SEGMENT):
            subject.log.append(batch(bytes(200), producer=None))
        if number < SEGMENTS - 1:
            subject.log.roll()
        else:
            subject.log.flush()
            subject.log.append(batch(bytes(200)))  # answered to nobody
    if clean:
        subject.log.close()


def copy_partition(template: Path, target: Path) -> None:
    """Copy what may be written to; what never changes again is linked, which is faster."""
    target.mkdir()
    active = max(path.name for path in template.glob("*.log")).removesuffix(".log")
    for path in template.iterdir():
        if path.suffix in (".log", ".index", ".timeindex") and path.stem != active:
            os.link(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped in good order", "killed"])
def test_a_thousand_partitions_open_in_seconds_and_little_memory(tmp_path: Path, clean: bool) -> None:
    template, data = tmp_path / "template-0", tmp_path / "data"
    make_template(template, clean=clean)
    data.mkdir()
    for number in range(PARTITIONS):
        copy_partition(template, data / f"topic-{number}")
    if clean:
        (data / "clean-stop").write_text("1\n")
    output = subprocess.run(
        [sys.executable, "-c", MEASURE, str(data)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert output.returncode == 0, output.stderr
    found = json.loads(output.stdout)
    megabytes = found["peak_bytes"] / 1024**2
    print(f"{PARTITIONS} partitions, {found['segments']} segments: {found['seconds']:.2f} s, {megabytes:.0f} MB")
    assert (found["partitions"], found["segments"]) == (PARTITIONS, PARTITIONS * SEGMENTS)
    assert found["offsets"] == [SEGMENTS * BATCHES_A_SEGMENT + 1]
    assert found["scanned"] == (0 if clean else PARTITIONS)
    assert (found["first"], found["last"]) == (BATCHES_A_SEGMENT, 1)
    assert found["seconds"] < SECONDS_MAX
    assert found["peak_bytes"] < MEMORY_BYTES_MAX
