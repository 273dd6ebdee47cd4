"""A Spark session that works where it is made: Java, the Python of the workers and the source `odradek` are set right.

It changes nothing that was named by the caller, by `spark-submit` or in Spark's own configuration files; what it adds
for a session on one machine is in LOCAL_DEFAULTS and `_local_conf`. It starts no cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek.spark.errors import SparkError
from odradek.spark.java import find_java
from odradek.spark.source import register

LOOPBACK = "127.0.0.1"
IMPORT_SECONDS_MAX = 60.0

# Any of these says that somebody has configured Spark already: its master and defaults are theirs.
CONFIGURED_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME")

JVM_OPTIONS = "spark.driver.extraJavaOptions"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

DEFAULTS = {
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    app_name: str = "odradek", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Make a Spark session that knows the source `odradek`, or return the one that is running, as Spark does.

    Without a master, where nobody has configured Spark, it runs on all cores of this machine. What `conf` says wins.
    A thread that starts streams of its own calls it too.
    """
    conf = dict(conf or {})
    running = SparkContext._active_spark_context
    spark = _joined(running, conf) if running is not None else _made(app_name, master, conf)
    # Spark finds the source by itself, unless some other pyspark_* package fails to import: then it finds none.
    register(spark)
    _make_active(spark)
    return spark


def _made(app_name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    master = master or conf.get("spark.master")
    configured = any(name in os.environ for name in CONFIGURED_ELSEWHERE)
    if master is None and not configured:
        master = "local[*]"
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _set_environment(is_local=_is_local(master))
    defaults = _local_conf(master, conf) if master is not None and _is_local(master) else DEFAULTS
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in (defaults | dict(conf)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _joined(running: SparkContext, conf: Mapping[str, str]) -> SparkSession:
    """Take the session that is running, if its workers can load the source."""
    if _is_local(running.master):
        _check_that_workers_see_odradek(running.pythonExec)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _make_active(spark: SparkSession) -> None:
    """Spark looks for a sink in Python in the session that is active in the thread, and in a new thread none is."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def _set_environment(*, is_local: bool) -> None:
    """Set what the JVM and the workers inherit; what is set already stays."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        # Without it Spark asks for the name of this machine, which may not resolve, or resolve to a door that is shut.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _is_local(master: str | None) -> bool:
    return master is not None and (master == "local" or master.startswith("local["))


def _local_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    defaults = DEFAULTS | LOCAL_DEFAULTS
    # Spark's 200 are for a cluster: on one machine a task for each core is enough.
    defaults["spark.sql.shuffle.partitions"] = str(cores_of(master))
    if JVM_OPTIONS not in conf:
        # Quieter than spark.log.level, which counts only from the moment when the context is there.
        defaults[JVM_OPTIONS] = log_option()
        del defaults["spark.log.level"]
    return defaults


def log_option() -> str:
    """The option that makes Spark's JVM log errors only, for those who set JVM_OPTIONS themselves."""
    return f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"


def cores_of(master: str) -> int:
    """Count the cores of a local master: `local`, `local[4]`, `local[*]`, `local[*, 3]`."""
    named = re.match(r"local\[\s*(\*|\d+)", master)
    if named is None:
        return 1
    return len(os.sched_getaffinity(0)) if named[1] == "*" else int(named[1])


def _check_that_workers_see_odradek(python: str) -> None:
    if Path(python) == Path(sys.executable):
        return
    try:
        subprocess.run(
            [python, "-c", "import odradek.spark.source"], check=True, capture_output=True, timeout=IMPORT_SECONDS_MAX
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkError(
            f"a Spark session is running whose workers use {python!r}, where odradek[spark] cannot be imported. "
            f"Stop that session first (spark.stop()), or start it with PYSPARK_PYTHON={sys.executable}"
        ) from error
