"""DescribeProducers: what a partition remembers of idempotent producers."""

from __future__ import annotations

from odradek.apis import describe_producers as describing
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_producers
from tests.apis.houses import visiting
from tests.broker.houses import START_MS
from tests.client.support import asynchronous
from tests.log.support import batch


@asynchronous
async def test_producers_are_told_partition_by_partition() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("orders", 2, {"flush": "os"})
        log = visitor.broker.partition("orders", 1).log
        log.append(batch(b"plain"))
        log.append(batch(b"a", b"b", producer=(5, 3, 0)))
        visitor.clock.advance(7)
        log.append(batch(b"c", producer=(5, 3, 2)))
        log.append(batch(b"open", producer=(6, 0, 0), transactional=True))
        wanted = [
            describe_producers.RequestTopic(name="orders", partition_indexes=[0, 1, 2]),
            describe_producers.RequestTopic(name="unknown", partition_indexes=[0]),
        ]
        asked = describe_producers.Request(topics=wanted)
        answer = await visitor.ask(describing.API, 0, asked, describe_producers.Response)
        none, some, missing = answer.topics[0].partitions
        assert (none.error_code, none.active_producers) == (0, [])
        assert (missing.partition_index, missing.error_code) == (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert missing.error_message
        assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        idempotent, transactional = sorted(some.active_producers, key=lambda producer: producer.producer_id)
        assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.last_sequence) == (5, 3, 2)
        assert (idempotent.last_timestamp, idempotent.current_txn_start_offset) == (START_MS + 7, -1)
        assert (transactional.producer_id, transactional.current_txn_start_offset) == (6, 4)
