"""Shows the brokers of `odradek cluster up` on standard error: on a terminal a table, else plain lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from odradek.cli.cluster_supervisor import NOBODY, Member, leader_of
from odradek.cli.listing import tell
from odradek.cli.terminal import escape, is_terminal

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

FRAME_SECONDS = 0.25
_STYLES = {
    "up": "green",
    "starting": "yellow",
    "silent": "yellow",
    "down": "red",
    "stopping": "yellow",
    "stopped": "dim",
}


@asynccontextmanager
async def shown(members: Sequence[Member]) -> AsyncIterator[Callable[[str], None]]:
    """Show the brokers while the block runs; yields what tells an event."""
    if not is_terminal(sys.stderr):
        for member in members:
            spec = member.spec
            tell(f"broker {spec.id}: kafka={spec.kafka} http={spec.http} grpc={spec.grpc} data={spec.data}")
        yield tell
        return
    from rich.console import Console  # noqa: PLC0415 (it takes longer to import than most commands take to run)
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(stderr=True)
    with Live(
        _frame(members), console=console, auto_refresh=False, transient=True, redirect_stdout=is_terminal()
    ) as live:
        drawing = asyncio.get_running_loop().create_task(_draw(live, members))
        try:
            yield lambda text: console.print(Text(escape(text)))
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing


async def _draw(live: Live, members: Sequence[Member]) -> None:
    while True:
        live.update(_frame(members), refresh=True)
        await asyncio.sleep(FRAME_SECONDS)


def _frame(members: Sequence[Member]) -> Group:
    from rich import box  # noqa: PLC0415
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("broker", "kafka", "http", "grpc", "state", "process", "restarts", "data"):
        drawn.add_column(heading, overflow="fold")
    leader = leader_of(members)
    for member in members:
        spec = member.spec
        drawn.add_row(
            Text(str(spec.id), style="bold"),
            Text(str(spec.kafka)),
            Text(str(spec.http)),
            Text(str(spec.grpc)),
            Text(f"{member.state}, leader" if spec.id == leader else member.state, style=_STYLES[member.state]),
            Text("-" if member.pid is None else str(member.pid)),
            Text(str(member.restarts)),
            Text(escape(str(spec.data))),
        )
    return Group(drawn, Text(status_line(members), style="bold"))


def status_line(members: Sequence[Member]) -> str:
    """How it is, in one line."""
    left = sum(member.state == "stopping" for member in members)
    if left:
        return f"stopping: {left} of {len(members)} still run. Ctrl+C again ends them at once."
    up, leader = sum(member.is_up for member in members), leader_of(members)
    leads = "no leader" if leader == NOBODY else f"broker {leader} leads"
    return f"{up} of {len(members)} up, {leads}. Ctrl+C stops all of them."
