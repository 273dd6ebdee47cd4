"""`odradek log verify`: prints what `odradek.log.verify` finds in partitions."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from odradek.cli.log_find import EXIT_PROBLEM, OPEN_FILES_MAX, bytes_of, find
from odradek.cli.terminal import escape, is_terminal, progress
from odradek.disk.real import RealDisk
from odradek.log.verify import verify_partition
from odradek.log.verify_finding import Finding, Totals


def verify(args: argparse.Namespace) -> int:
    """Check what the arguments name."""
    disk = RealDisk(OPEN_FILES_MAX, read_only=True)
    partitions = [partition for text in args.directories for partition in find(disk, text, files=False)]
    totals, counts = Totals(), {"problem": 0, "note": 0}
    # On a terminal, lines go through the bar's drawing, which keeps them apart from it; else past it.
    out = None if is_terminal() else sys.stdout
    total_bytes = bytes_of(disk, partitions) if is_terminal(sys.stderr) else 0
    with progress(total_bytes, "checking") as advance:
        for partition in partitions:
            for finding in verify_partition(disk, partition.directory, totals, shallow=args.shallow, advance=advance):
                counts[finding.kind] += 1
                print(_json_finding(finding) if args.json else plain_finding(finding), file=out)
    if args.json:
        summary = {"type": "summary", **asdict(totals), "problems": counts["problem"], "notes": counts["note"]}
        print(json.dumps(summary))
    else:
        print(_summary(totals, counts["problem"]))
    return EXIT_PROBLEM if counts["problem"] else 0


def plain_finding(finding: Finding) -> str:
    """A finding on one line."""
    note = "note: " if finding.kind == "note" else ""
    place = f" {finding.unit} {finding.at}" if finding.unit else ""
    return escape(f"{note}{finding.path}{place}: {finding.text}")


def _json_finding(finding: Finding) -> str:
    place = {finding.unit: finding.at} if finding.unit else {}
    return json.dumps({"type": finding.kind, "file": finding.path, **place, "text": finding.text})


def _summary(totals: Totals, problems: int) -> str:
    counted = (
        f"partitions {totals.partitions}, segments {totals.segments}, batches {totals.batches},"
        f" records {totals.records}, bytes {totals.size_bytes}"
    )
    return f"{counted}: {'all is well' if not problems else '1 problem' if problems == 1 else f'{problems} problems'}"
