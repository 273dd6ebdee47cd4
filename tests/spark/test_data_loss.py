"""Records that vanish before a streaming query has read them: named, or passed over if the options say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from odradek.client.sync import Client
from odradek.model import TopicPartition
from tests.spark.conftest import Produce
from tests.spark.streams import Seen, Streams


@pytest.fixture
def streams(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Streams:
    return Streams(spark, bootstrap, tmp_path)


def test_offsets_that_retention_removed_fail_the_query_with_what_is_wanted_and_what_there_is(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    topic, seen = new_name(), Seen()
    client.admin.create_topic(topic)
    produce(topic, ["x"] * 5)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    streams.run(streams.frame(**options), seen)
    produce(topic, ["y"] * 10)
    client.call(client.admin.inner.delete_records({TopicPartition(topic, 0): 12}))
    with pytest.raises(StreamingQueryException, match=rf"offsets 5 to 14 of partition {topic}-0 .* offsets 12 to 14"):
        streams.run(streams.frame(**options), seen)
    streams.run(streams.frame(**options, failOnDataLoss="false"), seen)
    assert seen.places == Counter({(topic, 0, offset): 1 for offset in (*range(5), *range(12, 15))})


def test_a_topic_deleted_under_a_query_is_named_and_a_new_one_of_its_name_is_read_from_its_start(
    streams: Streams, produce: Produce, client: Client, new_name: Callable[[], str]
) -> None:
    kept, gone, seen = new_name(), new_name(), Seen()
    for topic in (kept, gone):
        client.admin.create_topic(topic)
        produce(topic, ["x"] * 3)
    options = {"subscribe": f"{kept},{gone}", "startingOffsets": "earliest"}
    query = streams.start(streams.frame(**options), seen, ends=False)
    query.processAllAvailable()
    client.admin.delete_topic(gone)
    with pytest.raises(StreamingQueryException, match=f"topic {gone} is gone"):
        query.awaitTermination(60)
    client.admin.create_topic(gone)
    produce(gone, ["another"] * 5)  # more than the old one had: its offsets alone would not tell
    with pytest.raises(StreamingQueryException, match=f"topic {gone} was deleted and created again"):
        streams.run(streams.frame(**options), seen)
    produce(kept, ["y"])
    streams.run(streams.frame(**options, failOnDataLoss="false"), seen)
    old = Counter({(topic, 0, offset): 1 for topic in (kept, gone) for offset in range(3)})
    new = Counter([(kept, 0, 3), *((gone, 0, offset) for offset in range(5))])
    assert seen.places == old + new
