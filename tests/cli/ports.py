"""Ports in a row that nobody has, for brokers that count theirs up from a base."""

from __future__ import annotations

import os
import socket
from itertools import chain

_FIRST, _LAST = 21_000, 31_000  # below those that the system gives to clients
_given: set[int] = set()


def free_base(count: int) -> int:
    """The first of so many free ports in a row; processes that test beside us begin to look elsewhere.

    What was given is not given again: who has it may not have taken it yet.
    """
    begin = max(_given, default=_FIRST + os.getpid() * 37 % (_LAST - _FIRST)) + 1
    for base in chain(range(begin, _LAST, count), range(_FIRST, begin, count)):
        if not _given.isdisjoint(range(base, base + count)):
            continue
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, each in enumerate(sockets):
                each.bind(("127.0.0.1", base + offset))
        except OSError:
            continue
        else:
            _given.update(range(base, base + count))
            return base
        finally:
            for each in sockets:
                each.close()
    raise AssertionError(f"there are no {count} free ports in a row")
