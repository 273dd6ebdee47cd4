"""Two directories change names with each other in one step, so that each name always stands for a whole one.

Python has no call for it; Linux (`renameat2`) and macOS (`renamex_np`) have. A file system that cannot do it says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from odradek.disk.errors import DiskError, disk_error

_AT_FDCWD = -100
_LINUX_EXCHANGE = 2
_MACOS_SWAP = 2


def exchange(first: str, second: str) -> None:
    """Let two names change places, atomically; durable after their directories are synced."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        result = library.renamex_np(os.fsencode(first), os.fsencode(second), ctypes.c_uint(_MACOS_SWAP))
    elif hasattr(library, "renameat2"):
        names = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
        result = library.renameat2(*names, ctypes.c_uint(_LINUX_EXCHANGE))
    else:
        raise DiskError("exchange", first, "this system cannot let two directories change places in one step")
    if result:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise DiskError("exchange", first, "this file system cannot let two directories change places in one step")
        raise disk_error("exchange", first, OSError(number, os.strerror(number)))
