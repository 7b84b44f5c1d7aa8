"""The transactions open where a segment begins, for code that reads one segment alone.

Owns the guess: the producer snapshot that the broker writes where a segment begins. Must not read logs. Code that
puts segments together knows the open transactions, and has a segment read again if its guess was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.errors import DataError
from storage.files import FileSystem
from storage.kafka.format import producer_snapshot
from storage.kafka.state.producers import open_transactions


def opened_before(
    fs: FileSystem, known: Mapping[int, int] | None, snapshot: Path | None
) -> Mapping[int, int]:
    """Return first offsets by producer id: `known`, else from the snapshot; empty if it is missing or damaged."""
    if known is not None:
        return known
    if snapshot is None:
        return {}
    try:
        return open_transactions(producer_snapshot.decode_snapshot(fs.read_bytes(snapshot)))
    except DataError:
        return {}
