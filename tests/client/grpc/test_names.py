"""What `odradek.client.grpc` offers by name is there, and gRPC is imported only when it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import odradek.client.grpc as clients
from odradek.client.grpc import Code, EeylopsError, ErrorCodes, MyKafkaError
from odradek.proto import eeylops_pb2, mykafka_pb2


@pytest.mark.parametrize("name", clients.__all__)
def test_every_name_that_is_offered_is_there(name: str) -> None:
    assert getattr(clients, name).__name__ == name
    assert name in dir(clients)


def test_a_name_that_is_not_offered_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match=r"module 'odradek\.client\.grpc' has no attribute 'Nothing'"):
        _ = clients.Nothing


@pytest.mark.parametrize(
    "imported", ["odradek.client", "odradek.client.grpc", "odradek.cli.ctl", "odradek.cli.grpc_consume"]
)
def test_grpc_is_imported_by_the_first_client_and_not_before(imported: str) -> None:
    program = (
        f"import sys, {imported}\nfrom odradek.client.grpc import MyKafkaError, Code\n"
        "print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False False"


def test_the_codes_are_those_of_the_proto_files() -> None:
    assert dict(mykafka_pb2.Code.items()) == {code.name: code.value for code in Code}
    theirs = {name.lower(): number for name, number in eeylops_pb2.ErrorCodes.items()}
    ours = {("kerr" if code else "k") + code.name.replace("_", "").lower(): code.value for code in ErrorCodes}
    assert theirs == ours


def test_a_code_that_is_newer_than_the_client_stays_a_number() -> None:
    assert (MyKafkaError(99, "what").code, str(MyKafkaError(99, "what."))) == (99, "what (code 99)")
    assert str(EeylopsError(2, "ask 3", 3)) == "ask 3 (NOT_LEADER)"
