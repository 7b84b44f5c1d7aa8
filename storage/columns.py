"""A store as columns for many readers: how it is cut into splits, and what a reader gets of one.

Owns the shapes and the promise; must not know a backend, Arrow or Spark. A split is planned where the
whole store is seen and read elsewhere, in another process or on another machine that sees the same
path: it is picklable, names files and positions, and needs no recovery where it is read.

    open_splitter(path) -> Splitter          one, on the driver
    splitter.plan(ranges)  -> [Split, ...]   from the indexes, without reading records
    read_split(split)      -> Chunk ...      many, side by side

A chunk holds the bytes of many records once, and says for each column where its values lie in them:

    data     ..k1.v1v1v1...k2.v2v2...v3v3..
    key      starts [2, 15, 0]   lengths [2, 2, -1]      -1: null
    value    starts [5, 18, 25]  lengths [6, 4, 4]

Whoever wants Arrow gathers a column with one `take`; no value is touched in Python.
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

SPLIT_BYTES: Final = 64 << 20
CHUNK_BYTES: Final = 8 << 20

# The columns of every backend, in the order of Spark's Kafka source; times in milliseconds.
KEY: Final = "key"  # Slices
VALUE: Final = "value"  # Slices
OFFSET: Final = "offset"  # Numbers
TIMESTAMP: Final = "timestamp_ms"  # Numbers; RocketMQ: the born timestamp
TIMESTAMP_TYPE: Final = "timestamp_type"  # Numbers; 0 CreateTime, 1 LogAppendTime
HEADERS: Final = "headers"  # Named

# RocketMQ's own; a Kafka store has none of them but the tag and the lookup keys of its headers.
TAG: Final = "tag"  # Slices
KEYS: Final = "keys"  # Slices; the lookup keys as they are stored, a space between
UNIQUE_ID: Final = "unique_id"  # Slices
PROPERTIES: Final = "properties"  # Named, all of them
MESSAGE_ID: Final = "message_id"  # Slices
STORE_TIMESTAMP: Final = "store_timestamp_ms"  # Numbers
PHYSICAL_OFFSET: Final = "physical_offset"  # Numbers
SYS_FLAG: Final = "sys_flag"  # Numbers
FLAG: Final = "flag"  # Numbers
RECONSUME_TIMES: Final = "reconsume_times"  # Numbers
BORN_HOST: Final = "born_host"  # Slices, host:port as text
STORE_HOST: Final = "store_host"  # Slices, host:port as text
SUSPECT: Final = "suspect"  # Slices; parts of a record that cannot be right, a space between
RECORD: Final = "record"  # Slices; the whole stored record, for who makes another of it

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
    """A column of byte strings: row i is data[starts[i] : starts[i] + lengths[i]], null where its
    length is -1 (its start then lies within the data too).
    """

    data: bytes
    starts: Numbers
    lengths: Numbers


class Named(NamedTuple):
    """A column of lists of name and value: row i has the next counts[i] of `names` and `values`."""

    counts: Numbers
    names: Slices
    values: Slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some rows of a split. Rows of one partition stand in the order of their offsets.

    `codes[i]` is the place of row i's partition in `partitions`; None: all rows are of the first one.
    `columns` has those that were asked for and that the backend has, each `rows` long.
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
    """What one task reads: `plan` is its backend's own. Picklable; about `size_bytes` of files."""

    backend: str
    size_bytes: int
    plan: object


class Splitter(Protocol):
    """A store as it is cut into splits, opened by `storage.open_splitter`: by directory, offline.

    Changes no byte and takes no lock: it works beside a running server or a real broker and shows
    what was there when it was opened, or at the last `refresh`, as recovery would leave it. To be
    used by one thread at a time.
    """

    backend: str

    def partitions(self) -> Sequence[TopicPartition]:
        """All partitions, in order."""

    def is_internal(self, topic: str) -> bool:
        """As TopicInfo.internal: a topic that the servers keep for themselves."""

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """As LogStore.bounds."""

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """As LogStore.offset_for_time, with the backend's own time axis."""

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """An offset before which no record's column TIMESTAMP is at or after a time: safe, not exact. The
        first one where the store cannot tell, the end where none is.
        """

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = SPLIT_BYTES,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        """Splits that together have every visible record of the ranges once: none bigger than about
        `split_bytes` (an eighth more, where files end there), at least `min_splits` where the store can be
        cut so often. One hot partition is cut like any other. A plan holds no records, and what of the
        indexes is not on the disk.

        Raises UnknownTopic, UnknownPartition; OffsetOutOfRange for a range outside the bounds;
        InvalidArgument for a number below 1.
        """

    def refresh(self) -> None:
        """Look at the directory again: new records, partitions and topics; costs what is new. A store
        that was replaced or cut is opened anew.
        """

    def missing(self) -> Sequence[Finding]:
        """Report partitions that are missing, wholly or at their end, though other files name their records.

        Of the ends those count whose partition was asked about before: to tell an end is to look at the log.
        """

    def findings(self) -> Sequence[Finding]:
        """What opening met: damage that is passed over, what a start would cut."""

    def close(self) -> None:
        """Let go of open files."""


def check_plan(*, split_bytes: int, min_splits: int) -> None:
    """Raise InvalidArgument for numbers that `Splitter.plan` does not take."""
    for name, number in (("split_bytes", split_bytes), ("min_splits", min_splits)):
        if number < 1:
            raise InvalidArgument(f"{name} must be at least 1, not {number}", field=name)


Damage: TypeAlias = Callable[[Finding], None]


class ReadSplit(Protocol):
    """A backend's reader of a split; see `storage.read_split`."""

    def __call__(
        self, plan: object, columns: Collection[str], *, check_crcs: bool, on_damage: Damage | None
    ) -> Iterator[Chunk]:
        """Chunks of about CHUNK_BYTES."""
