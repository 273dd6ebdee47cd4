"""`odradek channel cost`: the monthly bill of a channel in an object store, line by line, reckoned or counted."""

from __future__ import annotations

import argparse
import json
import tomllib
from dataclasses import replace
from pathlib import Path

from odradek.cli.listing import in_bytes, show, tell
from odradek.cli.terminal import CommandError
from odradek.cli.values import number, seconds, size
from odradek.objects.cost import PROVIDERS, Bill, Prices, Use, bill, slices_within

EXAMPLES = """\
examples:
  odradek channel cost --rate 1e6 --size 100
  odradek channel cost --rate 1e6 --size 100 --publishers 5 --target 100
  odradek channel cost --rate 2000 --size 1KiB --retention-days 365 --provider gcs
  odradek channel cost --rate 5000 --size 100 --simulate 10

--simulate runs the real writer at this rate against a store in memory, and bills the requests that it counts.
A file for --prices is TOML: put_per_1000, list_per_1000, get_per_1000, storage_per_gb_month, provider, date.
"""
_SIMULATED_SECONDS_MAX = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--rate", metavar="N", type=_rate, required=True, help="messages a second, as in 1e6")
    parser.add_argument("--size", metavar="SIZE", type=size, required=True, help="of one message, as in 100 or 1KiB")
    parser.add_argument("--slice", metavar="TIME", type=seconds, default=1.0, help="channel.slice.ms (default: 1s)")
    parser.add_argument(
        "--slice-size", metavar="SIZE", type=size, default=Use.slice_bytes, help="channel.slice.bytes (default: 64MiB)"
    )
    parser.add_argument(
        "--publishers", metavar="N", type=number(1, 10_000), default=1,
        help="brokers' partitions, or writers without a broker, that put objects (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--readers", metavar="N", type=number(0, 10_000), default=1,
        help="that read the store without a broker; those who ask a broker cost nothing here (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--poll", metavar="TIME", type=seconds, default=0.5, help="how often a reader lists (default: 0.5s)"
    )
    parser.add_argument(
        "--retention-days", metavar="N", type=float, default=1.0, help="how long messages are kept (default: 1)"
    )
    parser.add_argument(
        "--compression", metavar="N", type=float, default=1.0,
        help="stored bytes a byte of messages; 0.3 is usual for JSON (default: 1, none)",
    )  # fmt: skip
    parser.add_argument("--fifo", action="store_true", help="the channel is fifo: one object a slice, not two")
    parser.add_argument(
        "--target", metavar="DOLLARS", type=float, help="say which slices cost no more than this in requests"
    )
    prices = parser.add_mutually_exclusive_group()
    prices.add_argument("--provider", choices=sorted(PROVIDERS), default="s3", help="whose list prices (default: s3)")
    prices.add_argument("--prices", metavar="FILE", type=Path, help="a table of prices of your own")
    parser.add_argument(
        "--simulate", metavar="SECONDS", type=number(1, _SIMULATED_SECONDS_MAX),
        help="run the real writer for so long and count its requests",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Print the bill."""
    use, prices = _use(args), _prices(args)
    if args.simulate:
        from odradek.cli.channel_simulation import simulate  # noqa: PLC0415 (the store takes time to import)

        counted = simulate(use, args.simulate, fifo=args.fifo)
        tell(counted.told)
        use = replace(use, objects_per_slice=counted.objects_per_slice)
    found = bill(use, prices)
    within = list(slices_within(use, prices, args.target)) if args.target is not None else None
    if args.json:
        print(json.dumps(_as_json(found, within)))
        return 0
    _print(found)
    if within is not None:
        _print_target(args.target, within)
    return 0


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 < rate <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write messages a second, as in 1000 or 1e6")
    return rate


def _use(args: argparse.Namespace) -> Use:
    for name, low in (("retention_days", 0.0), ("compression", 0.0), ("slice", 0.001), ("poll", 0.001)):
        if not low <= getattr(args, name) < float("inf"):
            raise CommandError(f"--{name.replace('_', '-')} {getattr(args, name)} is too small: {low} is the least", 2)
    return Use(
        rate=args.rate,
        size_bytes=args.size,
        slice_ms=max(round(args.slice * 1_000), 1),
        slice_bytes=max(args.slice_size, 1),
        publishers=args.publishers,
        readers=args.readers,
        poll_ms=max(round(args.poll * 1_000), 1),
        retention_days=args.retention_days,
        compression=args.compression,
        objects_per_slice=1.0 if args.fifo else Use.objects_per_slice,
    )


def _prices(args: argparse.Namespace) -> Prices:
    if args.prices is None:
        return PROVIDERS[args.provider]
    try:
        return Prices.read(tomllib.loads(args.prices.read_text(encoding="utf-8")))
    except (ValueError, UnicodeDecodeError) as error:
        raise CommandError(f"{args.prices}: {error}", 2) from None


def _print(found: Bill) -> None:
    rows = [
        [
            line.what,
            "-" if line.per_second is None else f"{line.per_second:,.2f}",
            in_bytes(line.per_month) if line.per_second is None else f"{line.per_month:,.0f}",
            f"{line.dollars:,.2f}",
        ]
        for line in found.lines
    ]
    rows.append(["requests together", "-", "-", f"{found.request_dollars:,.2f}"])
    rows.append(["all together", "-", "-", f"{found.dollars:,.2f}"])
    show(["line", "a second", "a month", "dollars a month"], rows)
    tell(f"prices: {found.prices.provider}, {found.prices.date}; without traffic out of the provider's region")


def _print_target(target: float, within: list[int]) -> None:
    if within:
        print(f"slices from {within[0]} ms on cost at most {target:,.2f} dollars a month in requests")
    else:
        print(
            f"no slice costs as little as {target:,.2f} dollars a month in requests: fewer publishers or readers would"
        )


def _as_json(found: Bill, within: list[int] | None) -> dict[str, object]:
    content: dict[str, object] = {
        "lines": [line._asdict() for line in found.lines],
        "request_dollars": found.request_dollars,
        "dollars": found.dollars,
        "provider": found.prices.provider,
        "date": found.prices.date,
    }
    if within is not None:
        content["slices_ms_within_target"] = within
    return content
