"""What of an answer fits the end of a log, by example and against a naive model; the throttle beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.replication.fitting import MisfitError, fit
from odradek.replication.throttle import Throttle


def stored(base: int, count: int, epoch: int) -> bytes:
    return bytes(build_batch([NewRecord(b"v", timestamp=1)] * count, base_offset=base, leader_epoch=epoch))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6),
    have=st.integers(0, 20),
    torn=st.integers(0, 80),
)
def test_what_fits_is_what_a_naive_look_finds(sizes: list[tuple[int, int, int]], have: int, torn: int) -> None:
    batches: list[tuple[int, int, bytes]] = []
    offset = epoch = 0
    for count, skipped, newer in sizes:
        offset += skipped
        epoch += newer
        batches.append((offset, offset + count, stored(offset, count, epoch)))
        offset += count
    data = b"".join(batch for _, _, batch in batches) + stored(offset, 3, epoch)[:torn][:-1]
    found = fit(memoryview(data), have, 0, epoch)
    new = [batch for batch in batches if batch[1] > have]
    if not new:
        assert found is None
        return
    assert found is not None
    assert bytes(found.data) == b"".join(batch for _, _, batch in new)
    assert found.base_offset == new[0][0]
    ends = [have, *(end for _, end, _ in new)]
    gaps = [(end, base) for end, (base, _, _) in zip(ends, new, strict=False) if base > end]
    assert found.gap == (gaps[0] if gaps else None)


@pytest.mark.parametrize(
    "data",
    [
        stored(0, 2, 1) + stored(1, 1, 1),
        stored(0, 1, 2) + stored(1, 1, 1),
        stored(0, 1, 9),
        stored(0, 1, 0),
        stored(0, 1, 1)[:-1],
    ],
)
def test_what_goes_back_or_leaves_the_epochs_or_is_torn_is_refused(data: bytes) -> None:
    with pytest.raises(MisfitError):
        fit(memoryview(data), 0, 1, 3)


def test_nothing_is_nothing() -> None:
    assert fit(memoryview(b""), 0, 0, 0) is None


def test_a_throttle_lets_debts_be_paid_off() -> None:
    throttle = Throttle(100)
    assert throttle.wait_s(5.0) == 0
    throttle.take(50, 5.0)
    throttle.take(50, 5.0)
    assert throttle.wait_s(5.25) == 0.75
    assert throttle.wait_s(6.5) == 0
    throttle.take(10, 8.0)
    assert throttle.wait_s(8.0) == pytest.approx(0.1)
    throttle.rate = 0
    throttle.take(10**9, 8.0)
    assert throttle.wait_s(8.0) == 0
