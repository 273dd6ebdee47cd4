"""A partition is moved into another kind of segments whole, or not at all; a crash leaves one good one at the name."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.clock import ManualClock
from odradek.disk.errors import DiskError, LockedError
from odradek.disk.exchange import exchange
from odradek.disk.real import RealDisk
from odradek.log import convert as converting
from odradek.log.backends.choice import Kind, found_kind
from odradek.log.convert import Converted, convert
from odradek.log.epochs import FILE_NAME as EPOCHS_NAME
from odradek.log.errors import DamagedLogError, LogError
from odradek.log.index import IndexCache
from odradek.log.recovery import Shared
from odradek.log.store import LogStore
from odradek.log.verify import verify_partition
from odradek.log.verify_finding import Totals
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from tests.log.support import START_MS, LogOnDisk, batch, compact, keyed, log_config, store_config, values_of

KINDS: tuple[Kind, ...] = ("file", "sqlite", "rocksdb")
PAIRS = [(was, now) for was in KINDS for now in KINDS if was != now]
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def _has_rocksdb() -> None:
    pytest.importorskip("rocksdict")


def full_log(tmp_path: Path, kind: Kind) -> LogOnDisk:
    """A closed log with all that one can have: epochs, producers, codecs, gaps, a start that moved, a roll."""
    on_disk = LogOnDisk(
        RealDisk(), str(tmp_path / "orders-0"), segment_backend=kind, segment_bytes=2048, cleanup_policy="compact"
    )
    log = on_disk.log
    for number in range(40):
        log.append(keyed((b"key-%d" % (number % 7), b"old-%d" % number)), leader_epoch=1)
    assert compact(log)
    for number in range(30):
        data = batch(b"%d" % number, bytes(50), codec=Codec.ZSTD, producer=(5, 0, 2 * number))
        log.append(data, leader_epoch=2 + number // 10)
    log.delete_records(38).run()
    log.close()
    return on_disk


def shared_of(disk: RealDisk) -> Shared:
    return Shared(disk, ManualClock(START_MS), store_config(), IndexCache(1 << 20))


def run(on_disk: LogOnDisk, kind: Kind, disk: RealDisk | None = None, **settings: object) -> Converted:
    return convert(shared_of(disk or RealDisk()), on_disk.directory, kind, log_config(**settings), lambda _: None)


def everything(on_disk: LogOnDisk) -> dict[str, Any]:
    """All that must be the same before and after; the log is left closed."""
    log = on_disk.open()
    raw = []
    for segment in log.segments:
        offset = segment.base_offset
        while (chunk := segment.read(offset, 1 << 20, segment.next_offset)) is not None and chunk.data:
            raw.append(bytes(chunk.data))
            offset = chunk.next_offset
    facts = {
        "bytes": b"".join(raw),
        "offsets": (log.log_start, log.next_offset, log.flushed_offset),
        "epochs": Path(on_disk.directory, EPOCHS_NAME).read_text(),
        "sparse": (log.state.sparse, log.state.cleaned_to, log.state.topic_id),
        "times": log.offset_for_timestamp(START_MS),
        "report": on_disk.report,
    }
    log.close()
    return facts


def assert_alone(tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) in ([".lock", "orders-0"], ["orders-0"])


@pytest.mark.parametrize(("was", "now"), PAIRS)
def test_every_kind_becomes_every_other_with_all_that_it_has(tmp_path: Path, was: Kind, now: Kind) -> None:
    on_disk = full_log(tmp_path, was)
    before = everything(on_disk)
    advanced: list[int] = []
    done = convert(shared_of(RealDisk()), on_disk.directory, now, log_config(), advanced.append)
    assert found_kind(on_disk.disk, on_disk.directory) == now
    assert everything(on_disk) == before
    assert (done.was, done.now, done.size_bytes) == (was, now, len(before["bytes"]))
    assert sum(advanced) == 2 * done.size_bytes
    assert [*verify_partition(RealDisk(read_only=True), on_disk.directory, Totals())] == []
    assert_alone(tmp_path)
    log = on_disk.open()
    assert log.append(batch(b"29", bytes(50), producer=(5, 0, 58)), leader_epoch=4).duplicate  # it knows its producers
    assert not log.append(batch(b"30", producer=(5, 0, 60)), leader_epoch=4).duplicate
    log.close()


def test_a_partition_of_that_kind_is_left_alone(tmp_path: Path) -> None:
    on_disk = full_log(tmp_path, "file")
    before = {path: path.stat().st_mtime_ns for path in Path(on_disk.directory).iterdir()}
    assert run(on_disk, "file") == Converted("file", "file")
    assert {path: path.stat().st_mtime_ns for path in Path(on_disk.directory).iterdir()} == before


def test_a_log_without_records_is_moved_too(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    on_disk.log.close()
    for kind in ("rocksdb", "sqlite", "file"):
        done = run(on_disk, kind)
        assert (done.segments, done.batches) == (1, 0)
    assert values_of(on_disk.open()) == []
    on_disk.log.close()


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
def test_no_segment_in_a_database_gets_more_records_than_the_limit(tmp_path: Path, kind: Kind) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    for number in range(23):
        on_disk.log.append(batch(b"%d" % number))
    on_disk.log.close()
    assert run(on_disk, kind, segment_records_max=5).segments == 5
    log = on_disk.open()
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10, 15, 20]
    assert values_of(log) == [b"%d" % number for number in range(23)]
    log.close()


def test_what_a_crash_left_is_put_right_first(tmp_path: Path) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    on_disk.log.append(batch(b"whole"))
    on_disk.log.close()
    (log_file,) = Path(on_disk.directory).glob("*.log")
    log_file.write_bytes(log_file.read_bytes() + b"torn")
    assert run(on_disk, "rocksdb").batches == 1
    assert values_of(on_disk.open()) == [b"whole"]
    on_disk.log.close()


# Refusals: the partition is then as it was.


def test_a_partition_whose_broker_runs_is_refused(tmp_path: Path) -> None:
    on_disk = full_log(tmp_path, "file")
    settings = log_config()
    with (
        LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: settings),
        pytest.raises(LockedError),
    ):
        run(on_disk, "sqlite")
    run(on_disk, "sqlite")


@pytest.mark.parametrize(("was", "now"), [("file", "sqlite"), ("rocksdb", "file"), ("sqlite", "rocksdb")])
def test_a_damaged_partition_is_refused_and_stays(tmp_path: Path, was: Kind, now: Kind) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), segment_backend=was)
    for _ in range(60):
        on_disk.log.append(batch(os.urandom(2000)))
    on_disk.log.close()
    files = [file for file in Path(on_disk.directory).rglob("*") if file.suffix in (".log", ".sst", ".sqlite")]
    largest = max(files, key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(DamagedLogError):
        run(on_disk, now)
    assert found_kind(on_disk.disk, on_disk.directory) == was
    assert largest.read_bytes() == content
    assert_alone(tmp_path)


def test_a_file_that_was_put_aside_is_not_thrown_away(tmp_path: Path) -> None:
    on_disk = full_log(tmp_path, "file")
    aside = Path(on_disk.directory, f"{0:020d}.log.cut-512")
    aside.write_bytes(b"somebody may want this")
    with pytest.raises(LogError, match="cut-512"):
        run(on_disk, "sqlite")
    assert aside.exists()
    aside.unlink()
    run(on_disk, "sqlite")


def test_segments_of_two_kinds_are_refused(tmp_path: Path) -> None:
    on_disk = full_log(tmp_path, "file")
    Path(on_disk.directory, "segments.rocksdb").mkdir()
    with pytest.raises(LogError, match="several kinds"):
        run(on_disk, "sqlite")


def lose_a_batch(copy: object, backend: object, data: memoryview) -> None:
    """What a faulty copy would do."""


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
def test_a_copy_that_is_not_the_same_never_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    on_disk = full_log(tmp_path, "file")
    before = everything(on_disk)
    monkeypatch.setattr(converting._Copy, "_add", lose_a_batch)
    with pytest.raises(LogError):
        run(on_disk, kind)
    assert everything(on_disk) == before
    assert_alone(tmp_path)


def test_a_full_disk_leaves_the_partition_as_it_was(tmp_path: Path) -> None:
    class FullDisk(RealDisk):
        """Has room for nothing more, as soon as the copy is begun."""

        def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if ".deleted-" in path:
                raise DiskError("write", path, os.strerror(errno.ENOSPC))
            super().write_atomic(path, data, durable=durable)

    on_disk = full_log(tmp_path, "file")
    before = everything(on_disk)
    with pytest.raises(DiskError, match="No space"):
        run(on_disk, "sqlite", FullDisk())
    assert everything(on_disk) == before
    assert_alone(tmp_path)


def test_a_file_system_without_the_exchange_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = full_log(tmp_path, "file")
    before = everything(on_disk)

    def refuse(first: str, second: str) -> None:
        raise DiskError("exchange", first, f"this file system cannot ({second})")

    monkeypatch.setattr(converting, "exchange", refuse)
    with pytest.raises(DiskError, match="file system cannot"):
        run(on_disk, "rocksdb")
    assert everything(on_disk) == before
    assert_alone(tmp_path)


def test_two_directories_change_places_and_what_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    with pytest.raises(DiskError, match="No such file"):
        exchange(str(tmp_path / "a"), str(tmp_path / "c"))


# Crashes: the process dies at every single step, and a store starts afterwards.


class MortalDisk(RealDisk):
    """Ends the process before the n-th change of the disk."""

    def __init__(self, steps_left: int) -> None:
        super().__init__()
        self.steps_left = steps_left

    def step(self) -> None:
        """One more change."""
        self.steps_left -= 1
        if self.steps_left < 0:
            os._exit(9)

    def exchange(self, first: str, second: str) -> None:
        """The step that matters."""
        self.step()
        exchange(first, second)


def _mortal(name: str) -> Callable[..., object]:
    def call(self: MortalDisk, *arguments: object, **named: object) -> object:
        self.step()
        return getattr(RealDisk, name)(self, *arguments, **named)

    return call


for _name in ("write_atomic", "rename", "remove", "remove_tree", "sync_directory", "make_directory"):
    setattr(MortalDisk, _name, _mortal(_name))


def _die(directory: str, kind: Kind, steps: int) -> int:
    """Convert in a process that ends after so many steps; its exit code: 9 if it did."""
    child = os.fork()
    if not child:
        disk = MortalDisk(steps)
        status = 1
        try:
            setattr(converting, "exchange", disk.exchange)  # noqa: B010 (this process ends soon)
            convert(shared_of(disk), directory, kind, log_config(), lambda _: None)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Mortals:
    """A process that has no threads, so that it can be forked: RocksDB's threads would be missing in the fork."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **(environment or {})},
        )

    def dies(self, directory: str, kind: Kind, steps: int) -> bool:
        """Convert in a process that ends after so many steps; False if it was done before that."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(kind, steps, directory, file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        assert status in (0, 9)
        return status == 9

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


@pytest.mark.parametrize(
    ("was", "now"), [("file", "sqlite"), ("sqlite", "file"), ("file", "rocksdb"), ("rocksdb", "sqlite")]
)
def test_a_crash_at_any_step_leaves_one_good_partition_at_the_name(tmp_path: Path, was: Kind, now: Kind) -> None:
    on_disk = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), segment_backend=was, segment_bytes=1024)
    for number in range(8):
        on_disk.log.append(batch(b"%d" % number + bytes(200)))
    on_disk.log.close()
    config, kinds, steps = log_config(), set(), 0
    with closing(Mortals()) as mortals:
        while mortals.dies(on_disk.directory, now, steps):
            kind = found_kind(RealDisk(), on_disk.directory)
            kinds.add(kind)
            with LogStore(RealDisk(), str(tmp_path), store_config(), ManualClock(START_MS), lambda _: config) as store:
                assert not store.offline
                assert values_of(store.logs[ORDERS]) == [b"%d" % number + bytes(200) for number in range(8)]
            assert not [path for path in tmp_path.iterdir() if path.name.startswith(".deleted")]
            if kind == now:  # back, so that the next step is reached from where it began
                run(on_disk, was)
            steps += 1
    assert kinds == {was, now}
    assert steps > 10
    assert found_kind(RealDisk(), on_disk.directory) == now


if __name__ == "__main__":
    for line in sys.stdin:
        wanted, number, place = line.rstrip("\n").split(" ", 2)
        print(_die(place, cast("Kind", wanted), int(number)), flush=True)
