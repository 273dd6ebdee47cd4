"""`odradek log dump`, `verify` and `convert` over every kind of segments, as a person or a script meets them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.disk.real import RealDisk
from odradek.records.compression import Codec
from tests.log.support import START_MS, LogOnDisk, batch

KINDS = ("file", "sqlite", "rocksdb")
DATABASES = ("sqlite", "rocksdb")
Capture = pytest.CaptureFixture[str]

pytest.importorskip("rocksdict")


def made(directory: Path, kind: str, *, values: int = 30, size: int = 0) -> LogOnDisk:
    """An open log of several segments, epochs and codecs."""
    on_disk = LogOnDisk(RealDisk(), str(directory), segment_backend=kind, segment_bytes=1024 + 100 * size)
    for number in range(values):
        codec = Codec.ZSTD if number % 3 == 1 else Codec.NONE
        value = b"value-%d" % number + os.urandom(size)
        on_disk.log.append(batch(value, timestamp=START_MS + number, codec=codec), leader_epoch=number // 20)
    return on_disk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with the same records in each kind of segments."""
    for kind in KINDS:
        made(tmp_path / f"{kind}-0", kind).log.close()
    return tmp_path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    line = [sys.executable, "-m", "odradek.cli.main", "log", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def log(*arguments: str | Path) -> int:
    """Run the command here."""
    return main(["log", *map(str, arguments)])


def tree(directory: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def damage(directory: Path, kind: str) -> Path:
    """Flip a bit in the middle of the largest file of batches."""
    suffix = {"sqlite": ".sqlite", "rocksdb": ".sst"}[kind]
    file = max((file for file in directory.rglob(f"*{suffix}")), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


# dump


@pytest.mark.parametrize(
    "options", [[], ["--json"], ["--from", "7", "--to", "22"], ["--from", "13", "--max", "5"], ["--to", "3", "--json"]]
)
def test_dump_shows_the_same_records_whatever_keeps_them(data: Path, capsys: Capture, options: list[str]) -> None:
    shown = []
    for kind in KINDS:
        assert log("dump", *options, data / f"{kind}-0") == 0
        shown.append(capsys.readouterr().out.replace(f'"{kind}-0"', '"orders-0"'))
    assert shown[0].count("\n") > 3
    assert shown[1:] == shown[:1] * 2


def test_batches_are_shown_with_the_places_that_they_have_in_files(data: Path, capsys: Capture) -> None:
    shown = []
    for kind in KINDS:
        assert log("dump", "--batches", "--from", "10", data / f"{kind}-0") == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"# {kind}-0/" in lines[0]
        shown.append([line for line in lines if line.startswith("position=") and " offsets=1" in line])
    assert len(shown[0]) == 10
    assert shown[1:] == shown[:1] * 2


def test_one_sqlite_segment_is_dumped_by_its_name(data: Path, capsys: Capture) -> None:
    first, second, *_ = sorted((data / "sqlite-0").glob("*.sqlite"))
    assert log("dump", second, "--max", "1") == 0
    assert capsys.readouterr().out == f"{int(second.stem)} - value-{int(second.stem)}\n"
    assert log("dump", first, "--max", "1") == 0


# verify


def test_verify_finds_nothing_wrong_and_changes_nothing(data: Path, capsys: Capture) -> None:
    before = tree(data)
    assert log("verify", data) == 0
    assert "partitions 3," in (text := capsys.readouterr().out)
    assert "batches 90, records 90" in text
    assert text.endswith("all is well\n")
    assert log("dump", data) == 0
    assert tree(data) == before


@pytest.mark.parametrize("kind", DATABASES)
def test_a_log_in_use_is_read_beside_its_broker(tmp_path: Path, kind: str) -> None:
    on_disk = made(tmp_path / "orders-0", kind)
    on_disk.log.flush()
    checked = run("verify", tmp_path / "orders-0")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "records 30," in checked.stdout
    on_disk.log.append(batch(b"more"), leader_epoch=1)
    on_disk.log.flush()
    assert run("dump", tmp_path / "orders-0", "--from", "30").stdout == "30 - more\n"
    on_disk.log.append(batch(b"and more"), leader_epoch=1)  # nobody was in its way
    on_disk.reopen()
    assert not any(on_disk.report)
    on_disk.log.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_damage_is_named_and_what_is_whole_is_shown(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "orders-0"
    made(directory, kind, values=60, size=3000).log.close()
    damage(directory, kind)
    checked = run("verify", directory)
    assert checked.returncode == 1
    assert f"{kind}" in checked.stdout
    assert "Traceback" not in checked.stdout + checked.stderr
    shown = run("dump", directory)
    assert shown.returncode == 1
    assert "Traceback" not in shown.stderr
    assert len(shown.stdout.splitlines()) > 30
    assert f"{kind}" in shown.stderr


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_that_cannot_be_opened_is_named_and_the_others_are_checked(
    data: Path, capsys: Capture, kind: str
) -> None:
    files = {"sqlite": "*.sqlite", "rocksdb": "MANIFEST-*"}[kind]
    for file in (data / f"{kind}-0").rglob(files):
        file.write_bytes(b"this is not what it was" * 10)
    assert log("verify", data) == 1
    checked = capsys.readouterr().out
    assert f"{kind}-0" in checked
    assert "it cannot be read" in checked
    assert "partitions 3," in checked
    assert log("dump", data) == 1
    shown = capsys.readouterr()
    assert shown.out.count("value-29") == 2
    assert f"{kind}-0" in shown.err


def test_a_row_that_holds_another_batch_is_named(data: Path, capsys: Capture) -> None:
    first = min((data / "sqlite-0").glob("*.sqlite"))
    connection = sqlite3.connect(first)
    with connection:
        connection.execute(
            "UPDATE batches SET data = (SELECT data FROM batches WHERE base_offset = 0) WHERE base_offset = 2"
        )
    connection.close()
    assert log("verify", data / "sqlite-0") == 1
    assert "the row of offset 2 holds the batch of offset 0" in capsys.readouterr().out


def test_a_bad_crc_is_shown_as_such(data: Path, capsys: Capture) -> None:
    first = min((data / "sqlite-0").glob("*.sqlite"))
    connection = sqlite3.connect(first)
    with connection:
        (stored,) = connection.execute("SELECT data FROM batches WHERE base_offset = 0").fetchone()
        connection.execute("UPDATE batches SET data = ? WHERE base_offset = 0", (stored[:-1] + b"?",))
    connection.close()
    assert log("dump", "--batches", data / "sqlite-0") == 1
    assert [line.rpartition("=")[2] for line in capsys.readouterr().out.splitlines()[1:3]] == ["BAD", "ok"]
    assert log("verify", data / "sqlite-0") == 1
    assert "CRC" in capsys.readouterr().out


# convert


def test_convert_says_what_it_did(data: Path, capsys: Capture) -> None:
    directory = data / "file-0"
    assert log("dump", directory) == 0
    before = capsys.readouterr().out
    assert log("convert", directory, "--to", "rocksdb") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{directory}: file -> rocksdb, ")
    assert "30 batches, 30 records" in text
    assert log("convert", directory, "--to", "rocksdb") == 0
    assert "nothing was done" in capsys.readouterr().out
    assert log("convert", "--json", directory, "--to", "sqlite") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["from"], done["to"], done["batches"], done["records"]) == ("rocksdb", "sqlite", 30, 30)
    assert log("dump", directory) == 0
    assert capsys.readouterr().out == before
    assert log("verify", directory) == 0


def test_convert_refuses_a_directory_that_a_broker_has(data: Path, capsys: Capture) -> None:
    lock = RealDisk().lock(str(data / ".lock"))
    assert log("convert", data / "file-0", "--to", "sqlite") == 2
    assert "stop the broker" in capsys.readouterr().err
    lock.release()
    assert log("convert", data / "file-0", "--to", "sqlite") == 0


def test_convert_names_what_is_no_partition(data: Path, capsys: Capture) -> None:
    (data / "linked-0").symlink_to(data / "file-0")
    (data / "empty-0").mkdir()
    (data / "name").mkdir()
    for name, reason in {
        "none-0": "there is no directory",
        "linked-0": "is a link",
        "empty-0": "there is no log",
        "name": "not named like a partition",
    }.items():
        assert log("convert", data / name, "--to", "sqlite") == 2
        assert reason in capsys.readouterr().err
    assert log("convert", data / "file-0", "--to", "paper") == 2
    assert "'rocksdb'" in capsys.readouterr().err


def test_convert_leaves_a_damaged_partition_as_it_was(tmp_path: Path, capsys: Capture) -> None:
    directory = tmp_path / "orders-0"
    made(directory, "rocksdb", values=60, size=3000).log.close()
    damaged = damage(directory, "rocksdb").read_bytes()
    assert log("convert", directory, "--to", "file") == 1
    assert "was not converted" in capsys.readouterr().err
    assert damaged in [file.read_bytes() for file in directory.rglob("*.sst")]


def test_the_help_teaches_all_three(capsys: Capture) -> None:
    assert log("convert", "--help") == 0
    text = capsys.readouterr().out
    for word in ("sqlite", "rocksdb", "rename", "lock", "examples:", "exit status"):
        assert word in text
