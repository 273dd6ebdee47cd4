"""kafka-python's integration tests, of the version that is installed here.

They come from its source package on PyPI, which leaves out two small files that they import; those are supplied here.
Its SASL and SSL tests start brokers of their own and are not asked for.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from tests.compat.outcome import Outcome, Result
from tests.compat.suite import CompatError, Order, do, run_bounded

TEST_SECONDS_MAX = 60.0  # the longest takes two seconds; several may hang within the suite's bound
GRACE_SECONDS = 20.0  # for pytest to write its report when the suite's bound is reached
MODULES = ("test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py")
# The codecs' packages: without them the suite skips its compression tests.
PACKAGES = ("pytest>=8,<10", "pytest-timeout", "lz4", "python-snappy", "zstandard", "crc32c")

# The fixture of an external broker makes one of these and never asks it for anything.
SERVICE = '''"""Stands in for the module that the source package leaves out; the broker is started by others."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    pass
'''


class KafkaPython:
    """The suite."""

    name = "kafka-python"
    minutes_max = 10.0
    scenarios: Mapping[str, Mapping[str, str]] = {
        # test_create_partitions puts partitions on broker 0; test_group has a session of 3 s.
        "default": {"broker.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000"}
    }

    def __init__(self) -> None:
        self._version = version("kafka-python")
        self._home = Path()

    @property
    def _source(self) -> Path:
        return self._home / f"kafka_python-{self._version}"

    @property
    def _python(self) -> Path:
        return self._home / "venv" / "bin" / "python"

    def prepare(self, cache: Path) -> None:
        """Fetch the source package, and make an environment with what its tests import."""
        self._home = cache / self.name
        self._home.mkdir(parents=True, exist_ok=True)
        log = self._home / "prepare.log"
        ready = self._source / ".ready"
        if ready.exists():
            return
        archive = self._home / f"kafka_python-{self._version}.tar.gz"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        do(
            [*pip, "download", "--no-deps", "--no-binary", "kafka-python", f"kafka-python=={self._version}"],
            self._home,
            log,
        )
        if not archive.exists():
            raise CompatError(f"pip did not bring {archive.name}; see {log}")
        with tarfile.open(archive) as tar:
            tar.extractall(self._home, filter="data")
        # Without it, Python's own `test` package would be found first.
        (self._source / "test" / "__init__.py").touch()
        (self._source / "test" / "service.py").write_text(SERVICE, encoding="utf-8")
        do([sys.executable, "-m", "venv", str(self._home / "venv")], self._home, log)
        do([str(self._python), "-m", "pip", "install", "--quiet", *PACKAGES], self._home, log)
        ready.touch()

    def run(self, order: Order) -> Iterator[Result]:
        """Run all tests in one pytest, as the suite's modules share a broker fixture."""
        log, report = order.logs / "pytest.log", order.logs / "pytest.xml"
        command, environment = self._command(order, report), self._environment(order)
        code = run_bounded(command, self._source, log, order.deadline_seconds(), environment, GRACE_SECONDS)
        if report.exists():
            yield from read_report(report, log)
        elif code is None:
            raise CompatError(f"the suite did not end within its bound; see {log}")
        else:
            raise CompatError(f"pytest ended with {code} and wrote no report; see {log}")

    def _command(self, order: Order, report: Path) -> list[str]:
        tests = [f"test/integration/{module}" for module in MODULES]
        if order.names:
            parts = (name.partition("::") for name in order.names)
            tests = [f"test/integration/{module}.py::{test}" for module, _, test in parts]
        command = [str(self._python), "-m", "pytest", *tests, "-q", "--tb=short", f"--junit-xml={report}"]
        # The suite's own options end the whole run at the first test that hangs.
        command += ["-p", "no:cacheprovider", "-o", "addopts=", "-o", "log_level=INFO", "-o", "junit_logging=no"]
        command += [f"--timeout={min(order.test_seconds_max, TEST_SECONDS_MAX):g}", "--timeout-method=signal"]
        return [*command, "-k", " or ".join(order.patterns)] if order.patterns and not order.names else command

    def _environment(self, order: Order) -> dict[str, str]:
        return {
            "KAFKA_URI": f"kafka://{order.broker}",
            "KAFKA_VERSION": order.kafka_version,
            "KAFKA_ROOT": str(self._home),  # has to be a directory; nothing is run from it
            "PYTHONPATH": "",
        }


def read_report(report: Path, log: Path) -> Iterator[Result]:
    """The results in pytest's JUnit file."""
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
        seconds = float(case.get("time", "0"))
        skipped = case.find("skipped")
        troubles = [child for child in case if child.tag in ("failure", "error")]
        if troubles:
            message = troubles[0].get("message", "")
            outcome = Outcome.TIMED_OUT if message.startswith("Failed: Timeout") else Outcome.FAILED
            yield Result(name, outcome, seconds, message, log)
        elif skipped is not None:
            yield Result(name, Outcome.SKIPPED, seconds, skipped.get("message", ""), log)
        else:
            yield Result(name, Outcome.PASSED, seconds, "", log)
