"""The self-description of a log directory: its capabilities, its counts and sizes, and the folders it leaves untouched.

Owns these values and their names; must not change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.files import HandleCache
from storage.kafka.format import batch
from storage.kafka.partition import Partition
from storage.kafka.state.settings import INERT_CONFIGS
from storage.model import Capabilities, StoreStats

CAPABILITIES = Capabilities(
    backend="kafka",
    indexed_keys=False,
    batch_bytes=True,
    truncate=False,
    time_axis="timestamp",
    leader_epochs=True,
    inert_configs=INERT_CONFIGS,
)


def stats_of(
    partitions: Sequence[Partition],
    files: HandleCache,
    *,
    topics: int,
    metadata_dirs: Sequence[Path],
    fenced: str | None,
) -> StoreStats:
    """See LogStore.stats."""
    segments = [segment for partition in partitions for segment in partition.segments()]
    details: dict[str, object] = {
        "compiled": not (batch.__file__ or "").endswith(".py"),
        "metadata_dirs": [folder.name for folder in metadata_dirs],
    }
    return StoreStats(
        topics=topics,
        partitions=len(partitions),
        segments=len(segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        open_files=files.open_files,
        fenced=fenced,
        details=details,
    )
