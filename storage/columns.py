"""Records as columns: how a store is cut into splits for many readers, and the chunks that a reader yields.

Owns abstract shapes and their contracts; must not contain a backend's logic, nor know Arrow or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from storage.errors import InvalidArgument
from storage.model import Finding, Isolation, OffsetBounds, TimedOffset, TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]

# A store is cut into splits for many readers. A split is planned where the whole store is visible. It is read
# elsewhere, in another process or on another machine that sees the same path. So a split is picklable, names files and
# positions, and needs no recovery where it is read.
#
#     open_splitter(path) -> Splitter          one, on the driver
#     splitter.plan(ranges)  -> [Split, ...]   from the indexes, without reading records
#     read_split(split)      -> Chunk ...      many, side by side
#
# A chunk holds the bytes of many records once. For each column it says where the values are in those bytes:
#
#     data     ..k1.v1v1v1...k2.v2v2...v3v3..
#     key      starts [2, 15, 0]   lengths [2, 2, -1]      -1: null
#     value    starts [5, 18, 25]  lengths [6, 4, 4]
#
# An Arrow column is gathered with one `take`; no value is touched in Python.

SPLIT_BYTES: Final = 64 << 20
CHUNK_BYTES: Final = 8 << 20

# The columns of every backend, in the order of Spark's Kafka source; times in milliseconds.
KEY: Final = "key"  # Slices
VALUE: Final = "value"  # Slices
OFFSET: Final = "offset"  # Numbers
TIMESTAMP: Final = "timestamp_ms"  # Numbers; RocketMQ: the born timestamp
TIMESTAMP_TYPE: Final = "timestamp_type"  # Numbers; 0 CreateTime, 1 LogAppendTime
HEADERS: Final = "headers"  # Named

# Columns of RocketMQ only. A Kafka store has only the tag and the lookup keys, taken from its headers.
TAG: Final = "tag"  # Slices
KEYS: Final = "keys"  # Slices; the lookup keys as they are stored, separated by a space
UNIQUE_ID: Final = "unique_id"  # Slices
PROPERTIES: Final = "properties"  # Named, all properties
MESSAGE_ID: Final = "message_id"  # Slices
STORE_TIMESTAMP: Final = "store_timestamp_ms"  # Numbers
PHYSICAL_OFFSET: Final = "physical_offset"  # Numbers
SYS_FLAG: Final = "sys_flag"  # Numbers
FLAG: Final = "flag"  # Numbers
RECONSUME_TIMES: Final = "reconsume_times"  # Numbers
BORN_HOST: Final = "born_host"  # Slices, host:port as text
STORE_HOST: Final = "store_host"  # Slices, host:port as text
SUSPECT: Final = "suspect"  # Slices; names of invalid parts of a record, separated by a space
RECORD: Final = "record"  # Slices; the whole stored record, for converting it to another format

COMMON_COLUMNS: Final = (KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS, TAG, KEYS)
MESSAGE_COLUMNS: Final = (
    UNIQUE_ID,
    PROPERTIES,
    MESSAGE_ID,
    STORE_TIMESTAMP,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    FLAG,
    RECONSUME_TIMES,
    BORN_HOST,
    STORE_HOST,
    SUSPECT,
)


class Slices(NamedTuple):
    """A column of byte strings: row i is data[starts[i] : starts[i] + lengths[i]].

    A length of -1 means null; the start of a null row is a valid position in the data too.
    """

    data: bytes
    starts: Numbers
    lengths: Numbers


class Named(NamedTuple):
    """A column of lists of (name, value) pairs: row i has the next counts[i] entries of `names` and `values`."""

    counts: Numbers
    names: Slices
    values: Slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A group of rows of a split. Rows of one partition are in the order of their offsets.

    `codes[i]` is the index of row i's partition in `partitions`; None: all rows belong to the first partition.
    `columns` has the requested columns that the backend has, each `rows` long.
    """

    rows: int
    partitions: Sequence[TopicPartition]
    codes: Numbers | None
    columns: Mapping[str, Numbers | Slices | Named]


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The input of one task, picklable: about `size_bytes` of files. `plan` has a type of the backend."""

    backend: str
    size_bytes: int
    plan: object


class Splitter(Protocol):
    """A store that is cut into splits, opened by directory and offline with `storage.open_splitter`.

    Changes no byte and takes no lock. It works alongside a running server or a real broker. It shows the store at the
    time of opening, or of the last `refresh`, in the state that recovery would produce. Not thread-safe: one thread at
    a time.
    """

    backend: str

    def partitions(self) -> Sequence[TopicPartition]:
        """Return all partitions, in order."""

    def is_internal(self, topic: str) -> bool:
        """Return whether the servers keep this topic for themselves, as TopicInfo.internal."""

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """Return the bounds as LogStore.bounds does."""

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """Return the offset as LogStore.offset_for_time does, on the backend's own time axis."""

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return an offset before which no record has a TIMESTAMP at or after `timestamp_ms`.

        The offset is safe, not exact: the first offset if the store does not know, the end if no record has such a
        time.
        """

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = SPLIT_BYTES,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        """Return splits that together contain every visible record of the ranges exactly once.

        A split has about `split_bytes` at most, or an eighth more where a file ends there. There are at least
        `min_splits` splits if the store can be cut that often. One hot partition is cut like any other. A plan contains
        no records; it contains the index entries that are not on disk.

        Raises UnknownTopic, UnknownPartition; OffsetOutOfRange for a range outside the bounds; InvalidArgument for a
        number below 1.
        """

    def refresh(self) -> None:
        """Read the directory again: new records, partitions and topics. The cost grows with the new data only. A store
        that was replaced or cut is opened again.
        """

    def missing(self) -> Sequence[Finding]:
        """Return findings for missing partitions: other files name their records, but they are missing wholly or at the
        end.

        A missing end is reported only for partitions that were queried before: finding it requires reading the log.
        """

    def findings(self) -> Sequence[Finding]:
        """Return the findings so far: damage that was skipped, and data that a start would cut."""

    def close(self) -> None:
        """Close open files."""


def check_plan(*, split_bytes: int, min_splits: int) -> None:
    """Raise InvalidArgument for numbers that `Splitter.plan` does not accept."""
    for name, number in (("split_bytes", split_bytes), ("min_splits", min_splits)):
        if number < 1:
            raise InvalidArgument(f"{name} must be at least 1, not {number}", field=name)


Damage: TypeAlias = Callable[[Finding], None]


class ReadSplit(Protocol):
    """A backend's reader of a split; see `storage.read_split`."""

    def __call__(
        self, plan: object, columns: Collection[str], *, check_crcs: bool, on_damage: Damage | None
    ) -> Iterator[Chunk]:
        """Yield chunks of about CHUNK_BYTES."""
