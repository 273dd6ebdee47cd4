#!/usr/bin/env python3
"""List all topics: `list_topics.py`."""

from __future__ import annotations

import sys

from brokers import Parser, carry_out, show


def main() -> int:
    """Run the command."""
    args = Parser("List all topics.").parse_args()
    return carry_out(args.brokers, lambda: show(args.brokers.ask("GET", "/admin/v1/topics", repeats=True)))


if __name__ == "__main__":
    sys.exit(main())
