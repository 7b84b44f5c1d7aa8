"""The health of a server as a value, and the check for a full disk. Owns these two; must not know the service."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DISK_FULL_BELOW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of the server. `state`: starting, recovering, ready, stopping or failed; `progress` while
    recovering.
    """

    state: str
    read_only: bool = False
    fenced: str | None = None
    disk_full: bool = False
    progress: tuple[str, int, int] | None = None

    @property
    def ready(self) -> bool:
        """True if clients should send requests to this server."""
        return self.state == "ready" and self.fenced is None and not self.disk_full


def is_full(data: Path) -> bool:
    """Return whether the file system of `data` has almost no free space, or the free space cannot be read."""
    try:
        space = os.statvfs(data)
    except OSError:
        return True
    return space.f_bavail * space.f_frsize < DISK_FULL_BELOW_BYTES
