"""What the cluster is called that a store belongs to.

Owns the name where the store tells none; stable, so that clients may keep it.
"""

from __future__ import annotations

from typing import Final

from storage import LogStore, SupportsClusterId

CLUSTER_ID: Final = "logserver"


def cluster_id(store: LogStore) -> str:
    """The cluster's name in the store's directory, else that of this program."""
    found = store.cluster_id if isinstance(store, SupportsClusterId) else None
    return found or CLUSTER_ID
