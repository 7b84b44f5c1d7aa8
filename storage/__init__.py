"""The storage engine: the only door for upper layers.

Owns the names that the server, the commands and the pipeline may use; holds no logic. Backends are imported when they
are opened, by name, through the registry.
"""

from storage.coding.murmur2 import partition_for_key
from storage.errors import StorageError
from storage.interface import (
    Clock,
    FindQuery,
    LogStore,
    Progress,
    StoreOptions,
    SupportsBatchBytes,
    SupportsInspect,
)
from storage.model import (
    AppendResult,
    BatchPage,
    Bound,
    Capabilities,
    Finding,
    FoundPage,
    Header,
    Isolation,
    Loss,
    OffsetBounds,
    Page,
    ProducerSequence,
    RebuildReport,
    Record,
    RecoveryReport,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicInfo,
    TopicPartition,
)
from storage.registry import (
    Detected,
    backends,
    detect,
    is_compiled,
    open_inspector,
    open_store,
    wall_clock_ms,
)

__all__ = [
    "AppendResult",
    "BatchPage",
    "Bound",
    "Capabilities",
    "Clock",
    "Detected",
    "FindQuery",
    "Finding",
    "FoundPage",
    "Header",
    "Isolation",
    "LogStore",
    "Loss",
    "OffsetBounds",
    "Page",
    "ProducerSequence",
    "Progress",
    "RebuildReport",
    "Record",
    "RecoveryReport",
    "RetentionReport",
    "StorageError",
    "StoreOptions",
    "StoreStats",
    "StoredRecord",
    "SupportsBatchBytes",
    "SupportsInspect",
    "TimedOffset",
    "TopicInfo",
    "TopicPartition",
    "backends",
    "detect",
    "is_compiled",
    "open_inspector",
    "open_store",
    "partition_for_key",
    "wall_clock_ms",
]
