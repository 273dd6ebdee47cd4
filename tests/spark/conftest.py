"""What the tests of Spark share: one session for all of them, a broker a module, and records to read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek.client.errors import UnknownTopicError
from odradek.client.sync import Client
from odradek.records.compression import Codec
from odradek.records.record import NewRecord
from odradek.spark.sessions import JVM_OPTIONS, log_option, session
from odradek.testing import EmbeddedBroker, broker
from tests.spark.tools import SHORT_LIVED, quick_spark_home

HERE = Path(__file__).parent

# py4j and Spark's workers leave sockets to the garbage collector; that is theirs to put right.
LENIENCE = ("ignore::ResourceWarning", r"ignore::DeprecationWarning:pyspark\.", r"ignore::DeprecationWarning:py4j\.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): tests that run in the same worker, one after the other")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the shared session run in one worker; one that starts a Spark of its own names the group itself."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("xdist_group") is not None:
            for rule in LENIENCE:
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SPARK_HOME whose workers start quickly."""
    return quick_spark_home(tmp_path_factory.mktemp("home") / "spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_home: Path) -> Iterator[SparkSession]:
    """The session of the whole run: two cores, two shuffle partitions, errors only."""
    directory = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        JVM_OPTIONS: f"{log_option()} {SHORT_LIVED}",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_HOME", str(spark_home))
        made = session("odradek tests", master="local[2]", conf=conf)
    try:
        yield made
    finally:
        made.stop()
        end_java()


def end_java() -> None:
    """End the JVM that pyspark keeps for the next session of this process."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    """A broker for the tests of one module."""
    with broker() as embedded:
        yield embedded


@pytest.fixture(scope="module")
def bootstrap(server: EmbeddedBroker) -> str:
    """Where the module's broker is."""
    return server.bootstrap_servers


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names for topics, groups and tables that nobody has used."""
    return lambda: f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    """A client of the module's broker."""
    with Client(bootstrap) as connected:
        yield connected


class Produce(Protocol):
    """Send records and return their number when all are acknowledged; the topic is made on first use.

    A record is a value, or a NewRecord where key, headers or time matter; text is UTF-8.
    """

    def __call__(
        self,
        topic: str,
        records: Iterable[NewRecord | bytes | str | None],
        *,
        partition: int | None = None,
        partitions: int = 1,
        codec: Codec = Codec.NONE,
    ) -> int: ...


@pytest.fixture
def produce(client: Client) -> Produce:
    def send(
        topic: str,
        records: Iterable[NewRecord | bytes | str | None],
        *,
        partition: int | None = None,
        partitions: int = 1,
        codec: Codec = Codec.NONE,
    ) -> int:
        try:
            client.admin.describe_topic(topic)
        except UnknownTopicError:
            client.admin.create_topic(topic, partitions)
        with client.producer(codec=codec) as producer:
            return producer.send_many(topic, [as_record(record) for record in records], partition=partition)

    return send


def as_record(given: NewRecord | bytes | str | None) -> NewRecord:
    """Make a record of a bare value."""
    if isinstance(given, NewRecord):
        return given
    return NewRecord(given.encode() if isinstance(given, str) else given)
