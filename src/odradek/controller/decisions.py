"""Everything that the active controller can be asked: names of commands, and who decides each.

Pure: an image, arguments and facts in, records and a result out. The caller writes the records, and answers when a
majority has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from odradek.controller.decisions_archive import archive_deleted, archive_segment, forget_archived
from odradek.controller.decisions_base import Chance, Command, Decision, Facts
from odradek.controller.decisions_brokers import fence_broker, heartbeat, register_broker, unregister_broker
from odradek.controller.decisions_clients import find_topic, register_client, revoke_client
from odradek.controller.decisions_partitions import adopt, alter_partition, elect, reassign, rebalance
from odradek.controller.decisions_sparse import create_partition, delete_partition
from odradek.controller.decisions_topics import (
    add_partitions,
    create_topic,
    delete_topic,
    producer_ids,
    set_broker_configs,
    set_topic_configs,
)
from odradek.controller.image import ClusterImage
from odradek.wire.errors import ErrorCode, PeerError

__all__ = ["COMMANDS", "Chance", "Command", "Decision", "Facts", "decide"]

COMMANDS: Mapping[str, Command] = MappingProxyType({
    "create-topic": create_topic,
    "delete-topic": delete_topic,
    "add-partitions": add_partitions,
    "create-partition": create_partition,
    "delete-partition": delete_partition,
    "set-topic-configs": set_topic_configs,
    "set-broker-configs": set_broker_configs,
    "producer-ids": producer_ids,
    "find-topic": find_topic,
    "register-client": register_client,
    "revoke-client": revoke_client,
    "register-broker": register_broker,
    "heartbeat": heartbeat,
    "fence-broker": fence_broker,
    "unregister-broker": unregister_broker,
    "alter-partition": alter_partition,
    "elect": elect,
    "rebalance": rebalance,
    "reassign": reassign,
    "adopt": adopt,
    "archive-segment": archive_segment,
    "forget-archived": forget_archived,
    "archive-deleted": archive_deleted,
})  # fmt: skip


def decide(command: str, image: ClusterImage, args: Mapping[str, Any], facts: Facts) -> Decision:
    """Decide what the command asks for; PeerError if it is refused, or if there is no such command."""
    found = COMMANDS.get(command)
    if found is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"the controller has no command {command!r}")
    return found(image, args, facts)
