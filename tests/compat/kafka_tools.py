"""What librdkafka's tests call from a Kafka distribution: kafka-topics.sh and kafka-acls.sh, as far as they use them.

Run as `python -m tests.compat.kafka_tools topics|acls ...` by two scripts that the suite finds under KAFKA_PATH.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

SECONDS_MAX = 30.0


def topics(arguments: Sequence[str]) -> None:
    """Create, alter or delete a topic."""
    parser = argparse.ArgumentParser(prog="kafka-topics")
    parser.add_argument("--bootstrap-server", required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--create", "--alter", "--delete"):
        action.add_argument(name, action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=-1)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--config", action="append", default=[])
    args = parser.parse_args(arguments)
    admin = AdminClient({"bootstrap.servers": args.bootstrap_server})
    if args.create:
        config = dict(pair.split("=", 1) for pair in args.config)
        topic = NewTopic(args.topic, args.partitions, args.replication_factor, config=config)
        futures = admin.create_topics([topic])
    elif args.alter:
        futures = admin.create_partitions([NewPartitions(args.topic, args.partitions)])
    else:
        futures = admin.delete_topics([args.topic])
    for future in futures.values():
        future.result(SECONDS_MAX)


def acls(arguments: Sequence[str]) -> None:
    """Add or remove access control for a topic."""
    parser = argparse.ArgumentParser(prog="kafka-acls")
    parser.add_argument("--bootstrap-server", required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--add", action="store_true")
    action.add_argument("--remove", action="store_true")
    parser.add_argument("--force", action="store_true")
    for kind in ("allow", "deny"):
        parser.add_argument(f"--{kind}-principal")
        parser.add_argument(f"--{kind}-host", default="*")
    parser.add_argument("--operation", required=True)
    parser.add_argument("--topic", required=True)
    args = parser.parse_args(arguments)
    principal, host, permission = (
        (args.deny_principal, args.deny_host, AclPermissionType.DENY)
        if args.deny_principal
        else (args.allow_principal, args.allow_host, AclPermissionType.ALLOW)
    )
    operation = AclOperation[args.operation.upper()]
    parts = (ResourceType.TOPIC, args.topic, ResourcePatternType.LITERAL, principal, host, operation, permission)
    admin = AdminClient({"bootstrap.servers": args.bootstrap_server})
    if args.add:
        for added in admin.create_acls([AclBinding(*parts)]).values():
            added.result(SECONDS_MAX)
    else:
        for removed in admin.delete_acls([AclBindingFilter(*parts)]).values():
            removed.result(SECONDS_MAX)


if __name__ == "__main__":
    {"topics": topics, "acls": acls}[sys.argv[1]](sys.argv[2:])
