"""What `inspect` shows of a RocketMQ store: what it is, what is in it, and how it is.

Owns the shape of the summary (camel case, times in ms, sizes in bytes) and reads no more than it
needs: ends, times and sizes, not the records. Must not change anything.
"""

from __future__ import annotations

from typing import Final

from storage.rocketmq.tools.rows import Row
from storage.rocketmq.tools.view import View

BACKEND: Final = "rocketmq"


def of_view(view: View, *, adopted: bool | None) -> Row:
    """The summary of a store, or of some of its queues."""
    return {"path": str(view.root), "backend": BACKEND, "kind": "store"}
