"""Real brokers under load and faults drawn by seed: `python -m tests.fault.run --seeds 20 --seconds 30 --brokers 5`.

One line a seed: what was done, the longest time without an acknowledgement, and the verdict. The directory of a seed
that failed is kept and named: its plan, its history, its findings, and the brokers' data and logs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.fault.cluster import ClusterProcesses
from tests.fault.history import Finding, in_words, longest_silence_ms, summary
from tests.fault.load import Load, as_lines, client_settings, now_ms, read_all
from tests.fault.nemesis import KINDS, Nemesis, Step, Victim, draw
from tests.fault.network import make_network, why_no_namespaces
from tests.fault.unsynced import NoShimError, compile_shim
from tests.process import wait_until

TOPIC = "orders"
PARTITIONS = 4
REPLICAS_MAX = 3
PRODUCERS = 2
CONSUMERS = 2
RATE = 250  # records a second of each producer
QUIET_SECONDS_MAX = 60.0  # from the last healing until all replicas are in sync and all is read
ADMIN_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """What one seed's run is like."""

    seconds: float = 30.0
    brokers: int = 5
    flavour: str = "auto"
    settings: Mapping[str, str] = field(default_factory=dict)
    shim: Path | None = None  # with it power is cut, too
    only: Sequence[str] = ()  # kinds of faults; all by default


@dataclass
class Outcome:
    """What one seed gave."""

    seed: int
    directory: Path  # kept when it failed, gone when not
    acknowledged: int = 0
    consumed: int = 0
    faults: int = 0
    silence_ms: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # what is wrong beside the history

    @property
    def is_clean(self) -> bool:
        """Nothing was wrong."""
        return not self.findings and not self.failures

    def line(self) -> str:
        """The one that is printed."""
        verdict = summary(self.findings) if self.findings or self.is_clean else "FAILED"
        text = (
            f"seed {self.seed}: {self.acknowledged} acknowledged, {self.consumed} consumed, {self.faults} faults, "
            f"longest silence {self.silence_ms / 1000:.1f} s, took {self.seconds:.0f} s: {verdict}"
        )
        if self.failures:
            text += f"; {self.failures[0].splitlines()[0][:300]}"
        return text if self.is_clean else f"{text}; see {self.directory}"


class Eyes:
    """Looks at the cluster as any client can."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self._admin = AdminClient(client_settings(cluster.bootstrap))

    def create_topic(self, replicas: int) -> None:
        """Make the topic as soon as all brokers are known; wait until all replicas of every partition are in sync."""
        wait_until(self.all_are_known, QUIET_SECONDS_MAX, "all brokers in the cluster's metadata")
        config = {"min.insync.replicas": str(replicas // 2 + 1)}
        futures = self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, config=config)])
        futures[TOPIC].result(QUIET_SECONDS_MAX)
        wait_until(self.is_in_sync, QUIET_SECONDS_MAX, "every replica in sync after the topic was made")

    def all_are_known(self) -> bool:
        """Whether clients are told of every broker."""
        with contextlib.suppress(KafkaException):
            return len(self._admin.list_topics(timeout=ADMIN_SECONDS).brokers) == len(self._cluster.nodes)
        return False

    def partitions(self) -> dict[int, PartitionMetadata]:
        """What the cluster says of them; nothing when it does not answer."""
        with contextlib.suppress(KafkaException):
            topic = self._admin.list_topics(TOPIC, timeout=ADMIN_SECONDS).topics[TOPIC]
            if topic.error is None:
                return dict(topic.partitions)
        return {}

    def is_in_sync(self) -> bool:
        """Whether each partition has a leader and all replicas in sync."""
        found = self.partitions().values()
        return len(found) == PARTITIONS and all(one.leader > 0 and len(one.isrs) == len(one.replicas) for one in found)

    def find(self, victim: Victim) -> int | None:
        """The broker that has a role now."""
        if victim.role == "leader":
            partition = self.partitions().get(victim.number)
            return partition.leader if partition else None
        for node in self._cluster.running():
            with contextlib.suppress(OSError, ValueError, KeyError):
                address = f"http://{self._cluster.address(node, 'http')}/healthcheck"
                with urllib.request.urlopen(address, timeout=1.0) as answer:
                    return int(json.load(answer)["leader_broker_id"])
        return None


def run_seed(seed: int, options: Options, work: Path, kind: type[ClusterProcesses] = ClusterProcesses) -> Outcome:
    """One cluster, one plan, one verdict; the directory goes when it is a good one."""
    directory = Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=work))
    outcome = Outcome(seed, directory)
    begin = time.monotonic()
    nodes = list(range(1, options.brokers + 1))
    cluster = kind(directory, make_network(options.flavour, nodes), nodes, options.settings, shim=options.shim)
    try:
        with cluster, cluster.network.clients():
            _run(cluster, options, outcome)
    except (AssertionError, OSError, KafkaException, RuntimeError) as error:
        outcome.failures.insert(0, f"{type(error).__name__}: {error}")
    outcome.failures += _tracebacks(cluster)
    outcome.seconds = time.monotonic() - begin
    if outcome.is_clean:
        shutil.rmtree(directory)
    else:
        (directory / "findings.txt").write_text(
            "\n".join([outcome.line(), *outcome.failures, *in_words(outcome.findings)]) + "\n", encoding="utf-8"
        )
    return outcome


def _run(cluster: ClusterProcesses, options: Options, outcome: Outcome) -> None:
    total_ms = int(options.seconds * 1000)
    plan = draw(
        outcome.seed,
        nodes=cluster.nodes,
        partitions=PARTITIONS,
        total_ms=total_ms,
        can_cut=cluster.network.can_cut,
        can_lose=cluster.shim is not None,
        only=options.only,
    )
    eyes = Eyes(cluster)
    eyes.create_topic(min(REPLICAS_MAX, options.brokers))
    load = Load(
        cluster.bootstrap, TOPIC, PARTITIONS, seed=outcome.seed, producers=PRODUCERS, consumers=CONSUMERS, rate=RATE
    )
    with _notes(cluster.directory, plan) as note:
        nemesis = Nemesis(cluster, eyes.find, note)
        begin_ms = now_ms()
        load.start()
        try:
            nemesis.run(plan)
            outcome.silence_ms = longest_silence_ms(load.history, begin_ms, now_ms())
            _settle(cluster, eyes, load, nemesis)
            load.close()
            outcome.findings = load.history.check()
        finally:
            load.close()
            outcome.failures += [f"{text} ({count} times)" for text, count in load.failures.items()]
            outcome.faults = nemesis.faults
            outcome.acknowledged, outcome.consumed = len(load.history.acknowledged), load.history.polled_count()
            outcome.silence_ms = outcome.silence_ms or longest_silence_ms(load.history, begin_ms, now_ms())
            for name, lines in as_lines(load.history).items():
                (cluster.directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _settle(cluster: ClusterProcesses, eyes: Eyes, load: Load, nemesis: Nemesis) -> None:
    """Healed: now all must come to rest, and the log be read as it is."""
    wait_until(eyes.is_in_sync, QUIET_SECONDS_MAX, "every replica in sync after the last fault")
    if not load.finish(QUIET_SECONDS_MAX):
        acknowledged = len(load.history.acknowledged)
        load.failures[f"of {load.sent} sent {acknowledged} were acknowledged, and not all were read in time"] += 1
    nemesis.look()
    load.history.final = read_all(cluster.bootstrap, TOPIC, PARTITIONS, QUIET_SECONDS_MAX)


@contextlib.contextmanager
def _notes(directory: Path, plan: Sequence[Step]) -> Iterator[Callable[[str], None]]:
    """A function that writes a line of what is being done, with the time."""
    with (directory / "faults.txt").open("w", encoding="utf-8") as file:
        for step in plan:
            file.write(f"plan: after {step.quiet_ms} ms, for {step.hold_ms} ms: {', '.join(map(str, step.faults))}\n")

        def note(text: str) -> None:
            file.write(f"{now_ms()} {text}\n")
            file.flush()

        yield note


def _tracebacks(cluster: ClusterProcesses) -> list[str]:
    """A broker that logs a traceback has met something that nobody thought of."""
    found = []
    for file in cluster.logs():
        count = file.read_bytes().count(b"Traceback (most recent call last)")
        if count:
            found.append(f"{count} tracebacks in {file.name}")
    return found


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.run", description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=20, metavar="N", help="how many seeds; %(default)s by default")
    add("--first", type=int, default=1, metavar="K", help="the first seed; %(default)s by default")
    add("--seconds", type=float, default=30.0, help="how long the faults of one seed last; %(default)s by default")
    add("--brokers", type=int, default=5, metavar="N", help="how many brokers; %(default)s by default")
    add("--flavour", choices=("auto", "netns", "loopback"), default="auto", help="loopback cannot be cut")
    add("--no-power", action="store_true", help="leave out the loss of what was not synced")
    add("--only", action="append", default=[], choices=KINDS, help="draw only faults of this kind; several times")
    add("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="a setting of the brokers")
    add("--dir", type=Path, help="where the clusters keep their data; a temporary directory by default")
    return parser


def _shim(work: Path) -> Path | None:
    try:
        return compile_shim(work)
    except NoShimError as error:
        print(f"nothing that was not synced is lost: {error}", file=sys.stderr)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; 0 when all were clean, 1 when not."""
    options = _arguments().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what runs in the background not hear the first
        signal.signal(number, signal.default_int_handler)
    if options.flavour == "auto" and (reason := why_no_namespaces()) is not None:
        print(f"no network namespaces, so nothing is cut: {reason}", file=sys.stderr)
    work = options.dir or Path(tempfile.mkdtemp(prefix="odradek-fault-"))
    work.mkdir(parents=True, exist_ok=True)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    shim = None if options.no_power else _shim(work)
    wanted = Options(options.seconds, options.brokers, options.flavour, settings, shim, options.only)
    failed: list[int] = []
    worst_ms = done = 0
    try:
        for seed in range(options.first, options.first + options.seeds):
            outcome = run_seed(seed, wanted, work)
            print(outcome.line(), flush=True)
            worst_ms, done = max(worst_ms, outcome.silence_ms), done + 1
            if not outcome.is_clean:
                failed.append(seed)
    except KeyboardInterrupt:
        print(f"stopped during seed {options.first + done}", file=sys.stderr)
    print(
        f"{done} seeds of {options.seconds:g} s with {options.brokers} brokers: "
        f"{f'{len(failed)} failed: {failed}' if failed else 'all clean'}; longest silence {worst_ms / 1000:.1f} s"
    )
    if shim is not None:
        shim.unlink()
    with contextlib.suppress(OSError):
        work.rmdir()  # only when nothing was kept
    return 1 if failed or done < options.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
