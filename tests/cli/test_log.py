"""`odradek log dump` and `odradek log verify`, as a person or a script meets them."""

from __future__ import annotations

import base64
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.disk.real import RealDisk, RealFile
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.header import HEADER_BYTES, iter_headers, reseal
from odradek.records.record import Header, NewRecord
from tests.log.support import START_MS, LogOnDisk, batch

SEGMENT = f"{0:020d}.log"
Capture = pytest.CaptureFixture[str]

# Each record: key, value, how `dump` shows them.
SHOWN: list[tuple[bytes | None, bytes | None, str]] = [
    (b"key", b"value", "key value"),
    (None, None, "- -"),
    (b"", b"", '"" ""'),
    (b"-", b"-", "\\x2d \\x2d"),
    (b'""', b'""', '\\x22" \\x22"'),
    (b"two words", b"two words", "two\\x20words two words"),
    (b"a\\b", b"\\n\n", "a\\\\b \\\\n\\n"),
    (b"\x1b[2J", b"tab\tcr\rbell\x07", "\\x1b[2J tab\\tcr\\rbell\\x07"),
    (b"\xff\xfe", b"half \xc3", "\\xff\\xfe half \\xc3"),
    ("käfer".encode(), "漢字 \u202e\u009b".encode(), "käfer 漢字 \\xe2\\x80\\xae\\xc2\\x9b"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: orders-0 with odd records, orders-1 with three segments, and files of others."""
    data = tmp_path / "data"
    odd = LogOnDisk(RealDisk(), str(data / "orders-0"))
    odd.log.append(build_batch([NewRecord(value, key, START_MS) for key, value, _ in SHOWN]))
    odd.log.close()
    plain = LogOnDisk(RealDisk(), str(data / "orders-1"), segment_bytes=1024, index_interval_bytes=100)
    for number in range(30):
        plain.log.append(batch(b"value-%d" % number, timestamp=START_MS + number), leader_epoch=number // 20)
    plain.log.close()
    (data / "clean-stop").write_text("1\n")
    (data / "metadata").mkdir()
    return data


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    line = [sys.executable, "-m", "odradek.cli.main", "log", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def break_byte(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def positions(file: Path) -> list[int]:
    return [position for position, _ in iter_headers(file.read_bytes())]


def tree(directory: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


# dump


def test_a_record_is_a_line_that_cannot_drive_the_terminal(data: Path, capsys: Capture) -> None:
    assert main(["log", "dump", str(data / "orders-0")]) == 0
    assert capsys.readouterr() == ("".join(f"{number} {row[2]}\n" for number, row in enumerate(SHOWN)), "")


def test_a_line_can_be_read_back(data: Path, capsys: Capture) -> None:
    main(["log", "dump", str(data / "orders-0")])
    for line, (key, value, _) in zip(capsys.readouterr().out.splitlines(), SHOWN, strict=True):
        fields = line.split(" ", 2)[1:]
        for field, expected in zip(fields, (key, value), strict=True):
            plain = field.encode().decode("unicode_escape").encode("latin-1")
            assert {"-": None, '""': b""}.get(field, plain) == expected


def test_a_data_directory_is_shown_partition_by_partition(data: Path, capsys: Capture) -> None:
    assert main(["log", "dump", str(data), "--max", "1"]) == 0
    assert capsys.readouterr().out == "# orders-0\n0 key value\n# orders-1\n0 - value-0\n"


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        ([], range(30)),
        (["--from", "12"], range(12, 30)),
        (["--to", "12"], range(13)),
        (["--from", "12", "--to", "13"], range(12, 14)),
        (["--from", "5", "--max", "20"], range(5, 25)),
        (["--from", "29"], range(29, 30)),
        (["--from", "30"], range(0)),
        (["--max", "0"], range(0)),
    ],
)
def test_a_part_can_be_asked_for(data: Path, capsys: Capture, flags: list[str], offsets: range) -> None:
    assert len(list((data / "orders-1").glob("*.log"))) == 3
    assert main(["log", "dump", str(data / "orders-1"), *flags]) == 0
    assert capsys.readouterr().out == "".join(f"{offset} - value-{offset}\n" for offset in offsets)


def test_a_part_begins_and_ends_inside_of_batches(data: Path, capsys: Capture) -> None:
    assert main(["log", "dump", str(data / "orders-0"), "--from", "1", "--to", "2"]) == 0
    assert capsys.readouterr().out == '1 - -\n2 "" ""\n'


def test_a_wrong_index_does_not_mislead(data: Path, capsys: Capture) -> None:
    index = data / "orders-1" / f"{0:020d}.index"
    for content in (bytes(80), b"\xff" * 80, index.read_bytes()[8:] + b"\0\0\0\5\0\0\0\7"):
        index.write_bytes(content)
        assert main(["log", "dump", str(data / "orders-1"), "--from", "7", "--max", "1"]) == 0
        assert capsys.readouterr().out == "7 - value-7\n"


def test_one_file_can_be_shown_also_under_another_name(data: Path, capsys: Capture) -> None:
    file = data / "orders-0" / SEGMENT
    copy = shutil.copy(file, data / "copy.bin")
    for path in (file, copy):
        assert main(["log", "dump", str(path), "--max", "1"]) == 0
        assert capsys.readouterr().out == "0 key value\n"


def test_json_tells_text_from_other_bytes(data: Path, capsys: Capture) -> None:
    assert main(["log", "dump", "--json", str(data / "orders-0")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {
        "partition": "orders-0", "offset": 0, "timestamp": START_MS, "key": "key", "value": "value", "headers": [],
    }  # fmt: skip
    for row, (key, value, _) in zip(rows, SHOWN, strict=True):
        for name, expected in (("key", key), ("value", value)):
            if f"{name}_base64" in row:
                assert name not in row
                assert base64.b64decode(row[f"{name}_base64"]) == expected
            else:
                assert row[name] == (None if expected is None else expected.decode())
    assert [("key_base64" in row, "value_base64" in row) for row in rows].count((True, True)) == 1


def test_json_has_headers_and_says_how_a_transaction_ended(tmp_path: Path, capsys: Capture) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    headers = (Header("a", b"x"), Header("a", None), Header("b", b"\xff"))
    made.log.append(build_batch([NewRecord(b"v", timestamp=5, headers=headers)]))
    made.log.append(batch(b"v", producer=(7, 1, 0), transactional=True))
    for kind in ControlType:
        marker = control_batch(kind, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp=9)
        made.log.append(marker)
    made.log.close()
    assert main(["log", "dump", "--json", made.directory]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["headers"] == [
        {"key": "a", "value": "x"},
        {"key": "a", "value": None},
        {"key": "b", "value_base64": "/w=="},
    ]
    assert [row.get("control") for row in rows] == [None, None, "abort", "commit"]
    main(["log", "dump", "--batches", made.directory])
    assert "offsets=3..3 count=1 size=78 codec=none epoch=0 producer=7/1/-1 flags=transactional,control" in (
        capsys.readouterr().out
    )


def test_a_batch_is_a_line(tmp_path: Path, capsys: Capture) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"), message_timestamp_type="LogAppendTime")
    made.log.append(batch(b"a", b"b", timestamp=START_MS - 5))
    made.log.append(batch(b"c", producer=(7, 1, 20), transactional=True), leader_epoch=4)
    made.log.roll()
    made.log.append(batch(b"d" * 500, codec=Codec.GZIP), leader_epoch=4)
    made.log.close()
    break_byte(tmp_path / "orders-0" / f"{3:020d}.log", HEADER_BYTES + 20)
    assert main(["log", "dump", "--batches", made.directory]) == 1
    lines = capsys.readouterr().out.splitlines()
    size = (tmp_path / "orders-0" / f"{3:020d}.log").stat().st_size
    assert lines == [
        f"# orders-0/{0:020d}.log",
        "position=0 offsets=0..1 count=2 size=77 codec=none epoch=0 producer=- flags=append_time"
        " timestamps=1699999999995..1700000000000 crc=ok",
        "position=77 offsets=2..2 count=1 size=69 codec=none epoch=4 producer=7/1/20 flags=transactional,append_time"
        " timestamps=1700000000000..1700000000000 crc=ok",
        f"# orders-0/{3:020d}.log",
        f"position=0 offsets=3..3 count=1 size={size} codec=gzip epoch=4 producer=- flags=append_time"
        " timestamps=1700000000000..1700000000000 crc=BAD",
    ]
    assert main(["log", "dump", "--batches", "--json", made.directory, "--from", "2", "--max", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "partition": "orders-0", "file": f"{made.directory}/{SEGMENT}", "position": 77, "base_offset": 2,
        "last_offset": 2, "record_count": 1, "size_bytes": 69, "leader_epoch": 4, "producer_id": 7,
        "producer_epoch": 1, "base_sequence": 20, "base_timestamp": START_MS, "max_timestamp": START_MS,
        "codec": "none", "transactional": True, "control": False, "delete_horizon": False, "append_time": True,
        "crc_ok": True,
    }  # fmt: skip


def test_a_torn_tail_ends_the_dump_and_is_no_error(data: Path, capsys: Capture) -> None:
    file = max((data / "orders-1").glob("*.log"))
    whole, starts = file.read_bytes(), positions(file)
    for size in range(starts[-1] + 1, len(whole), 7):
        file.write_bytes(whole[:size])
        for flags in ([], ["--batches"]):
            assert main(["log", "dump", str(data / "orders-1"), *flags]) == 0
            captured = capsys.readouterr()
            assert len([line for line in captured.out.splitlines() if not line.startswith("#")]) == 29
            left = size - starts[-1]
            assert captured.err.startswith(
                f"odradek: {file}: stopped at byte {starts[-1]}, {left} bytes before the end: "
            )
            assert captured.err.count("\n") == 1


def test_damage_in_the_middle_is_passed_over_and_told(data: Path, capsys: Capture) -> None:
    file = data / "orders-1" / SEGMENT
    starts = positions(file)
    break_byte(file, starts[2] + 65)
    assert main(["log", "dump", str(data / "orders-1")]) == 1
    captured = capsys.readouterr()
    assert [int(line.split()[0]) for line in captured.out.splitlines()] == [0, 1, *range(3, 30)]
    assert captured.err.startswith(f"odradek: {file} byte {starts[2]}: the batch (offset 2) has the CRC ")
    assert captured.err.endswith(f"; went on at byte {starts[3]}\n")


def test_records_that_cannot_be_read_are_told_and_the_others_shown(tmp_path: Path, capsys: Capture) -> None:
    made = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    bad = batch(b"bad")
    bad[HEADER_BYTES] = 0x7E
    reseal(bad)
    for each in (batch(b"a"), bad, batch(b"b")):
        made.log.append(each)
    made.log.close()
    assert main(["log", "dump", made.directory]) == 1
    captured = capsys.readouterr()
    assert captured.out == "0 - a\n2 - b\n"
    assert "byte 69: the records of this batch cannot be read: the record at offset 1 says 63 bytes" in captured.err


# verify


def test_a_whole_directory_gets_a_summary(data: Path, capsys: Capture) -> None:
    size = sum(file.stat().st_size for file in data.glob("*/*.log"))
    for flags in ([], ["--shallow"]):
        assert main(["log", "verify", str(data), *flags]) == 0
        assert capsys.readouterr() == (
            f"partitions 2, segments 4, batches 31, records 40, bytes {size}: all is well\n", "",
        )  # fmt: skip


def test_each_problem_is_a_line_with_its_place_and_notes_are_marked(data: Path, capsys: Capture) -> None:
    file = data / "orders-1" / SEGMENT
    start = positions(file)[1]
    break_byte(file, start + 65)
    break_byte(data / "orders-1" / f"{0:020d}.timeindex", 3)
    (data / "orders-0" / "odd\x1b[2J").write_bytes(b"")
    assert main(["log", "verify", str(data)]) == 1
    note, batch_line, entry_line, summary = capsys.readouterr().out.splitlines()
    assert note == f"note: {data}/orders-0/odd\\x1b[2J: it belongs to no segment: a leftover that nothing reads"
    assert batch_line.startswith(f"{file} byte {start}: the batch (offset 1) has the CRC 0x")
    assert entry_line.startswith(f"{data}/orders-1/{0:020d}.timeindex entry 0: timestamp ")
    assert summary.endswith(": 2 problems")
    assert main(["log", "verify", "--json", str(data)]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["type"] for row in rows] == ["note", "problem", "problem", "summary"]
    assert [(row["file"], row.get("byte"), row.get("entry")) for row in rows[1:3]] == [
        (str(file), start, None),
        (f"{data}/orders-1/{0:020d}.timeindex", None, 0),
    ]
    assert {**rows[3], "size_bytes": 0} == {
        "type": "summary", "partitions": 2, "segments": 4, "batches": 30, "records": 39, "size_bytes": 0,
        "problems": 2, "notes": 1,
    }  # fmt: skip


# Both


def test_the_exit_status_of_the_real_command(data: Path) -> None:
    assert run("verify", data).returncode == 0
    assert run("dump", data).returncode == 0
    assert run("dump", data / "nowhere").returncode == 2
    assert run().returncode == 2
    assert run("dump").returncode == 2
    break_byte(data / "orders-1" / SEGMENT, 100)
    ran = run("verify", data, "--shallow")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert run("dump", data).returncode == 1


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_what_is_not_there_is_told_with_what_was_expected(data: Path, capsys: Capture, action: str) -> None:
    (data / "empty").mkdir()
    for path, message in (
        (data / "nowhere", f"there is no {data}/nowhere: name a partition's directory such as ~/.odradek/orders-0"),
        (data / "empty", f"there is no log in {data}/empty: a partition's directory has files such as {SEGMENT}"),
    ):
        assert main(["log", action, str(data), str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"odradek: {message}")
        assert captured.err.count("\n") == 1
    assert main(["log", "verify", str(data / "orders-0" / SEGMENT)]) == 2
    assert " is a file: name a partition's directory" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--from", "--to", "--max"])
def test_a_number_below_zero_is_refused(data: Path, capsys: Capture, flag: str) -> None:
    for value in ("-1", "many"):
        assert main(["log", "dump", str(data), f"{flag}={value}"]) == 2
        assert f"argument {flag}: '{value}' is not a number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_nothing_is_changed_and_no_file_is_opened_for_writing(
    data: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    before, opened, real_open = tree(data), [], os.open

    def record(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(flags & os.O_ACCMODE)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", record)
    assert main(["log", action, str(data)]) == 0
    assert set(opened) == {os.O_RDONLY}
    assert tree(data) == before


@pytest.mark.parametrize("action", ["dump", "verify"])
@pytest.mark.parametrize(
    ("left", "reason"), [(0, "the file ends here, although it was longer"), (30, "30 bytes are too few for a batch")]
)
def test_a_file_that_becomes_shorter_meanwhile_is_told(
    data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, action: str, left: int, reason: str
) -> None:
    shrinking, size_of = data / "orders-1" / SEGMENT, RealFile.size

    def size_then_cut(file: RealFile) -> int:
        size = size_of(file)
        if file.path == str(shrinking):
            os.truncate(shrinking, left)
        return size

    monkeypatch.setattr(RealFile, "size", size_then_cut)
    assert main(["log", action, str(data)]) == 1
    assert f"{shrinking} byte 0: {reason}; " in "".join(capsys.readouterr())


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_an_interrupt_and_a_reader_that_leaves_are_quiet(
    data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as gone:
        line = [sys.executable, "-m", "odradek.cli.main", "log", action, str(data)]
        ran = subprocess.run(line, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, b"")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RealFile, "read", interrupt)
    assert main(["log", action, str(data)]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == ""


def on_a_terminal(arguments: list[str], output: Path | None) -> str:
    """Run the command with a terminal for its errors, and for its output unless that goes to a file."""
    master, slave = pty.openpty()
    line = [sys.executable, "-m", "odradek.cli.main", "log", *arguments]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with output.open("w") if output else os.fdopen(os.dup(slave), "w") as out:
        process = subprocess.Popen(line, stdout=out, stderr=slave, env=environ)
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # how Linux says that the other end has closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    process.wait()
    return shown.decode()


@pytest.mark.parametrize(("action", "label"), [("dump", "reading"), ("verify", "checking")])
def test_the_progress_bar_keeps_away_from_output_that_goes_to_a_file(data: Path, action: str, label: str) -> None:
    break_byte(data / "orders-1" / SEGMENT, 100)
    expected = run(action, data).stdout
    shown = on_a_terminal([action, str(data)], data.parent / "out")
    assert label in shown
    assert (data.parent / "out").read_text() == expected


def test_on_a_terminal_the_lines_of_verify_stand_above_the_bar(data: Path) -> None:
    break_byte(data / "orders-1" / SEGMENT, 100)
    shown = on_a_terminal(["verify", str(data)], None)
    assert "has the CRC" in shown
    assert ": 1 problem" in shown
    assert "value-29" in on_a_terminal(["dump", str(data)], None)


def test_help_has_examples_and_explains_the_format(capsys: Capture) -> None:
    for action in ("dump", "verify"):
        assert main(["log", action, "--help"]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: odradek log {action} [-h]")
        assert f"\n  odradek log {action} ~/.odradek/orders-0" in text
        assert max(map(len, text.splitlines())) <= 120
    assert main(["log"]) == 2
    assert "'odradek log --help' shows how it is used" in capsys.readouterr().err
