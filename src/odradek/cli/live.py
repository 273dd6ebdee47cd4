"""Shows a measurement while it runs, on standard error: drawn on a terminal, else a plain line every second."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING

from odradek.cli.listing import tell
from odradek.cli.measure import Meter
from odradek.cli.terminal import escape, is_terminal

if TYPE_CHECKING:
    from rich.table import Table

LINE_SECONDS = 1.0
FRAME_SECONDS = 0.25
HISTORY = 48  # frames in the little curve
_LEVELS = "▁▂▃▄▅▆▇█"


class _Rate:
    """How much came since the last look."""

    def __init__(self, meter: Meter, now: float) -> None:
        self._meter = meter
        self._last = (now, meter.records, meter.size_bytes)

    def since(self, now: float) -> tuple[float, float]:
        """Records and MiB a second since the last call."""
        before, records, size_bytes = self._last
        self._last = (now, self._meter.records, self._meter.size_bytes)
        seconds = max(1e-9, now - before)
        return (self._meter.records - records) / seconds, (self._meter.size_bytes - size_bytes) / seconds / 2**20


@asynccontextmanager
async def watched(meter: Meter, title: str) -> AsyncIterator[None]:
    """Show how it goes while the block runs."""
    view = _draw if is_terminal(sys.stderr) else _print_lines
    task = asyncio.get_running_loop().create_task(view(meter, title))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _print_lines(meter: Meter, title: str) -> None:
    rate = _Rate(meter, perf_counter())
    while True:
        await asyncio.sleep(LINE_SECONDS)
        records_rate, mib_rate = rate.since(perf_counter())
        tell(
            f"{title}: {meter.seconds(perf_counter()):.0f} s, {meter.records} records, {records_rate:.0f} rec/s,"
            f" {mib_rate:.1f} MiB/s{_latency(meter)}"
        )


def _latency(meter: Meter) -> str:
    return "".join(
        f", {name} p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms"
        for name, found in ((name, histogram.in_ms()) for name, histogram in meter.latencies.items())
    )


async def _draw(meter: Meter, title: str) -> None:
    from rich.console import Console  # noqa: PLC0415 (it takes longer to import than most commands take to run)
    from rich.live import Live  # noqa: PLC0415

    rate = _Rate(meter, perf_counter())
    history: deque[float] = deque(maxlen=HISTORY)
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False) as live:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            records_rate, mib_rate = rate.since(perf_counter())
            history.append(records_rate)
            live.update(_frame(meter, title, perf_counter(), records_rate, mib_rate, history), refresh=True)


def _frame(meter: Meter, title: str, now: float, records_rate: float, mib_rate: float, history: deque[float]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table.grid(padding=(0, 2))
    seconds = meter.seconds(now)
    drawn.add_row(Text(escape(title), style="bold"), Text(f"{seconds:.0f} s"))
    drawn.add_row("records", Text(f"{meter.records:,}"))
    drawn.add_row("now", Text(f"{records_rate:,.0f} rec/s  {mib_rate:.1f} MiB/s", style="green"))
    drawn.add_row(
        "average", Text(f"{meter.records / seconds:,.0f} rec/s  {meter.size_bytes / seconds / 2**20:.1f} MiB/s")
    )
    for name, histogram in meter.latencies.items():
        found = histogram.in_ms()
        drawn.add_row(Text(name), Text("  ".join(f"{label} {value:.2f} ms" for label, value in found.items())))
    drawn.add_row("", Text(curve(history), style="green"))
    return drawn


def curve(values: deque[float]) -> str:
    """A row of bars, the highest as high as the highest value."""
    highest = max(values, default=0) or 1
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(value / highest * len(_LEVELS)))] for value in values)
