"""How a disk says no. Each error names the file and what was tried."""

from __future__ import annotations

import errno


class DiskError(Exception):
    """The operating system refused something; what is on the disk may be in doubt."""

    def __init__(self, action: str, path: str, reason: str) -> None:
        super().__init__(f"cannot {action} {path}: {reason}")
        self.action = action
        self.path = path
        self.reason = reason


class DiskFullError(DiskError):
    """No space is left, or the quota is used up."""


class LockedError(DiskError):
    """Another process uses this data directory."""


def disk_error(action: str, path: str, error: OSError) -> DiskError:
    """Turn the system's error into ours."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(action, path, "no space is left on the device; free some and start again")
    return DiskError(action, path, error.strerror or str(error))
