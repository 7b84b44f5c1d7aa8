"""How a server is: a value; and when a disk counts as full. Owns no more than that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DISK_FULL_BELOW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the server is. `state`: starting, recovering, ready, stopping or failed; `progress` while
    recovering.
    """

    state: str
    read_only: bool = False
    fenced: str | None = None
    disk_full: bool = False
    progress: tuple[str, int, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether requests should come here."""
        return self.state == "ready" and self.fenced is None and not self.disk_full


def is_full(data: Path) -> bool:
    """Whether there is no space to speak of where `data` is, or it cannot be told."""
    try:
        space = os.statvfs(data)
    except OSError:
        return True
    return space.f_bavail * space.f_frsize < DISK_FULL_BELOW_BYTES
