#!/usr/bin/env python3
"""Produce records to a topic: `produce.py TOPIC`, then keys and payloads until an empty line."""

from __future__ import annotations

import sys
import zlib

from brokers import Brokers, Parser, carry_out, partition_ids, say


def main() -> int:
    """Run the command."""
    parser = Parser("Produce records to a topic: keys and payloads until an empty line.")
    parser.add_argument("topic")
    parser.add_argument(
        "-a", dest="acks", choices=("all", "1", "0"), default="all", help="who must have stored a record (%(default)s)"
    )
    args = parser.parse_args()
    return carry_out(args.brokers, lambda: produce(args.brokers, args.topic, args.acks))


def produce(brokers: Brokers, topic: str, acks: str) -> None:
    """Publish what is entered."""
    partitions = partition_ids(brokers, topic)
    while (key := prompt("Key: ")) and (payload := prompt("Payload: ")):
        record = {"topic_partition": partition_of(key, partitions), "key": key, "payload": payload, "acks": acks}
        brokers.ask("POST", "/data/v1/produce", record, waits=True)
        say("> OK\n\n")


def partition_of(key: str, partitions: list[str]) -> str:
    """The same key comes to the same partition, today and on any machine: Python's own hash would not do."""
    return partitions[zlib.crc32(key.encode()) % len(partitions)]


def prompt(text: str) -> str:
    """Ask for a line; empty at the end of the input. What comes from a pipe is shown as if it were typed."""
    say(text)
    line = sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        say(f"{line}\n")
    return line


if __name__ == "__main__":
    sys.exit(main())
