"""Runs the real writer of channels at a rate against a store in memory, and counts the requests that it makes."""

from __future__ import annotations

import os
import secrets
import time
from typing import NamedTuple

from odradek.cli.terminal import CommandError
from odradek.objects.channels import create_channel
from odradek.objects.cost import Use
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import open_store
from odradek.objects.writer import ChannelWriter

_TICK_SECONDS = 0.01
_WINDOW_MS = 60_000


class Simulated(NamedTuple):
    """What was counted."""

    objects_per_slice: float  # of one publisher
    told: str


def simulate(use: Use, run_seconds: int, *, fifo: bool) -> Simulated:
    """Publish at the rate of one publisher for so long."""
    if _WINDOW_MS % use.slice_ms:
        raise CommandError(
            f"--slice of {use.slice_ms} ms does not divide a minute: nothing can be simulated with it", 2
        )
    store = open_store(f"memory://simulation-{secrets.token_hex(8)}")
    spec = ChannelSpec(
        name="simulation", id=secrets.token_hex(16), slice_ms=use.slice_ms, slice_bytes=use.slice_bytes, fifo=fifo
    )
    create_channel(store, spec)
    before = store.requests.puts, store.requests.sent_bytes
    rate = use.rate / use.publishers
    started = time.monotonic()
    count = 0
    with ChannelWriter(store, spec) as writer:
        while (elapsed := time.monotonic() - started) < run_seconds:
            due = int(elapsed * rate)
            while count < due and time.monotonic() - started < run_seconds:
                writer.publish(os.urandom(use.size_bytes))
                count += 1
            time.sleep(_TICK_SECONDS)
    took = time.monotonic() - started
    puts, sent_bytes = store.requests.puts - before[0], store.requests.sent_bytes - before[1]
    slices = max(took * 1_000 / use.slice_ms, 1.0)
    reached = count / took
    told = (
        f"simulated {took:.1f} s of one publisher: {count:,} messages ({reached:,.0f} a second), {puts} PUTs, "
        f"{sent_bytes:,} bytes stored"
    )
    if reached < 0.9 * rate:
        told += f"; this machine does not reach the {rate:,.0f} a second that were asked for"
    return Simulated(puts / slices, told)
