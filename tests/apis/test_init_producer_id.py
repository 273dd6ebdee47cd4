"""InitProducerId of every version: ids that nobody else has; no transactions."""

from __future__ import annotations

import errno

import pytest

from odradek.apis import init_producer_id as giving
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import init_producer_id
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.houses import SlowDisk
from tests.client.support import asynchronous


async def ask(visitor: Visitor, version: int = 5, **fields: int) -> init_producer_id.Response:
    asked = init_producer_id.Request(transaction_timeout_ms=1000)
    for name, value in fields.items():
        setattr(asked, name, value)
    return await visitor.ask(giving.API, version, asked, init_producer_id.Response)


@pytest.mark.parametrize("version", versions(giving.API))
@asynchronous
async def test_every_version_gets_an_id_of_its_own(version: int) -> None:
    async with visiting() as visitor:
        given = [await ask(visitor, version) for _ in range(3)]
        assert [(each.error_code, each.producer_epoch) for each in given] == [(0, 0)] * 3
        assert len({each.producer_id for each in given}) == 3
        assert all(each.producer_id >= 0 for each in given)


@pytest.mark.parametrize("version", [3, 4, 5])
@asynchronous
async def test_a_producer_that_goes_on_gets_an_id_and_epoch_that_nobody_has_used(version: int) -> None:
    async with visiting() as visitor:
        first = await ask(visitor, version)
        again = await ask(visitor, version, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
        assert again.error_code == 0
        assert (again.producer_id, again.producer_epoch) != (first.producer_id, first.producer_epoch)


@pytest.mark.parametrize("version", versions(giving.API))
@pytest.mark.parametrize("transactional_id", ["", "t"])
@asynchronous
async def test_transactions_are_not_served(version: int, transactional_id: str) -> None:
    async with visiting() as visitor:
        asked = init_producer_id.Request(transactional_id=transactional_id, transaction_timeout_ms=1000)
        answer = await visitor.ask(giving.API, version, asked, init_producer_id.Response)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        code = ErrorCode(answer.error_code)
        assert code is not ErrorCode.NONE
        assert not code.retriable, "a client would try for ever"


@asynchronous
async def test_no_id_is_given_twice_also_not_after_a_restart() -> None:
    disk, given = SlowDisk(), []
    for _ in range(3):
        async with visiting(disk) as visitor:
            given += [(await ask(visitor)).producer_id for _ in range(3)]
    assert len(set(given)) == 9


@asynchronous
async def test_a_disk_that_fails_is_told() -> None:
    async with visiting() as visitor:
        visitor.disk.fail_next("append to", errno.EIO, ending="__cluster_metadata.log")
        answer = await ask(visitor)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
