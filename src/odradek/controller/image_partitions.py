"""One partition in the cluster's metadata: who holds it, who leads it, which limits it has for itself.

Pure. A partition that was deleted and made again is another one: its generation and its leader's epoch are above those
of all before it, so that no log, no follower and no leader of the old one is taken for one of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NO_LEADER = -1
GONE_MAX = 100  # deleted partitions that a topic remembers one by one
_OTHERS = -1  # stands in `gone` for those that are not listed

_ID_LISTS = ("replicas", "isr", "adding", "removing")
_NUMBERS = ("leader", "leader_epoch", "partition_epoch")


class PartitionLimits(NamedTuple):
    """What a partition that was made on its own has instead of its topic's settings."""

    segment_bytes: int  # > 0
    partition_bytes: int  # 0: without limit
    ttl_seconds: int  # 0: without limit


class PartitionImage(NamedTuple):
    """One partition: who holds it and who leads it."""

    replicas: tuple[int, ...] = ()  # the first is the preferred leader; none: made by a broker that stood alone
    isr: tuple[int, ...] = ()  # part of `replicas`; never empty when they are not
    leader: int = NO_LEADER  # one of `isr`, or NO_LEADER
    leader_epoch: int = 0  # rises with each change of the leader
    partition_epoch: int = 0  # rises with every change
    adding: tuple[int, ...] = ()  # of `replicas`: those that a reassignment brings in
    removing: tuple[int, ...] = ()  # of `replicas`: those that leave when the reassignment is done
    generation: int = 0  # rises when it is made again after it was deleted; never changes while it is there
    limits: PartitionLimits | None = None  # None: it has its topic's settings


def partition_body(topic: str, index: int, partition: PartitionImage) -> dict[str, Any]:
    """How a partition stands in `create-topic`, in `add-partitions` and in a snapshot."""
    body: dict[str, Any] = {
        "id": f"{topic}-{index + 1}",  # SSKafka counts from 1
        "partition": index,
        "replica_brokers": [str(replica) for replica in partition.replicas],
        "isr": list(partition.isr),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
    }
    if partition.partition_epoch:
        body["partition_epoch"] = partition.partition_epoch
    if partition.adding or partition.removing:
        body["adding"], body["removing"] = list(partition.adding), list(partition.removing)
    if partition.generation:
        body["generation"] = partition.generation
    if partition.limits is not None:
        body["limits"] = partition.limits._asdict()
    return body


def read_partitions(content: Any, present: int) -> dict[int, PartitionImage]:
    """Read a list of partitions, or how many there are in all, as a broker that stood alone wrote it."""
    if isinstance(content, int):
        return {index: PartitionImage() for index in range(present, content)}
    return {int(body["partition"]): _partition(body) for body in content}


def _partition(body: Mapping[str, Any]) -> PartitionImage:
    limits = body.get("limits")
    return PartitionImage(
        _ids(body["replica_brokers"]),
        _ids(body["isr"]),
        int(body["leader"]),
        int(body["leader_epoch"]),
        int(body.get("partition_epoch", 0)),
        _ids(body.get("adding", ())),
        _ids(body.get("removing", ())),
        int(body.get("generation", 0)),
        None if limits is None else PartitionLimits(*(int(limits[name]) for name in PartitionLimits._fields)),
    )


def changed_partition(partition: PartitionImage, body: Mapping[str, Any]) -> PartitionImage:
    """A partition as a `partition-change` leaves it."""
    changes: dict[str, Any] = {name: _ids(body[name]) for name in _ID_LISTS if name in body}
    changes |= {name: int(body[name]) for name in _NUMBERS if name in body}
    return partition._replace(**changes)


def _ids(content: Any) -> tuple[int, ...]:
    return tuple(int(broker_id) for broker_id in content)


# Those that are gone.


def bury(gone: dict[int, tuple[int, int]], index: int, partition: PartitionImage) -> None:
    """Remember the generation and the last leader's epoch of a partition that is deleted.

    When there are too many to remember each, what is above all of them is remembered.
    """
    gone[index] = (partition.generation, partition.leader_epoch)
    if len(gone) > GONE_MAX:
        generations, epochs = zip(*gone.values(), strict=True)
        gone.clear()
        gone[_OTHERS] = (max(generations), max(epochs))


def successor(gone: Mapping[int, tuple[int, int]], index: int) -> tuple[int, int]:
    """The generation and the first leader's epoch of a partition that is made: above all that had its number."""
    before = gone.get(index, gone.get(_OTHERS))
    return (0, 0) if before is None else (before[0] + 1, before[1] + 1)
