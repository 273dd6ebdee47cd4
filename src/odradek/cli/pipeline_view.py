"""Shows a pipeline's progress on standard error: drawn on a terminal, else a plain line a batch."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from odradek.cli.listing import in_bytes, tell
from odradek.cli.terminal import escape

if TYPE_CHECKING:
    from rich.table import Table

    from odradek.spark.pipelines.progress import BatchReport, QueryStatus

FRAMES_PER_SECOND = 4


class View:
    """What a person sees of a run."""

    def __init__(self, name: str, *, draws: bool) -> None:
        self._name = name
        self._draws = draws
        self._started = perf_counter()
        self._live: Any = None
        self._queries: dict[str, tuple[QueryStatus, BatchReport]] = {}

    def __enter__(self) -> Self:
        if self._draws:
            from rich.console import Console  # noqa: PLC0415 (it takes longer to import than most commands take to run)
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(
                console=Console(stderr=True),
                get_renderable=self._frame,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_batch(self, query: QueryStatus, report: BatchReport) -> None:
        """Show a batch."""
        self._queries[query.sink] = query, report
        if self._live is None:
            tell(
                f"{query.sink}: batch {report.batch}, {report.rows} rows, {report.rows_per_second:.0f} rows/s,"
                f" lag {_or_dash(query.lag)}{_state(report)}"
            )

    def on_event(self, text: str) -> None:
        """Say what happens beside the batches."""
        if self._live is None:
            tell(text)
        else:
            self._live.console.print(escape(text), markup=False, highlight=False)

    def _frame(self) -> Table:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        drawn = Table.grid(padding=(0, 2))
        words = "" if self._queries else "starting"
        drawn.add_row(Text(escape(self._name), style="bold"), Text(f"{perf_counter() - self._started:.0f} s {words}"))
        for sink, (query, report) in list(self._queries.items()):
            drawn.add_row(
                Text(escape(sink)),
                Text(f"batch {report.batch}"),
                Text(f"{query.rows:,} rows"),
                Text(f"{report.rows_per_second:,.0f} rows/s", style="green"),
                Text(f"lag {_or_dash(query.lag)}{_state(report)}"),
            )
        return drawn


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _state(report: BatchReport) -> str:
    return f", state {report.state_rows} rows {in_bytes(report.state_bytes)}" if report.state_rows else ""
