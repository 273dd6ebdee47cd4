#!/usr/bin/env python3
"""Delete a topic: `delete_topic.py NAME`."""

from __future__ import annotations

import sys
from urllib.parse import quote

from brokers import Parser, carry_out


def main() -> int:
    """Run the command."""
    parser = Parser("Delete a topic.")
    parser.add_argument("topic_name")
    args = parser.parse_args()
    path = f"/admin/v1/topics/{quote(args.topic_name, safe='')}"
    return carry_out(args.brokers, lambda: args.brokers.ask("DELETE", path))


if __name__ == "__main__":
    sys.exit(main())
