"""Gets Spark's own Kafka connector into the cache directory, once, by Maven.

A connector of PySpark's own version may not be published (4.3.0 was not): the newest that is runs on it. Its four jars
are named one by one, because the connector's own list of dependencies asks other hosts than Maven Central.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark

from bench.kafka_process import BenchError, run_tool
from bench.kafka_tools import MissingError, need

CONNECTOR_VERSION = "4.2.0"
KAFKA_CLIENTS_VERSION = "3.9.2"  # as that connector has it
STEP_SECONDS = 300
_CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS_VERSION),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_TOKENS = ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR_VERSION)
_STAND_IN = "tokens-stand-in.jar"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


def connector_jars(cache: Path) -> list[Path]:
    """The jars of the connector; fetched at the first call (10 MB)."""
    jars = cache / f"spark-kafka-{CONNECTOR_VERSION}"
    if not jars.is_dir():
        need("java", "mvn", hint="on Debian: apt-get install default-jdk-headless maven")
        print(f"fetching Spark's Kafka connector {CONNECTOR_VERSION} into {jars}", file=sys.stderr, flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mvn-", dir=cache) as work:
            fetched = Path(work) / "jars"
            try:
                _fetch(_CONNECTOR, Path(work))
                _tokens(Path(work))
            except BenchError as error:
                raise MissingError(f"the connector cannot be had: {error}") from None
            fetched.rename(jars)
    return sorted(jars.glob("*.jar"))


def describe(jars: list[Path]) -> str:
    """What is compared with, and what about it is not as published."""
    text = f"spark-sql-kafka-0-10 {CONNECTOR_VERSION} with kafka-clients {KAFKA_CLIENTS_VERSION}"
    if pyspark.__version__ != CONNECTOR_VERSION:
        text += f", on PySpark {pyspark.__version__} as ours (the connector's newest release is {CONNECTOR_VERSION})"
    if any(jar.name == _STAND_IN for jar in jars):
        text += "; Maven did not give its token provider: bench/spark_tokens.scala stands in"
    return text


def _fetch(artifacts: tuple[tuple[str, str, str], ...], work: Path) -> None:
    dependencies = "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
    (work / "pom.xml").write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
    run_tool(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"], STEP_SECONDS, work)


def _tokens(work: Path) -> None:
    """The token provider, or what stands in for it, compiled by the Scala compiler that comes with PySpark."""
    try:
        _fetch((_TOKENS,), work)
    except BenchError:
        source = Path(__file__).with_name("spark_tokens.scala")
        spark = Path(pyspark.__file__).parent / "jars"
        compiler = ["java", "-cp", f"{spark}/*", "scala.tools.nsc.Main", "-usejavacp", "-nowarn"]
        run_tool([*compiler, "-d", str(work / "jars" / _STAND_IN), str(source)], STEP_SECONDS)
