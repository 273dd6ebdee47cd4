"""A log that lost its end, more than once, and filled it anew: nothing is lost, and nothing is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.objects import stores_local
from odradek.objects.errors import ObjectExistsError
from odradek.objects.slices import Message
from odradek.objects.stores import open_store
from tests.objects.support import TestStore, frontier, message, with_channel


def life(store: TestStore, *values: str) -> None:
    """A publisher that starts, puts these from sequence 5 on, and dies before it notes how far it is."""
    frontier(store).put([message(5 + at, value=value.encode()) for at, value in enumerate(values)])


def kept(store: TestStore) -> list[tuple[int, bytes | None]]:
    def by_text(found: Message) -> tuple[int, bytes]:
        return found.sequence, found.value or b""

    return [(found.sequence, found.value) for found in sorted(store.messages(), key=by_text)]


def test_of_a_log_that_lost_its_end_only_what_is_new_goes_beside() -> None:
    store = with_channel()
    life(store, "a", "b", "c")
    life(store, "a", "B", "C", "D")
    assert kept(store) == [(5, b"a"), (6, b"B"), (6, b"b"), (7, b"C"), (7, b"c"), (8, b"D")]
    life(store, "a", "B", "C", "D", "E")
    assert kept(store)[-2:] == [(8, b"D"), (9, b"E")]
    assert len(kept(store)) == 7


def test_a_log_that_loses_its_end_twice_loses_nothing_that_is_put() -> None:
    store = with_channel()
    life(store, "a", "b", "c")
    life(store, "a", "B", "C", "D")
    life(store, "a", "B", "C2", "D2")
    life(store, "a", "B", "C2", "D2", "E2")
    assert kept(store) == [
        (5, b"a"), (6, b"B"), (6, b"b"), (7, b"C"), (7, b"C2"), (7, b"c"), (8, b"D"), (8, b"D2"), (9, b"E2"),
    ]  # fmt: skip


def test_what_an_object_of_the_lost_end_holds_does_not_count_for_what_comes_after() -> None:
    store = with_channel()
    life(store, "a", "b", "c", "d")
    publisher = frontier(store)
    publisher.put([message(5, value=b"a")])
    for sequence, value in ((6, b"B"), (7, b"C"), (8, b"d"), (9, b"E")):
        publisher.put([message(sequence, value=value)])
    expected = [(5, b"a"), (6, b"B"), (6, b"b"), (7, b"C"), (7, b"c"), (8, b"d"), (9, b"E")]
    assert kept(store) == expected
    life(store, "a", "B", "C", "d", "E")
    assert kept(store) == expected


def test_an_object_that_somebody_left_half_placed_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path.as_uri())
    store.put("orders/1", b"x", only_new=True)  # its writer may have died just before the folder was flushed
    flushed: list[Path] = []
    monkeypatch.setattr(stores_local, "_sync_folder", flushed.append)
    with pytest.raises(ObjectExistsError):
        store.put("orders/1", b"x", only_new=True)
    assert flushed == [tmp_path / "orders"]
