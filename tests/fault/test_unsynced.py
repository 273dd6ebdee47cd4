"""The shim sees every change that Python can make to a file, and a power cut takes what was not synced, and no more."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fault.unsynced import (
    Loss,
    NoShimError,
    compile_shim,
    lose_by,
    lose_unsynced,
    read_journal,
    shim_environment,
    trim_journal,
)

Content = dict[str, bytes]
SYNCED = """
f = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(f, b"0123456789")
os.fsync(f)
os.fsync(os.open(".", os.O_RDONLY))
"""
BEFORE = {"a": b"0123456789"}
SEEDS = range(12)


class Worst(random.Random):
    """Nothing that was not synced is kept."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return min(a, b)


class Best(random.Random):
    """All is kept."""

    def choice(self, seq: Any) -> Any:
        return seq[1]

    def randint(self, a: int, b: int) -> int:
        return max(a, b)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skips where there is no compiler."""
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NoShimError as error:
        pytest.skip(str(error))


class Machine:
    """A directory, and processes that work in it and are killed."""

    def __init__(self, shim: Path, work: Path) -> None:
        self.directory, self.journal = work / "data", work / "journal"
        self._shim = shim
        self.directory.mkdir(parents=True)

    def run(self, program: str) -> None:
        """A Python program, in the directory, that ends by SIGKILL."""
        text = f"import os, signal\n{textwrap.dedent(program)}\nos.kill(os.getpid(), signal.SIGKILL)\n"
        environment = {**os.environ, **shim_environment(self._shim, self.directory, self.journal)}
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            timeout=30.0,
            check=False,
        )
        assert done.returncode == -9, done.stderr.decode()

    def content(self) -> Content:
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }

    def kinds(self) -> Counter[str]:
        return Counter(change.kind for change in read_journal(self.journal))

    def lose(self, chance: random.Random) -> Loss:
        return lose_by(chance, self.directory, self.journal)

    def lose_all(self) -> Loss:
        return self.lose(Worst())


@pytest.fixture
def machine(shim: Path, tmp_path: Path) -> Machine:
    return Machine(shim, tmp_path)


WAYS = {
    "write": ("os.write(f, b'xyz')", {"W": 1}),
    "append": ("f = os.open('a', os.O_WRONLY | os.O_APPEND); os.write(f, b'xyz')", {"W": 1}),
    "overwrite": ("f = os.open('a', os.O_WRONLY); os.write(f, b'xyz')", {"W": 1}),
    "writev": ("os.writev(f, [b'xy', b'z'])", {"W": 1}),
    "pwrite": ("os.pwrite(f, b'xyz', 20)", {"W": 1}),
    "pwritev": ("os.pwritev(f, [b'xy', b'z'], 5)", {"W": 1}),
    "pwritev2": ("os.pwritev(f, [b'xy', b'z'], 5, os.RWF_HIPRI)", {"W": 1}),
    "ftruncate": ("os.ftruncate(f, 4)", {"T": 1}),
    "longer": ("os.ftruncate(f, 40)", {"T": 1}),
    "truncate": ("os.truncate('a', 4)", {"T": 1}),
    "O_TRUNC": ("os.open('a', os.O_WRONLY | os.O_TRUNC)", {"T": 1}),
    "open": ("open('a', 'w').write('xyz' * 10)", {"T": 1, "W": 1}),
    "buffered": ("g = open('a', 'r+b'); g.seek(3); g.write(b'xyz'); g.flush()", {"W": 1}),
    "posix_fallocate": ("os.posix_fallocate(f, 0, 30)", {"T": 1}),
    "create": ("open('b', 'x').write('new')", {"C": 1, "W": 1}),
    "create, sync the file alone": (
        "b = os.open('b', os.O_CREAT | os.O_WRONLY); os.write(b, b'new'); os.fsync(b)",
        {"C": 1, "W": 1, "S": 1},
    ),
    "rename": ("os.rename('a', 'b')", {"R": 1}),
    "rename by directory": ("g = os.open('.', 0); os.rename('a', 'b', src_dir_fd=g, dst_dir_fd=g)", {"R": 1}),
    "replace": ("open('b', 'x').write('new'); os.replace('b', 'a')", {"C": 1, "W": 1, "R": 1}),
    "swap twice": (
        "open('b', 'x').write('x'); os.replace('b', 'a'); os.rename('a', 'c'); os.write(f, b'!')",
        {"C": 1, "W": 2, "R": 2},
    ),
    "unlink": ("os.write(f, b'xyz'); os.unlink('a')", {"W": 1, "U": 1}),
    "pathlib": ("import pathlib; pathlib.Path('a').unlink()", {"U": 1}),
    "unlink and create": ("os.unlink('a'); open('a', 'x').write('new')", {"U": 1, "C": 1, "W": 1}),
    "mkdir": ("os.mkdir('d'); open('d/b', 'w').write('new')", {"M": 1, "C": 1, "W": 1}),
    "rmtree": (
        "import shutil; os.mkdir('d'); open('d/b', 'w').close(); shutil.rmtree('d'); os.mkdir('e'); open('e/c', 'w')",
        {"M": 2, "C": 2, "U": 1, "D": 1},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_change_is_seen_and_can_be_lost(machine: Machine, way: str) -> None:
    program, kinds = WAYS[way]
    machine.run(SYNCED)
    assert machine.lose_all() == Loss(0, 0, 0, 0)
    machine.run(f"f = os.open('a', os.O_RDWR); os.lseek(f, 0, os.SEEK_END)\n{program}")
    assert machine.content() != BEFORE
    assert machine.kinds() == kinds
    machine.lose_all()
    assert machine.content() == BEFORE


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_is_as_it_was(machine: Machine, way: str) -> None:
    machine.run(SYNCED)
    machine.run(f"f = os.open('a', os.O_RDWR); os.lseek(f, 0, os.SEEK_END)\n{WAYS[way][0]}")
    after = machine.content()
    loss = machine.lose(Best())
    assert (loss.writes, loss.names) == (0, 0)
    assert loss.writes_kept + loss.names_kept > 0
    assert machine.content() == after
    assert machine.lose_all() == Loss(0, 0, 0, 0)
    assert machine.content() == after, "what a power cut has left is on the disk"


def test_blocks_that_are_set_aside_are_no_change(machine: Machine) -> None:
    machine.run(SYNCED)
    machine.run("import ctypes; f = os.open('a', os.O_RDWR); ctypes.CDLL(None).fallocate(f, 1, 0, 99)")
    assert machine.lose_all() == Loss(0, 0, 0, 0)
    assert machine.content() == BEFORE


def test_a_sync_keeps_what_came_before_it_and_only_that(machine: Machine) -> None:
    machine.run("""
        f = os.open("a", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(f, b"one ")
        os.fdatasync(os.open("a", os.O_RDONLY))
        os.write(f, b"two ")
        open("b", "w").write("three")
        os.fsync(os.open(".", os.O_RDONLY))
        os.write(f, b"four")
    """)
    assert machine.lose_all() == Loss(3, 0, 0, 0)
    assert machine.content() == {"a": b"one ", "b": b""}


def test_a_file_is_replaced_for_good_by_a_sync_of_its_directory(machine: Machine) -> None:
    replace = """
        f = os.open("new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(f, b"{}")
        os.fdatasync(f)
        os.replace("new", "vote")
    """
    machine.run(replace.format("1") + "    os.fsync(os.open('.', os.O_RDONLY))")
    machine.run(replace.format("2"))
    assert machine.content() == {"vote": b"2"}
    assert machine.lose_all() == Loss(0, 0, 2, 0)
    assert machine.content() == {"vote": b"1"}


def test_writes_of_an_earlier_life_are_lost_too(machine: Machine) -> None:
    machine.run(SYNCED)
    machine.run("os.write(os.open('a', os.O_WRONLY | os.O_APPEND), b'x')")
    with machine.journal.open("ab") as journal:
        journal.write(b"half a record")
    trim_journal(machine.journal)
    machine.run("os.write(os.open('a', os.O_WRONLY | os.O_APPEND), b'y')")
    assert machine.lose_all() == Loss(2, 0, 0, 0)
    assert machine.content() == BEFORE


def test_a_sync_of_a_later_life_keeps_them(machine: Machine) -> None:
    machine.run(SYNCED)
    machine.run("os.write(os.open('a', os.O_WRONLY | os.O_APPEND), b'x'); open('b', 'x').close()")
    machine.run("os.fdatasync(os.open('a', os.O_RDONLY)); os.unlink('b'); os.fsync(os.open('.', os.O_RDONLY))")
    assert machine.lose_all() == Loss(0, 0, 0, 0)
    assert machine.content() == {"a": b"0123456789x"}


def test_a_seed_loses_the_same_and_seeds_differ(shim: Path, tmp_path: Path) -> None:
    found: list[list[bytes]] = []
    for attempt in ("first", "second"):
        machine = Machine(shim, tmp_path / attempt)
        machine.run(SYNCED)
        outcomes = []
        for seed in SEEDS:
            machine.run("f = os.open('a', os.O_RDWR | os.O_APPEND)\nfor i in b'abcd': os.write(f, bytes([i]))")
            lose_unsynced(machine.directory, machine.journal, seed)
            outcomes.append(machine.content()["a"][10:])
            machine.run("f = os.open('a', os.O_RDWR); os.ftruncate(f, 10); os.fsync(f)")
        found.append(outcomes)
        assert {b"", b"abcd"} < set(outcomes), "all is lost, or nothing, or a part"
        assert any(b"\0" in outcome for outcome in outcomes), "a later write is there, and an earlier one is not"
    assert found[0] == found[1]


def test_what_is_not_followed_is_told(machine: Machine) -> None:
    machine.run(SYNCED)
    machine.run("os.link('a', 'b')")
    with pytest.raises(AssertionError, match=r"the journal is not whole.*: link"):
        machine.lose_all()


def test_nothing_is_noted_of_files_elsewhere(machine: Machine) -> None:
    machine.run("open('../elsewhere', 'w').write('x'); os.rename('../elsewhere', '../there'); os.unlink('../there')")
    assert machine.kinds() == {}


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoShimError, match="no C compiler"):
        compile_shim(tmp_path)
