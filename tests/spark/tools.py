"""What tests need that start a Spark of their own: a machine without Java, and programs that end when they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark

from odradek.spark.java import find_java

# Tests are over before the JVM's better compiler has paid for itself: without it they take half the processor time.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JAVA_OPTIONS = "JDK_JAVA_OPTIONS"  # the variable in which every JVM looks for options


def quick_spark_home(directory: Path) -> Path:
    """Make a SPARK_HOME without the zip of PySpark that Spark puts before the installed one in the path of its workers.

    What comes from a zip is compiled at every start, and each worker that starts late is one that Spark may give up.
    """
    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (directory / entry.name).symlink_to(entry)
    return directory


def quick_environment(spark_home: Path) -> dict[str, str]:
    """The environment of a program that starts a short-lived Spark on this machine."""
    own = {"SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1", JAVA_OPTIONS: SHORT_LIVED}
    return dict(os.environ) | own | {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}


def path_without_java(directory: Path) -> str:
    """Make a PATH with every command of this machine but Java."""
    directory.mkdir(parents=True, exist_ok=True)
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = directory / program.name
            link.unlink(missing_ok=True)
            if program.name not in ("java", "javac", "jshell"):
                link.symlink_to(program)
    return str(directory)


def environment_without_java(directory: Path) -> dict[str, str]:
    """Make the environment of a machine that has never seen Java or Spark; its cache is empty."""
    hidden = ("JAVA_", "SPARK_", "PYSPARK_", "ODRADEK_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return kept | {"PATH": path_without_java(directory / "path"), "XDG_CACHE_HOME": str(directory / "cache")}


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group, with all that it has started, as a power cut would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
