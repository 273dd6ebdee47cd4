"""Swaps two folders in one step, so that a reader finds the one or the other and never neither."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from odradek.spark.lake.errors import LakeError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the name of the other (renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise _unsupported(other)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            raise _unsupported(other)
        raise OSError(code, os.strerror(code), str(one), None, str(other))


def _unsupported(folder: Path) -> LakeError:
    return LakeError(
        f"the file system of {folder} cannot swap two folders in one step, which a parquet table needs to be rewritten "
        "under its readers (ext4, xfs, btrfs and tmpfs can, network file systems mostly cannot): use Delta or Iceberg"
    )
