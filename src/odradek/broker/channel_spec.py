"""`!channel.json` of a channel that a broker serves: made when it is missing, and written anew when settings change.

The grid of time (window and slice) is part of every object's key, so what the store has stays; and a channel of the
same name with another id is somebody else's, which nothing is written into.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from odradek.objects.channels import create_channel, load_channel, save_channel
from odradek.objects.errors import ChannelMissingError, StoreError
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectStore

logger = logging.getLogger(__name__)


class OtherChannelError(StoreError):
    """The store has a channel of this name that is not the topic's."""


def settle_spec(store: ObjectStore, spec: ChannelSpec) -> ChannelSpec:
    """Have the store hold this spec, and give the one that holds; OtherChannelError if the name is taken there."""
    found = stored_spec(store, spec.name)
    if found is None:
        create_channel(store, spec)
        return spec
    if found.id != spec.id:
        raise OtherChannelError(
            f"{store.url} holds another channel {spec.name!r}, of the id {found.id}: delete that one there "
            f"(`odradek channel delete {spec.name} --store {store.url}`), or choose another name or store"
        )
    kept = replace(spec, window_ms=found.window_ms, slice_ms=found.slice_ms)
    if kept != spec:
        logger.warning(
            "channel %s keeps its window of %d ms and slices of %d ms: its objects are named by them",
            spec.name, kept.window_ms, kept.slice_ms,
        )  # fmt: skip
    if kept != found:
        save_channel(store, kept)
    return kept


def stored_spec(store: ObjectStore, name: str) -> ChannelSpec | None:
    """What the store knows of a channel; None if it has none of this name."""
    try:
        return load_channel(store, name)
    except ChannelMissingError:
        return None
