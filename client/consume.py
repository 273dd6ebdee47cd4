#!/usr/bin/env python3
"""Consume a partition: `consume.py TOPIC-NUMBER`, until Ctrl+C."""

from __future__ import annotations

import sys
import time
from typing import Any, NoReturn

from brokers import Brokers, Parser, carry_out, say

_POLL_SECONDS = 0.5  # between two looks at a partition that has nothing new


def main() -> int:
    """Run the command."""
    parser = Parser("Print the records of a partition, old and new, until Ctrl+C.")
    parser.add_argument("topic_partition", help="the topic's name, a dash and the partition's number")
    parser.add_argument("-s", dest="size", type=int, default=100, help="records asked for at once (%(default)s)")
    args = parser.parse_args()
    try:
        return carry_out(args.brokers, lambda: consume(args.brokers, args.topic_partition, args.size))
    except KeyboardInterrupt:
        return 0


def consume(brokers: Brokers, topic_partition: str, size: int) -> NoReturn:
    """Print records as they come, without an end."""
    last_offset = -1
    while True:
        body = {"topic_partition": topic_partition, "last_offset": last_offset, "max_batch_size": size}
        answer = brokers.ask("POST", "/data/v1/consume", body, repeats=True)
        say("".join(map(line_of, answer["records"])))
        last_offset = answer["last_offset"]
        if not answer["records"]:
            time.sleep(_POLL_SECONDS)


def line_of(record: dict[str, Any]) -> str:
    """A record as it is printed; one without a key, or without a payload, has nothing there."""
    key, payload = ("" if record[name] is None else record[name] for name in ("key", "payload"))
    return f"[{record['offset']}] [{key}] {payload}\n"


if __name__ == "__main__":
    sys.exit(main())
