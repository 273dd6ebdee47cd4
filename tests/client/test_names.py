"""What `odradek.client` offers by name is there, and nothing of it is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import odradek.client


@pytest.mark.parametrize("name", odradek.client.__all__)
def test_every_name_that_is_offered_is_there(name: str) -> None:
    assert getattr(odradek.client, name).__name__ == name or name in ("Start", "Header")
    assert name in dir(odradek.client)


def test_a_name_that_is_not_offered_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match=r"module 'odradek\.client' has no attribute 'Nothing'"):
        _ = odradek.client.Nothing


def test_one_part_is_imported_without_the_others() -> None:
    program = "import sys, odradek.client.http; print('odradek.client.producer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
