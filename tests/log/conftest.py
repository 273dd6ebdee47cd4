"""Runs the tests that go through a whole log once for each place where segments can live."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.log import support

BACKENDS = ("file", "sqlite", "rocksdb")

OVER_ALL = frozenset(
    {
        "test_chain",
        "test_compaction",
        "test_compaction_segments",
        "test_log",
        "test_reader",
        "test_transactions",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests of these modules their backends, and those elsewhere that ask for `backend` by name."""
    test = metafunc.function
    by_name = "backend" in inspect.signature(test).parameters
    # Hypothesis runs a test many times over one fixture, and thousands of databases take too long.
    alone = hasattr(test, "hypothesis") or hasattr(test, support.FILE_ONLY)
    if by_name or (metafunc.module.__name__.rpartition(".")[2] in OVER_ALL and not alone):
        metafunc.parametrize("backend", BACKENDS, indirect=True)


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the logs of this test live: what `LogOnDisk` makes without a disk of its own lives there, too."""
    kind: str = getattr(request, "param", "file")
    if kind == "file":  # in memory, which is quicker
        yield kind
        return
    if kind == "rocksdb":
        pytest.importorskip("rocksdict")
    place = support.Place(kind, str(request.getfixturevalue("tmp_path") / "logs"))
    monkeypatch.setattr(support, "place", place)
    yield kind
    place.close()
