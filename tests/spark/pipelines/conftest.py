"""What the tests of pipelines share: commands in this process, with a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import Cli


@pytest.fixture
def spark_cli(
    spark: SparkSession,
    bootstrap: str,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """Commands that use the session of the tests and the module's broker."""
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("ODRADEK_BROKER", bootstrap)
    monkeypatch.chdir(tmp_path)
    return Cli(capfdbinary, monkeypatch, bootstrap)
