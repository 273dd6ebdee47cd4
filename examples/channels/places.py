"""Where the examples keep their channels: the store that is named on the command line, or a directory of their own."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.objects import ChannelSpec, ObjectStore, create_channel, delete_channel, open_store


@contextmanager
def store_of(description: str) -> Iterator[ObjectStore]:
    """Open the store that `--store URL` names; without one, a directory that is gone afterwards."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--store", metavar="URL", help="s3://..., gs://..., az://... or file:///... (default: a directory)"
    )
    url = parser.parse_args().store
    if url is not None:
        yield open_store(url)
        return
    with tempfile.TemporaryDirectory() as directory:
        yield open_store(Path(directory).as_uri())


@contextmanager
def channel_in(store: ObjectStore, name: str, *, fifo: bool = False) -> Iterator[ChannelSpec]:
    """Make a channel for the length of an example; its slices are short, so that nobody waits."""
    spec = ChannelSpec(
        name=f"{name}-{secrets.token_hex(4)}", id=secrets.token_hex(16), slice_ms=200, grace_ms=2_000, fifo=fifo
    )
    create_channel(store, spec)
    try:
        yield spec
    finally:
        delete_channel(store, spec.name)
