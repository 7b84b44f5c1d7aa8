"""Which transactions are open where a segment begins, for whoever looks at one segment alone.

Owns the guess: the snapshot of producers that the broker writes where a segment begins. Whoever puts
segments together knows, and has a segment done again whose guess was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.errors import DataError
from storage.files import FileSystem
from storage.kafka.format import producer_snapshot
from storage.kafka.producers import open_transactions


def opened_before(
    fs: FileSystem, known: Mapping[int, int] | None, snapshot: Path | None
) -> Mapping[int, int]:
    """First offsets by producer id: what is known, else what the snapshot says."""
    if known is not None:
        return known
    if snapshot is None:
        return {}
    try:
        return open_transactions(producer_snapshot.decode_snapshot(fs.read_bytes(snapshot)))
    except DataError:
        return {}
