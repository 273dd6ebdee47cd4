#!/usr/bin/env python3
"""Create a topic: `create_topic.py NAME [-p PARTITIONS]`."""

from __future__ import annotations

import sys

from brokers import Parser, carry_out, show


def main() -> int:
    """Run the command."""
    parser = Parser("Create a topic.")
    parser.add_argument("topic_name")
    parser.add_argument("-p", dest="partitions", type=int, default=3, help="how many partitions (%(default)s)")
    parser.add_argument("-r", dest="replicas", type=int, help="taken and not used: every broker has a replica")
    args = parser.parse_args()
    body = {"topic_name": args.topic_name, "partition_count": args.partitions}
    return carry_out(args.brokers, lambda: show(args.brokers.ask("POST", "/admin/v1/topics", body)))


if __name__ == "__main__":
    sys.exit(main())
