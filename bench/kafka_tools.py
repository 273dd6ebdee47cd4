"""Gets what the comparison needs into a cache directory, once: Apache Kafka's jars and two drivers in C.

Kafka comes from Maven Central by `mvn`. `rdkafka_performance` is librdkafka's own tool, built from the source that the
npm package node-rdkafka carries. `kafka_requests.c` beside this file is compiled with `cc`. Nothing of these is kept in
the project. A tool that cannot be had raises `MissingError`, which says how to get it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.kafka_process import BenchError, run_tool

KAFKA_VERSION = "4.3.0"
NODE_RDKAFKA_VERSION = "3.6.1"
LIBRDKAFKA_VERSION = "2.12.0"  # which that package carries
BUILD_SECONDS = 900
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""


class MissingError(Exception):
    """Something is not installed; the message says what, and how to install it."""


def default_cache() -> Path:
    """Where downloads and builds are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek-bench"


def need(*programs: str, hint: str) -> None:
    """Raise when a program is not on the path."""
    lacking = [program for program in programs if not shutil.which(program)]
    if lacking:
        raise MissingError(f"{' and '.join(lacking)} not found; {hint}")


def kafka_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """The directory with Kafka's jars; fetched at the first call (130 MB)."""
    jars = cache / f"kafka-{version}"
    if jars.is_dir():
        return jars
    need("java", "mvn", hint="on Debian: apt-get install default-jdk-headless maven")
    _say(f"fetching Apache Kafka {version} from Maven Central into {jars}")
    with tempfile.TemporaryDirectory(prefix="mvn-", dir=_made(cache)) as work:
        (Path(work) / "pom.xml").write_text(_POM.format(version=version), encoding="utf-8")
        _step(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"], Path(work))
        (Path(work) / "jars").rename(jars)
    return jars


def rdkafka_performance(cache: Path) -> Path:
    """The performance tool of librdkafka; built at the first call (about two minutes)."""
    tool = cache / f"rdkafka_performance-{NODE_RDKAFKA_VERSION}"
    if tool.is_file():
        return tool
    need("npm", hint="on Debian: apt-get install npm (librdkafka's source comes inside an npm package)")
    need("cc", "c++", "make", hint="on Debian: apt-get install build-essential")
    _say(f"building librdkafka's rdkafka_performance into {tool}")
    with tempfile.TemporaryDirectory(prefix="librdkafka-", dir=_made(cache)) as work:
        _step(["npm", "pack", "--silent", f"node-rdkafka@{NODE_RDKAFKA_VERSION}"], Path(work))
        with tarfile.open(next(Path(work).glob("*.tgz"))) as package:
            package.extractall(work, filter="data")
        source = Path(work) / "package" / "deps" / "librdkafka"
        without = [f"--disable-{part}" for part in ("ssl", "gssapi", "sasl", "curl", "zstd", "lz4-ext")]
        _step(["bash", "configure", *without], source)
        _step(["make", "-C", "src", "-j2", "librdkafka.a"], source)
        _step(["make", "-C", "examples", "rdkafka_performance"], source)
        (source / "examples" / "rdkafka_performance").rename(tool)
    return tool


def request_driver(cache: Path) -> Path:
    """The compiled `kafka_requests.c`; compiled again when the source is newer."""
    source = Path(__file__).with_name("kafka_requests.c")
    tool = _made(cache) / "kafka_requests"
    if not tool.is_file() or tool.stat().st_mtime < source.stat().st_mtime:
        need("cc", hint="on Debian: apt-get install build-essential")
        part = tool.with_suffix(".part")
        _step(["cc", "-O2", "-Wall", "-o", str(part), str(source)], cache)
        part.rename(tool)
    return tool


def version_of(command: Sequence[str]) -> str:
    """The first line that a program prints of itself."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return next((line.strip() for line in done.stdout.splitlines() if line.strip()), "unknown")


def _made(cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _step(command: Sequence[str], directory: Path) -> None:
    try:
        run_tool(command, BUILD_SECONDS, directory)
    except BenchError as error:
        raise MissingError(f"`{' '.join(command[:3])}` failed: {error}") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
