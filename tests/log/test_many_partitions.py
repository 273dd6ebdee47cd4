"""Bounds: a thousand partitions of ten segments each open in seconds and in little memory, also after a crash.

What the disk takes for a flush is not ours, and differs from one minute to the next where others use it, too. So the
processor's time is bounded, and the number of flushes that are waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.clock import SystemClock
from odradek.disk.real import RealDisk
from odradek.log.store import open_store
from odradek.model import TopicPartition
from tests.log.support import LogOnDisk, batch, log_config, store_config, values_of

PARTITIONS = 1_000
SEGMENTS = 10
PROCESSOR_SECONDS_MAX = 10.0
FLUSHES_MAX = {"stopped in good order": 1, "killed": 3 * PARTITIONS}  # the recovery point, its name, the last segment
MEMORY_BYTES_MAX = 200 * 1024 * 1024
BATCHES_A_SEGMENT = 8

MEASURE = """
import json, os, pathlib, sys, time
from odradek.clock import SystemClock
from odradek.log.store import open_store
from tests.log.support import log_config, records_of, store_config

flushes = []

def counted(call):
    def flush(descriptor):
        flushes.append(call.__name__)
        call(descriptor)
    return flush

os.fsync, os.fdatasync = counted(os.fsync), counted(os.fdatasync)
begin, begin_processor = time.perf_counter(), time.process_time()
store = open_store(sys.argv[1], store_config(), SystemClock(), lambda _: log_config())
seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - begin_processor
# Not ru_maxrss: that begins with what the process had that started this one.
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
logs = list(store.logs.values())
print(json.dumps({
    "seconds": seconds,
    "processor_seconds": processor_seconds,
    "flushes": len(flushes),
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


@pytest.mark.parametrize("end", ["stopped in good order", "killed"])
def test_a_thousand_partitions_open_in_seconds_and_little_memory(tmp_path: Path, end: str) -> None:
    clean = end == "stopped in good order"
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
    print(
        f"{PARTITIONS} partitions, {found['segments']} segments: {found['seconds']:.2f} s, of the processor"
        f" {found['processor_seconds']:.2f} s, {found['flushes']} flushes, {megabytes:.0f} MB"
    )
    assert (found["partitions"], found["segments"]) == (PARTITIONS, PARTITIONS * SEGMENTS)
    assert found["offsets"] == [SEGMENTS * BATCHES_A_SEGMENT + 1]
    assert found["scanned"] == (0 if clean else PARTITIONS)
    assert (found["first"], found["last"]) == (BATCHES_A_SEGMENT, 1)
    assert found["processor_seconds"] < PROCESSOR_SECONDS_MAX
    assert found["flushes"] <= FLUSHES_MAX[end]
    assert found["peak_bytes"] < MEMORY_BYTES_MAX


def open_segments_below(directory: Path) -> int:
    """How many segments this process has open, as the system counts them."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # the descriptor that lists the others
            continue
        count += target.startswith(str(directory)) and target.endswith(".log")
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="only there the system lists a process's descriptors")
def test_a_store_keeps_no_more_segments_open_than_its_setting_says(tmp_path: Path) -> None:
    config = replace(store_config(), log_open_files_max=8)
    store = open_store(str(tmp_path), config, SystemClock(), lambda _: log_config())
    logs = [store.create(TopicPartition("topic", number)) for number in range(30)]
    most = 0
    for number, log in enumerate(logs):
        log.append(batch(b"%d" % number))
        most = max(most, open_segments_below(tmp_path))
    assert most == 8
    assert [values_of(log) for log in logs] == [[b"%d" % number] for number in range(30)]
    store.close()
    assert open_segments_below(tmp_path) == 0
