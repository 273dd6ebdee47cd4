"""`make compat`: run foreign suites against a broker and hold the results against the allow-lists.

Starts an odradek for each scenario of a suite, or uses a running broker (`--broker`). Exit 0: every allowed test is
green. Logs, sources and builds stay in the cache directory.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.compat import allow, report
from tests.compat.broker import listens, odradek
from tests.compat.kafka_python import KafkaPython
from tests.compat.librdkafka import Librdkafka
from tests.compat.outcome import RED, Result
from tests.compat.suite import CompatError, Order, Suite

CACHE = Path("~/.cache/odradek-compat")
KAFKA_VERSION = "4.2"  # what clients take odradek for, by the versions that it offers
MINUTE_S = 60.0

_EXAMPLES = """\
examples:
  python -m tests.compat.run                                    all suites against odradek
  python -m tests.compat.run --suite librdkafka -k 0081         one test
  python -m tests.compat.run --broker 127.0.0.1:9092            against a broker that runs already
  python -m tests.compat.run --update                           add what is green to the allow-lists
"""


def suites() -> dict[str, Suite]:
    """Every suite, by name."""
    known: tuple[Suite, ...] = (KafkaPython(), Librdkafka(), Librdkafka(group_protocol="consumer"))
    return {suite.name: suite for suite in known}


def arguments(names: Sequence[str], argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat.run",
        description="Run other people's test suites against a broker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", action="append", choices=names, help="only this suite; repeatable (default: all)")
    parser.add_argument("--broker", metavar="HOST:PORT", help="a running broker instead of an odradek of our own")
    parser.add_argument(
        "--scenario", default="default", help="with --broker: the scenario of the suite that it is set up for"
    )
    parser.add_argument(
        "--kafka-version", default=KAFKA_VERSION, help=f"what the suites are told it is (default: {KAFKA_VERSION})"
    )
    parser.add_argument(
        "-k", dest="patterns", action="append", default=[], metavar="TEXT", help="only tests named so; repeatable"
    )
    parser.add_argument("--jobs", type=int, default=3, help="librdkafka tests at a time (default: 3)")
    parser.add_argument("--test-seconds", type=float, default=900.0, help="bound on one test (default: 900)")
    parser.add_argument("--minutes", type=float, help="bound on one suite (default: the suite's own, 10 to 20)")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="DIR", help=f"sources, builds, logs (default: {CACHE})"
    )
    parser.add_argument("--update", action="store_true", help="add green tests to the allow-lists")
    args = parser.parse_args(argv)
    if args.update and args.broker:
        parser.error("--update writes down what odradek can do, so it starts its own: leave --broker out")
    return args


def run_suite(suite: Suite, args: argparse.Namespace, logs: Path) -> list[Result]:
    """Run a suite in all its scenarios, or in the one that a running broker is set up for."""
    deadline = time.monotonic() + (args.minutes or suite.minutes_max) * MINUTE_S
    results: list[Result] = []
    for scenario, settings in suite.scenarios.items():
        if args.broker and scenario != args.scenario:
            continue
        place = logs / suite.name / scenario
        place.mkdir(parents=True)
        broker = contextlib.nullcontext(args.broker) if args.broker else odradek(settings, place / "broker.log")
        with broker as address:
            order = Order(
                broker=address,
                kafka_version=args.kafka_version,
                scenario=scenario,
                patterns=args.patterns,
                test_seconds_max=args.test_seconds,
                deadline=deadline,
                logs=place,
                jobs=args.jobs,
            )
            results += run_twice_if_need_be(suite, order)
    return results


def run_twice_if_need_be(suite: Suite, order: Order) -> list[Result]:
    """Run one scenario; what is allowed and red is run again, alone, as many tests measure time on a busy machine."""
    results = {}
    for result in suite.run(order):
        print(report.line(result), flush=True)
        results[result.name] = result
    allowed = allow.read(allow_list(suite))
    red = [name for name, result in results.items() if result.outcome in RED and name in allowed]
    if red:
        logs = order.logs / "again"
        logs.mkdir()
        for result in suite.run(replace(order, names=red, jobs=1, logs=logs)):
            print(report.line(result), flush=True)
            results[result.name] = replace(result, tries=2)
    return list(results.values())


def allow_list(suite: Suite) -> Path:
    """The file that names the tests of a suite that must pass."""
    return allow.DIRECTORY / f"{suite.name}.txt"


def judge(suite: Suite, args: argparse.Namespace, results: Sequence[Result], logs: Path) -> bool:
    """Tell of a suite's results and hold them against its allow-list."""
    verdict = allow.judge(allow.read(allow_list(suite)), results, whole=not args.patterns and not args.broker)
    print("\n" + report.summary(suite.name, results, verdict), flush=True)
    report.write_junit(logs / suite.name / "junit.xml", suite.name, results)
    if args.update and verdict.new:
        allow.add(allow_list(suite), verdict.new)
    return verdict.good


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suites; the exit code says whether the allow-lists hold."""
    known = suites()
    args = arguments(list(known), argv)
    if args.broker and not listens(args.broker):
        print(f"nobody listens on {args.broker}; start a broker there or leave --broker out", file=sys.stderr)
        return 2
    cache = args.cache.expanduser().absolute()
    logs = cache / "logs" / time.strftime("%Y%m%d-%H%M%S")
    good = True
    for name in args.suite or known:
        suite = known[name]
        try:
            print(f"{name}: preparing", flush=True)
            suite.prepare(cache)
            good = judge(suite, args, run_suite(suite, args, logs), logs) and good
        except CompatError as error:
            print(f"{name}: {error}", file=sys.stderr)
            good = False
    print(f"\nlogs: {logs}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
