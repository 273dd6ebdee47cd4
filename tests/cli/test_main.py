"""The `odradek` command itself: what it says, how it fails, and how little it imports to do so."""

from __future__ import annotations

import argparse
import importlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from odradek import __version__
from odradek.cli import main as cli
from odradek.cli.main import main
from odradek.cli.terminal import CommandError, escape, progress, table
from odradek.config import SettingError

RunCommand = Callable[[argparse.Namespace], int]


def odradek(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunCommand], None]:
    """Put a command called `probe` into the table."""

    def install(run: RunCommand) -> None:
        module = ModuleType("probe_command")
        module.add_arguments = lambda parser: parser.add_argument("--number", type=int)  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", cli.Command("probe_command", "tries things", ()))

    return install


def raising(error: BaseException) -> RunCommand:
    def run(_: argparse.Namespace) -> int:
        raise error

    return run


# What it says


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_without_a_command_it_says_what_there_is_today(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert f"Odradek {__version__}: a Kafka-compatible streaming platform" in text
    assert "'odradek serve' runs a broker that any" in text
    assert "docs/" in text
    for name, row in cli.COMMANDS.items():
        assert f"  {name}" in text
        assert row.summary in text
        assert all(example in text for example in row.examples)


def test_the_overview_fits_a_terminal_of_a_hundred_columns() -> None:
    assert max(map(len, cli.overview().splitlines())) <= 100


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"odradek {__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_in_the_table_explains_itself_with_examples(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: odradek {name}")
    assert f"\n  odradek {name} " in text


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_in_the_table_can_be_imported(name: str) -> None:
    module = importlib.import_module(cli.COMMANDS[name].module)
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from odradek.cli.main import main; main(['--help']); "
        "print(*sorted({name.split('.')[0] for name in sys.modules} | {n for n in sys.modules if 'odradek' in n}))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.splitlines()[-1].split())
    assert {name for name in imported if name.startswith("odradek")} == {
        "odradek",
        "odradek.cli",
        "odradek.cli.main",
        "odradek.cli.terminal",
    }
    assert not imported & {"rich", "cramjam", "crc32c", "asyncio", "json", "tomllib", "dataclasses", "inspect"}


# How it fails


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setings"]) == 2
    assert capsys.readouterr().err == "odradek: there is no command 'setings': did you mean 'settings'?\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("dump", "odradek log dump"),
        ("verify", "odradek log verify"),
        ("create", "odradek topic create"),
        ("Lag", "odradek group describe"),
        ("start", "serve"),
        ("topics", "topic"),
        ("producer", "produce"),
    ],
)
def test_what_other_tools_call_otherwise_is_pointed_to(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    assert main([typed]) == 2
    assert capsys.readouterr().err == f"odradek: there is no command '{typed}': did you mean '{meant}'?\n"


def test_a_command_like_no_other_is_refused_with_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--zzz\x1b[31m"]) == 2
    assert capsys.readouterr().err == (
        "odradek: there is no command '--zzz\\x1b[31m': 'odradek --help' lists the commands\n"
    )


def test_a_wrong_flag_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], command: Callable[[RunCommand], None]
) -> None:
    command(lambda args: 0)
    assert main(["probe", "--number", "many"]) == 2
    assert capsys.readouterr().err == (
        "odradek: argument --number: invalid int value: 'many'; 'odradek probe --help' shows how it is used\n"
    )


def test_an_abbreviated_flag_is_refused_since_a_later_version_may_have_two(
    command: Callable[[RunCommand], None],
) -> None:
    command(lambda args: 0)
    assert main(["probe", "--num", "1"]) == 2


def test_a_commands_status_is_the_exit_status(command: Callable[[RunCommand], None]) -> None:
    command(lambda args: args.number)
    assert main(["probe", "--number", "7"]) == 7


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (CommandError("no such thing"), 1, "no such thing"),
        (CommandError("not like this", 2), 2, "not like this"),
        (SettingError("flush = 'x' is wrong"), 1, "flush = 'x' is wrong"),
        (FileNotFoundError(2, "No such file or directory", "a\nb"), 1, "a\\nb: No such file or directory"),
        (OSError("odd"), 1, "odd"),
        (KeyError("x"), 1, "a bug in Odradek: KeyError: 'x'; 'odradek --traceback COMMAND ...' shows where"),
    ],
)
def test_an_error_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[RunCommand], None],
    error: Exception,
    status: int,
    text: str,
) -> None:
    command(raising(error))
    assert main(["probe"]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(f"odradek: {text}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_the_traceback_is_there_for_those_who_ask(command: Callable[[RunCommand], None]) -> None:
    command(raising(KeyError("x")))
    with pytest.raises(KeyError):
        main(["--traceback", "probe"])


def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str], command: Callable[[RunCommand], None]) -> None:
    command(raising(KeyboardInterrupt()))
    assert main(["probe"]) == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_leaves_early_is_no_error(buffered: str) -> None:
    """As in `odradek settings | head -0`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as gone:
        ran = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", "settings"],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
        )
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_behind_standard_output_is_told() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ran = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    assert ran.returncode == 1
    assert ran.stderr == b"odradek: standard output cannot be written: No space left on device\n"


def test_a_character_that_the_encoding_lacks_is_shown_as_an_escape() -> None:
    ran = odradek("settings", "dir", "--data", "/tmp/käfer", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert ran.returncode == 0
    assert "dir = /tmp/k\\xe4fer" in ran.stdout


# The terminal


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_control_characters_become_visible_and_letters_stay(text: str, visible: str) -> None:
    assert escape(text) == visible


def test_a_table_without_a_terminal_is_plain_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", "value"), [("a", "1"), ("long name", "\x1b2")])
    assert capsys.readouterr().out == "a          1\nlong name  \\x1b2\n"
    table(("name", "value"), [])
    assert capsys.readouterr().out == ""


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(10, "reading") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def on_a_terminal(program: str) -> str:
    """Run a program whose output and errors go to a terminal, and return what that would show."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=slave, stderr=slave, env=environ)
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
    assert process.wait() == 0
    return shown.decode()


def test_a_terminal_gets_a_table_with_headings_and_data_cannot_drive_it() -> None:
    text = on_a_terminal(
        "from odradek.cli.terminal import table; table(('topic', 'key'), [('[red]orders[/red]', 'k\\x1b[2J')])"
    )
    assert "topic" in text
    assert "[red]orders[/red]" in text
    assert "k\\x1b[2J" in text


def test_a_terminal_gets_a_progress_bar_on_standard_error() -> None:
    text = on_a_terminal(
        "from odradek.cli.terminal import progress\nwith progress(2048, '[bold]reading') as advance: advance(2048)"
    )
    assert "[bold]reading" in text
    assert "2.0/2.0 KiB" in text
