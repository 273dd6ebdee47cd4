"""The key map: the newest offset of each key, and never more memory than it was given."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.keymap import ENTRY_BYTES, KeyMap


def test_a_key_that_was_never_put_has_no_newer_record() -> None:
    keys = KeyMap(1 << 20)
    assert keys.is_newest(b"a", 0)
    keys.put(b"b", 7)
    assert keys.is_newest(b"a", 0)


def test_only_the_last_offset_of_a_key_is_its_newest() -> None:
    keys = KeyMap(1 << 20)
    keys.put(b"a", 3)
    keys.put(b"a", 8)
    assert not keys.is_newest(b"a", 3)
    assert keys.is_newest(b"a", 8)
    assert keys.is_newest(b"a", 9)  # behind what the map has seen
    assert len(keys) == 1


def test_an_empty_key_is_a_key_like_any_other() -> None:
    keys = KeyMap(1 << 20)
    keys.put(b"", 1)
    keys.put(b"\x00", 2)
    assert len(keys) == 2
    assert keys.is_newest(b"", 1)
    assert not keys.is_newest(b"", 0)


def test_an_empty_map_takes_a_batch_of_any_size_so_that_a_pass_always_gets_on() -> None:
    keys = KeyMap(1)
    assert keys.entries_max == 1
    assert keys.has_room_for(1_000)
    keys.put(b"a", 0)
    assert not keys.has_room_for(1)


def test_a_map_is_full_when_its_bytes_are_used_up() -> None:
    keys = KeyMap(10 * ENTRY_BYTES)
    for number in range(9):
        keys.put(b"%d" % number, number)
    assert keys.has_room_for(1)
    assert not keys.has_room_for(2)
    keys.put(b"0", 100)  # a key that is there already takes no more room
    assert keys.has_room_for(1)


def test_an_entry_costs_no_more_memory_than_the_map_reckons() -> None:
    count = 200_000  # just after the dict has grown: its worst moment
    tracemalloc.start()
    keys = KeyMap(count * ENTRY_BYTES)
    for number in range(count):
        keys.put(b"key %d" % number, (1 << 40) + number)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{used / count:.0f} bytes an entry")
    assert used <= count * ENTRY_BYTES


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(1, 3))))
def test_the_map_agrees_with_a_dict(puts: list[tuple[bytes, int]]) -> None:
    keys, model, offset = KeyMap(1 << 20), dict[bytes, int](), 0
    for key, step in puts:
        offset += step
        keys.put(key, offset)
        model[key] = offset
    assert len(keys) == len(model)
    for key, newest in model.items():
        assert keys.is_newest(key, newest)
        assert not keys.is_newest(key, newest - 1)
