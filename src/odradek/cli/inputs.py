"""Reads what is typed or piped in while the event loop goes on: each read waits in a thread that can be woken.

So Ctrl+C works at once even if nothing comes, and no more than one piece is ever held.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from types import TracebackType
from typing import Self

from odradek.cli.terminal import CommandError, escape, is_terminal

PIECE_BYTES = 256 * 1024


class Input:
    """A file, a pipe or a terminal that is read piece by piece. A context manager; it closes what it opened."""

    def __init__(self, path: str) -> None:
        """`-` is standard input."""
        self.name = "standard input" if path == "-" else path
        self._path = path
        self._file = -1
        self._wake_read, self._wake_write = -1, -1

    def __enter__(self) -> Self:
        if self._path == "-":
            try:
                self._file = sys.stdin.fileno()
            except (AttributeError, ValueError, io.UnsupportedOperation):
                raise CommandError("standard input is closed: name files with -f FILE") from None
        else:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path != "-":
            os.close(self._file)
        os.close(self._wake_write)
        os.close(self._wake_read)

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        reading = asyncio.get_running_loop().run_in_executor(None, self._read)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            os.write(self._wake_write, b"!")
            await reading  # it returns at once, and must before the files are closed
            raise

    def _read(self) -> bytes:
        waiting = select.poll()
        waiting.register(self._file, select.POLLIN)
        waiting.register(self._wake_read, select.POLLIN)
        ready = {file for file, _ in waiting.poll()}
        return b"" if self._wake_read in ready else os.read(self._file, PIECE_BYTES)


async def confirm(question: str, *, yes: bool) -> None:
    """Go on only if a person agrees; without a terminal to ask at, `yes` must have been said before."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise CommandError(f"{question} nobody can be asked here: add --yes to agree", 2)
    print(f"{escape(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    with Input("-") as typed:
        answer = await typed.read()
    if answer.strip().lower() not in (b"y", b"yes"):
        raise CommandError("nothing was changed")
