"""librdkafka's own tests, those that need a broker.

Their C and C++ sources come inside an npm package. One process runs the tests of one number. Left out: tests that bring
their own mock cluster, and the share consumers' (KIP-932), which are known by their asking for Kafka 4.2.
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from tests.compat.outcome import RED, Outcome, Result
from tests.compat.suite import Order, do, need, run_bounded

PACKAGE, PACKAGE_VERSION = "@confluentinc/kafka-javascript", "1.10.1"  # brings librdkafka 2.15.1
BUILD_JOBS = 2
TIMEOUT_MULTIPLIER = 2  # as the suite's own driver sets it
EMPTY_SECONDS = 0.005  # nothing that speaks to a broker is done so soon

# Begun first, as these take minutes each. The suite's quick mode is no help: it steps over so many parts of the tests
# that some do nothing at all.
LONGEST = ("0113", "0081", "0077")

# What one broker without accounts cannot serve; the suite does not ask before it tries.
OUT_OF_REACH = {
    "0098_consumer_txn": "wants topics with three replicas, and a Java program",
    "0101_fetch_from_follower": "wants topics with three replicas, in two racks",
    "0103_transactions": "wants topics with three replicas",
    "0107_topic_recreate": "wants topics with three replicas",
    "0111_delay_create_topics": "wants topics with three replicas",
}

# A row of the suite's table: _TEST(name, flags and whatever else, in brackets at most two deep).
_ROW = re.compile(r"_TEST\((?P<name>\w+)\s*,(?P<rest>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_NOT_OURS = re.compile(r"\b(TEST_F_LOCAL|TEST_F_MANUAL|TEST_F_KNOWN_ISSUE)\b|TEST_BRKVER\(4, 2")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BEGUN = re.compile(r"= Running test (?P<name>\w+) =")
_ENDED = re.compile(r"/ *(?P<seconds>[\d.]+)s\] =+ Test (?P<name>\w+) (?P<state>PASSED|SKIPPED|FAILED) =")
_SKIPPED = re.compile(r"^\[(?P<name>\d{4}_\w+) .*SKIPPING TEST: (?P<reason>.*)$", re.MULTILINE)
_FAILURE = re.compile(
    r'^### Test "(?P<name>\d{4}_\w+)(?: \((?P<part>[^"]*)\))?" failed at (?P<place>\S+) at .*###\n(?P<reason>.*)$',
    re.MULTILINE,
)
_STATES = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED, "FAILED": Outcome.FAILED}

_TOOL = """#!/bin/sh
# Stands in for the program of this name in a Kafka distribution.
PYTHONPATH='{root}' exec '{python}' -m tests.compat.kafka_tools {tool} "$@"
"""


@dataclass(frozen=True, slots=True)
class Test:
    """A row of the suite's table."""

    name: str
    scenario: str

    @property
    def number(self) -> str:
        """The suite picks tests by number; several tests may share one."""
        return self.name.partition("_")[0]


def read_table(source: str) -> list[Test]:
    """The tests that need a broker, from the text of the suite's test.c."""
    table = source[source.index("struct test tests[] = {") :]
    tests = []
    for row in _ROW.finditer(table[: table.index("{NULL}}")]):
        name, rest = row["name"], row["rest"]
        if not _NOT_OURS.search(rest) and not name.endswith("_mock"):
            tests.append(Test(name, "noautocreate" if '"noautocreate"' in rest else "default"))
    return tests


class Librdkafka:
    """The suite."""

    minutes_max = 20.0
    scenarios: Mapping[str, Mapping[str, str]] = {
        "default": {"num.partitions": "4", "auto.create.topics.enable": "true"},
        "noautocreate": {"num.partitions": "4", "auto.create.topics.enable": "false"},
    }

    def __init__(self, group_protocol: str = "classic") -> None:
        self.name = "librdkafka" if group_protocol == "classic" else f"librdkafka-{group_protocol}"
        self._group_protocol = group_protocol
        self._home = Path()

    @property
    def _source(self) -> Path:
        return self._home / PACKAGE_VERSION / "package" / "deps" / "librdkafka"

    def prepare(self, cache: Path) -> None:
        """Fetch the sources and build the library and its test program."""
        self._home = cache / "librdkafka"
        self._write_tools()
        ready = self._home / PACKAGE_VERSION / ".ready"
        if ready.exists():
            return
        log = self._home / "prepare.log"
        npm, make = need("npm", "npm"), need("make", "build-essential")
        need("g++", "build-essential")
        do([npm, "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}"], self._home, log)
        archive = self._home / f"{PACKAGE.lstrip('@').replace('/', '-')}-{PACKAGE_VERSION}.tgz"
        with tarfile.open(archive) as tar:
            tar.extractall(self._home / PACKAGE_VERSION, filter="data")
        do(["./configure", "--disable-gssapi", "--disable-curl"], self._source, log)
        do(["nice", make, f"-j{BUILD_JOBS}", "libs"], self._source, log)
        do(["nice", make, f"-j{BUILD_JOBS}", "-C", "tests", "build"], self._source, log)
        ready.touch()

    def _write_tools(self) -> None:
        tools = self._home / "tools" / "bin"
        tools.mkdir(parents=True, exist_ok=True)
        for tool in ("topics", "acls"):
            script = tools / f"kafka-{tool}.sh"
            script.write_text(
                _TOOL.format(root=Path(__file__).parents[2], python=sys.executable, tool=tool), encoding="utf-8"
            )
            script.chmod(0o755)

    def run(self, order: Order) -> Iterator[Result]:
        """Run the tests of a scenario, number by number, `order.jobs` of them at a time."""
        table = read_table((self._source / "tests" / "test.c").read_text(encoding="utf-8"))
        numbers: dict[str, list[str]] = {}
        for test in table:
            if test.scenario != order.scenario or not order.wants(test.name):
                continue
            if test.name in OUT_OF_REACH:
                yield Result(test.name, Outcome.SKIPPED, 0.0, OUT_OF_REACH[test.name])
            else:
                numbers.setdefault(test.number, []).append(test.name)
        # 0053 looks for a file beside its sources.
        (order.logs / "src").symlink_to(self._source / "src")
        with ThreadPoolExecutor(order.jobs) as pool:
            in_turn = sorted(numbers, key=lambda number: (number not in LONGEST, number))
            runs = [pool.submit(self._run_number, number, numbers[number], order) for number in in_turn]
            for run in as_completed(runs):
                yield from run.result()

    def _run_number(self, number: str, names: Sequence[str], order: Order) -> list[Result]:
        where = order.logs / number
        where.mkdir(parents=True, exist_ok=True)
        seconds_max = min(order.test_seconds_max, order.deadline_seconds())
        if seconds_max <= 0:
            return [Result(name, Outcome.NOT_RUN, 0.0, "the suite's bound on time was reached") for name in names]
        configuration = where / "test.conf"
        configuration.write_text(
            f"bootstrap.servers={order.broker}\ntest.timeout.multiplier={TIMEOUT_MULTIPLIER}\n", encoding="utf-8"
        )
        libraries = f"{self._source / 'src'}:{self._source / 'src-cpp'}"
        environment = {
            "TESTS": number,
            "TEST_SCENARIO": order.scenario,
            "TEST_KAFKA_VERSION": f"{order.kafka_version}.0",
            "TEST_CONSUMER_GROUP_PROTOCOL": self._group_protocol,
            "RDKAFKA_TEST_CONF": str(configuration),
            "KAFKA_PATH": str(self._home / "tools"),
            "BROKERS": order.broker,
            "LD_LIBRARY_PATH": libraries,
        }
        command = [str(self._source / "tests" / "test-runner"), "-p1", "-L"]
        log = where / "test.log"
        code = run_bounded(command, where, log, seconds_max, environment)
        text = _COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
        return [replace(result, log=log) for result in read_log(text, names, code)]


def read_log(text: str, names: Sequence[str], code: int | None) -> list[Result]:
    """What became of the tests of one process, from its log without colours; code None: it was ended at the bound."""
    begun = {match["name"] for match in _BEGUN.finditer(text)}
    ended = {match["name"]: match for match in _ENDED.finditer(text)}
    skipped = {match["name"]: match["reason"] for match in _SKIPPED.finditer(text)}
    failures: dict[str, str] = {}
    for match in _FAILURE.finditer(text):
        part = f"{match['part']}: " if match["part"] else ""
        failures.setdefault(match["name"], f"{part}{match['place']} {match['reason']}")
    results = []
    for name in names:
        end = ended.get(name)
        seconds = float(end["seconds"]) if end else 0.0
        if name in failures:
            outcome = Outcome.TIMED_OUT if "timed out (timeout set to" in failures[name] else Outcome.FAILED
            results.append(Result(name, outcome, seconds, failures[name]))
        elif end is not None:
            outcome = _STATES[end["state"]]
            if outcome is Outcome.PASSED and seconds < EMPTY_SECONDS:
                outcome = Outcome.EMPTY
            results.append(Result(name, outcome, seconds, skipped.get(name, "")))
        elif name in begun:
            outcome = Outcome.TIMED_OUT if code is None else Outcome.FAILED
            results.append(Result(name, outcome, seconds, f"it did not end; the program ended with {code}"))
        elif name in skipped:
            results.append(Result(name, Outcome.SKIPPED, 0.0, skipped[name]))
        else:
            results.append(Result(name, Outcome.NOT_RUN, 0.0, f"the program ended with {code} before it"))
    if code and not any(result.outcome in RED for result in results):
        # Threads that did not stop, a broken assertion or a signal after the last test: none of them is green.
        return [replace(result, outcome=Outcome.FAILED, reason=f"the program ended with {code}") for result in results]
    return results
