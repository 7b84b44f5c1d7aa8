"""The cluster id of a store.

Owns the default cluster id, for a store that has none; it must not change, so that clients may keep it.
"""

from __future__ import annotations

from typing import Final

from storage import LogStore, SupportsClusterId

CLUSTER_ID: Final = "logserver"


def cluster_id(store: LogStore) -> str:
    """Return the cluster id from the store's directory, or `CLUSTER_ID` if the store has none."""
    found = store.cluster_id if isinstance(store, SupportsClusterId) else None
    return found or CLUSTER_ID
