"""How many files this process may have open, and how the store and the connections share them.

Owns the process's limit (RLIMIT_NOFILE) and the shares; must not open anything. Where a store meets the limit in the
middle of a change it is fenced, so neither share may grow into the other's.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress
from dataclasses import replace
from typing import Final

from logserver.config import Settings

log = logging.getLogger(__name__)

# The event loop and the standard streams have 17 open; connections that are being turned away take some, and so does
# a file that is opened for a moment beside those that are kept.
RESERVED: Final = 32
FEWEST: Final = 32  # of the store and connections together: less is of no use to anybody


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as a Java VM does; the limit that is in force then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # above what the kernel allows
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def fit(settings: Settings, limit: int) -> Settings:
    """`open_files` and `max_connections` as far as they go into this limit, half for each where both want more; what
    had to be lowered is logged.
    """
    if limit == resource.RLIM_INFINITY:
        return settings
    room = max(limit - RESERVED, FEWEST)
    files = min(settings.open_files, max(room // 2, room - settings.max_connections))
    connections = min(settings.max_connections, room - files)
    for name, wanted, given in (
        ("open_files", settings.open_files, files),
        ("max_connections", settings.max_connections, connections),
    ):
        if given < wanted:
            log.warning(
                "%s lowered from %d to %d: this process may have %d files open (ulimit -n)",
                *(name, wanted, given, limit),
            )
    return replace(settings, open_files=files, max_connections=connections)
