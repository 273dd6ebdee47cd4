"""A cursor takes every value once and in order, whatever the batches, the sizes asked for and the times."""

from __future__ import annotations

from random import Random

import pytest

from odradek.broker.value_cursor import VALUE_BYTES_MORE, Range, Value, ValueCursor
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from tests.broker.houses import START_MS
from tests.broker.readers import PLACE, Reader, reader
from tests.edge.doors import on_uvloop

SEEDS = range(12)


async def fill(t: Reader, chance: Random) -> list[Value]:
    """Batches of every kind; tells the values that can be read."""
    expected: list[Value] = []
    partition = t.broker.partition(*PLACE)
    for _ in range(chance.randint(1, 25)):
        offset = partition.log_end
        if chance.random() < 0.2:
            await t.append(
                control_batch(
                    ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
                )
            )
            continue
        records = [
            NewRecord(
                chance.choice([None, b"", chance.randbytes(chance.choice([1, 60, 127, 128, 3_000]))]),
                key=chance.choice([None, b"key"]),
                timestamp=START_MS + chance.randint(-50, 50),
            )
            for _ in range(chance.randint(1, 30))
        ]
        await t.append(build_batch(records, codec=chance.choice(list(Codec))))
        expected += [(offset + at, each.timestamp, each.value or b"") for at, each in enumerate(records)]
    return expected


@pytest.mark.parametrize("seed", SEEDS)
@on_uvloop
async def test_all_values_are_taken_once_and_in_order(seed: int) -> None:
    chance = Random(seed)
    async with reader() as t:
        expected = await fill(t, chance)
        partition = t.broker.partition(*PLACE)
        start = chance.randint(0, partition.log_end)
        cursor = ValueCursor(t.broker, partition, start, chance.choice([1, 200, 5_000, 1 << 18]))
        found: list[Value] = []
        while cursor.offset < partition.log_end:
            count_max, bytes_max = chance.randint(1, 40), chance.choice([1, 100, 4_000, 1 << 20])
            t.house.disk.is_cold = chance.random() < 0.5
            was = cursor.offset
            batch = await cursor.take(count_max, bytes_max)
            assert was < batch.next_offset == cursor.offset
            assert len(batch.values) <= count_max
            size_bytes = sum(len(value) + VALUE_BYTES_MORE for _, _, value in batch.values)
            assert size_bytes <= bytes_max or len(batch.values) == 1
            assert all(was <= offset < batch.next_offset for offset, _, _ in batch.values)
            found += batch.values
        assert found == [value for value in expected if value[0] >= start]
        assert await cursor.take(10, 1 << 20) == ([], partition.log_end)


@pytest.mark.parametrize("seed", SEEDS)
@on_uvloop
async def test_times_cut_a_run_out_of_the_values(seed: int) -> None:
    chance = Random(seed)
    async with reader() as t:
        expected = await fill(t, chance)
        partition = t.broker.partition(*PLACE)
        since, until = START_MS + chance.randint(-40, 10), START_MS + chance.randint(11, 60)
        first = next((at for at, value in enumerate(expected) if value[1] >= since), len(expected))
        last = next((at for at in range(first, len(expected)) if expected[at][1] >= until), len(expected))
        cursor = ValueCursor(t.broker, partition, 0, 300, Range(since, until))
        found: list[Value] = []
        while not cursor.is_over and cursor.offset < partition.log_end:
            found += (await cursor.take(chance.randint(1, 9), 1 << 20)).values
        assert found == expected[first:last]
        assert cursor.is_over == (last < len(expected))
        if cursor.is_over:
            assert cursor.offset == expected[last][0]
            assert await cursor.take(10, 1 << 20) == ([], cursor.offset)
