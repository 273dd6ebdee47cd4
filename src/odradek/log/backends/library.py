"""Whether this machine has what a kind of segments needs. Asked before a topic is made, without importing it."""

from __future__ import annotations

from importlib.util import find_spec

NOT_INSTALLED = (
    "segment.backend=rocksdb needs the package rocksdict, which is not installed here: pip install 'odradek[rocksdb]', "
    "or choose segment.backend=file or sqlite"
)


def library_problem(kind: object) -> str | None:
    """Say what is missing for segments of this kind; None if nothing is."""
    return NOT_INSTALLED if kind == "rocksdb" and find_spec("rocksdict") is None else None
