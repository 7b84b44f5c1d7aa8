"""Staging folders of jobs that no longer run: the writer of a folder, and whether that writer is still alive.

Owns the ids of batch writes; must not open a store. A batch's id names the machine and a process that lives as long as
the batch's driver. A stream's id is the id of its query, which continues in the same folder when it starts again.

    HOST.PID.STARTED.RANDOM      of a batch; STARTED in clock ticks since the machine's start
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

from storage import is_pending, remove_staged, staged_folders, wall_clock_ms

KEPT_MS: Final = 86_400_000  # of a writer on another machine, or of a query that does not restart
_ID: Final = re.compile(r"\.staged-(?P<host>[^/]+)\.(?P<pid>\d+)\.(?P<started>\d+)\.[0-9a-f]{8}$")
_STARTED_FIELD: Final = 19  # index in /proc/PID/stat, counted after the process name


def new_write_id(pid: int | None = None) -> str:
    """Return a new id of a batch, written from this process's parent: the driver (or the daemon of its workers)."""
    pid = os.getppid() if pid is None else pid
    return f"{socket.gethostname()}.{pid}.{_started(pid) or 0}.{secrets.token_hex(4)}"


def remove_leftovers(store: Path, *, own: Path, now_ms: int | None = None) -> list[Path]:
    """Remove the staging folders of writers that no longer run, next to a store; return the removed folders."""
    now_ms = wall_clock_ms() if now_ms is None else now_ms
    gone = [
        folder
        for folder, changed_ms in staged_folders(store)
        if folder != own and _is_left(folder.name, now_ms - changed_ms)
    ]
    gone = [folder for folder in gone if not is_pending(store, folder)]
    for folder in gone:
        remove_staged(folder)
    return gone


def _is_left(name: str, age_ms: int) -> bool:
    writer = _ID.search(name)
    if writer is None or writer["host"] != socket.gethostname():
        return age_ms > KEPT_MS
    return _started(int(writer["pid"])) != int(writer["started"])


def _started(pid: int) -> int | None:
    """Return when a process of this machine started, None if there is no such process, 0 if it cannot be determined."""
    if not Path("/proc/self/stat").exists():
        return 0
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_STARTED_FIELD])
