"""What may not be changed of a channel: that it is one, and the grid of time by which its objects are named. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.settings_table import Value

_GRID = ("channel.window.ms", "channel.slice.ms")


def grid_problem(name: str, was: Mapping[str, Value], values: Mapping[str, Value]) -> str | None:
    """Say why a topic with the settings `was` cannot have these; None if it can."""
    if not was["channel.store"]:
        return None
    if not values["channel.store"]:
        return f"{name} is a channel, and channel.store cannot be taken away from it: its messages are kept there"
    for setting in _GRID:
        if was[setting] != values[setting]:
            return (
                f"{setting} of the channel {name} stays {was[setting]}: its objects are named by it; make another "
                "channel for another grid"
            )
    return None
