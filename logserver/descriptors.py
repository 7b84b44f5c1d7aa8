"""The limit of open files of this process, and how the store and the connections share it.

Owns the process's limit (RLIMIT_NOFILE) and the two shares; must not open anything. A store that reaches the limit in
the middle of a change is fenced, so neither share may use descriptors of the other.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress
from dataclasses import replace
from typing import Final

from logserver.config import Settings

log = logging.getLogger(__name__)

# The event loop and the standard streams hold 17 descriptors. The rest is for connections that are being rejected,
# and for a file that is opened for a moment in addition to the cached ones.
RESERVED: Final = 32
FEWEST: Final = 32  # for the store and the connections together: with fewer the server is of no use


def raise_limit() -> int:
    """Raise the soft limit to the hard limit, as a Java VM does. Return the limit in force afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # the hard limit is above the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def fit(settings: Settings, limit: int) -> Settings:
    """Return settings with `open_files` and `max_connections` lowered to fit within `limit`.

    If both need more, each gets half. A lowered setting is logged.
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
