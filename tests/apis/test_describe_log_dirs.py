"""DescribeLogDirs of every version: the data directory, its room, and how large each partition is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek import testing
from odradek.apis import describe_log_dirs as describing
from odradek.testing import EmbeddedBroker
from odradek.wire.messages import create_topics, describe_log_dirs
from tests.apis.houses import versions
from tests.broker.houses import batch
from tests.edge.raw import RawClient, produce_code

SIZE = len(batch(b"v"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker on a real disk, with one record in the second partition of `a`."""
    with testing.broker({"auto.create.topics.enable": "false"}) as embedded:
        with RawClient(int(embedded.bootstrap_servers.rpartition(":")[2])) as client:
            wanted = [
                create_topics.RequestTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in (("a", 2), ("b", 1))
            ]
            client.ask(create_topics.Request(topics=wanted), create_topics.Response, 5)
            assert produce_code(client, "b", bytes(batch(b"v"))) == 0
        yield embedded


def ask(
    broker: EmbeddedBroker, version: int, *topics: tuple[str, list[int]], every: bool = False
) -> describe_log_dirs.ResponseResult:
    wanted = [describe_log_dirs.RequestTopic(topic=name, partitions=indexes) for name, indexes in topics]
    with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
        asked = describe_log_dirs.Request(topics=None if every else wanted)
        answer = client.ask(asked, describe_log_dirs.Response, version)
    assert isinstance(answer, describe_log_dirs.Response)
    (result,) = answer.results
    assert (answer.error_code, result.error_code) == (0, 0)
    return result


def sizes(result: describe_log_dirs.ResponseResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions(describing.API))
def test_every_version_describes_all_or_some(broker: EmbeddedBroker, version: int) -> None:
    everything = ask(broker, version, every=True)
    assert everything.log_dir == str(broker.directory)
    assert sizes(everything) == {("a", 0): 0, ("a", 1): 0, ("b", 0): SIZE}
    assert sizes(ask(broker, version, ("a", [1, 7]), ("unknown", [0]), ("b", [0]))) == {("a", 1): 0, ("b", 0): SIZE}
    assert sizes(ask(broker, version)) == {}
    if version >= 4:
        assert everything.total_bytes >= everything.usable_bytes > 0
    else:
        assert (everything.total_bytes, everything.usable_bytes) == (-1, -1)
