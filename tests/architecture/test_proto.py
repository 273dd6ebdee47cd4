"""The gRPC stubs and their reference are what the .proto files say; `make proto` renews both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.grpc_reference import ProtoError, parse, render_grpc
from tests.architecture import ROOT, SOURCE, relative

REFERENCE = ROOT / "docs" / "reference" / "grpc.md"
STUBS = [
    f"{service}_{kind}" for service in ("mykafka", "eeylops") for kind in ("pb2.py", "pb2.pyi", "pb2_grpc.py")
]  # fmt: skip


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stubs as the generator writes them now."""
    out = tmp_path_factory.mktemp("stubs")
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    files = [f"odradek/proto/{service}.proto" for service in ("mykafka", "eeylops")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "odradek/proto=proto", *outputs, *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return out / "odradek" / "proto"


@pytest.mark.parametrize("name", STUBS)
def test_the_committed_stubs_are_current(generated: Path, name: str) -> None:
    committed = SOURCE / "proto" / name
    assert committed.read_text(encoding="utf-8") == (generated / name).read_text(encoding="utf-8"), (
        f"{relative(committed)} is not what the .proto says: run `make proto`"
    )


def test_every_proto_file_has_stubs(generated: Path) -> None:
    protos = sorted(path.stem for path in (ROOT / "proto").glob("*.proto"))
    assert protos == sorted({name.split("_")[0] for name in STUBS})
    assert sorted(path.name for path in (SOURCE / "proto").glob("*_pb2*.py*")) == sorted(STUBS)


def test_the_committed_reference_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_grpc(), (
        f"{relative(REFERENCE)} is not what the .proto files say: run `make proto`"
    )


def test_the_reference_names_every_call_message_and_code() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    for row in (
        "| `SendMessage` | SendMessageRequest | SendMessageResponse | Store a message.",
        "| `Publish` | stream ProduceRequest | ProduceResponse |",
        "| `Subscribe` | ConsumeRequest | stream ConsumeResponse |",
        "| 9 | `NO_MESSAGE` |",
        "| 11 | `KErrTimeout` |",
        "| 3 | `values` | repeated bytes |",
        "### Void\n\nNothing.\n",
    ):
        assert row in page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("// What.\nenum E {\n  A = 0;\n}", "line 3 has no comment above it: A = 0;"),
        ("message M {}", "line 1 has no comment above it"),
        ("// What.\nmessage M {\n  // It.\n  map<int32, int32> it = 1;\n}", "line 4 is no entry of a message"),
        ("// What.\nimport \"x\";", "line 2 is not understood"),
    ],
)  # fmt: skip
def test_what_the_page_cannot_show_is_named(text: str, problem: str) -> None:
    with pytest.raises(ProtoError, match=problem):
        parse(text)
