"""compose.yaml and the Dockerfile, as far as a machine without Docker can tell."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from odradek.config import load_settings
from tests.architecture import ROOT

NUMBERS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    yaml = importlib.import_module("yaml")
    content = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert set(content["volumes"]) == set(content["services"]) == {f"broker-{number}" for number in NUMBERS}
    found: dict[str, Any] = content["services"]
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_each_broker_has_settings_that_a_broker_takes(services: dict[str, Any], number: int) -> None:
    service = services[f"broker-{number}"]
    environment = {
        name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(value)) for name, value in service["environment"].items()
    }
    settings = load_settings(None, {**dockerfile_environment(), **environment}, {})
    kafka = 19091 + number
    assert settings.broker_id == number
    assert settings.address("advertised.kafka") == (f"broker-{number}", kafka)
    assert settings.voters == {each: (f"broker-{each}", 8080) for each in NUMBERS}
    assert str(settings.directory) == "/data"
    assert service["ports"] == [f"127.0.0.1:{8000 + number}:8080", f"127.0.0.1:{kafka}:{kafka}"]
    assert service["volumes"] == [f"broker-{number}:/data"]
    http, listened = settings.address("http"), settings.address("kafka")
    assert http is not None and http[1] == 8080
    assert listened is not None and listened[1] == kafka


def dockerfile_environment() -> dict[str, str]:
    (line,) = re.findall(r"^ENV (.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    return dict(each.split("=", 1) for each in line.split())


def test_the_health_check_asks_the_brokers_own_door(services: dict[str, Any]) -> None:
    for service in services.values():
        kind, python, flag, code = service["healthcheck"]["test"]
        assert (kind, python, flag) == ("CMD", "python", "-c")
        compile(code, "healthcheck", "exec")
        assert "127.0.0.1:8080/healthcheck" in code


def test_all_that_is_copied_into_the_image_is_there_and_not_ignored() -> None:
    kept = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    copied: set[str] = set()
    for names in re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE):
        copied |= set(names.split())
    assert copied == kept == {"pyproject.toml", "README.md", "LICENSE", "src"}
    assert all((ROOT / name).exists() for name in copied)
