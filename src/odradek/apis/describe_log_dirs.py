"""DescribeLogDirs (key 35): the data directory, its partitions' sizes, and the room on its disk (KIP-827)."""

from __future__ import annotations

from collections.abc import Iterator
from shutil import disk_usage

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.topics import Partition, Topic
from odradek.wire.api import ApiKey
from odradek.wire.messages import describe_log_dirs

VERSIONS = Versions(1, 4)


def handle(context: Context, request: describe_log_dirs.Request) -> describe_log_dirs.Response:
    """Describe the one directory, with all partitions or those that are asked for."""
    directory = context.broker.store.directory
    room = disk_usage(directory)
    topics = [
        describe_log_dirs.ResponseTopic(
            name=topic.name,
            partitions=[
                describe_log_dirs.ResponsePartition(
                    partition_index=partition.index, partition_size=partition.log.size_bytes
                )
                for partition in partitions
            ],
        )
        for topic, partitions in _wanted(context, request)
    ]
    result = describe_log_dirs.ResponseResult(
        log_dir=directory, topics=topics, total_bytes=room.total, usable_bytes=room.free
    )
    return describe_log_dirs.Response(results=[result])


def _wanted(context: Context, request: describe_log_dirs.Request) -> Iterator[tuple[Topic, list[Partition]]]:
    topics = context.broker.topics
    if request.topics is None:
        for topic in topics.values():
            yield topic, list(topic.partitions.values())
        return
    for wanted in request.topics:
        found = topics.get(wanted.topic)
        if found is not None:
            yield found, [found.partitions[index] for index in wanted.partitions if index in found.partitions]


API = Api(ApiKey.DESCRIBE_LOG_DIRS, VERSIONS, describe_log_dirs.Request, handle)
