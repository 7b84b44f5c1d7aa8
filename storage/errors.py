"""The storage error tree: everything that storage raises, and nothing else leaves it.

Owns the classes, their stable codes and the facts they carry; must not know HTTP or any file.

    StorageError
      CallerError        UnknownTopic UnknownPartition TopicExists InvalidTopic InvalidConfig
                         OffsetOutOfRange RecordTooLarge RecordNotFound UnrepresentableRecord
                         InvalidBatch OutOfOrderSequence FencedProducer NotOffered InvalidArgument
      StateError         StoreClosed StoreReadOnly StoreLocked StoreFenced MissingPartitions
      DataError          Truncated Corrupt UnsupportedFormat DamagedStore MiscountedResult
      IoFailure          DiskFull

Each class has a stable `code` (kebab-case, never reused) and keeps its facts as attributes;
`facts()` gives them as plain values for JSON. The message names the field or the file, the value's
problem and the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class StorageError(Exception):
    """Root of the tree. `code` is stable; `facts()` is the machine's view of the same message."""

    code: ClassVar[str] = "storage-error"

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self._facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """So that what is raised in another process is raised here as it was."""
        return _restored, (type(self), self.message, self._facts)

    def facts(self) -> dict[str, object]:
        """The error's facts by name, as given when it was raised."""
        return dict(self._facts)


def _restored(kind: type[StorageError], message: str, facts: dict[str, object]) -> StorageError:
    error = kind.__new__(kind)
    StorageError.__init__(error, message, **facts)
    return error


class CallerError(StorageError):
    """The request cannot be done as asked; the store is unharmed and unchanged."""

    code = "caller-error"


class InvalidArgument(CallerError):
    """A value is outside its limits. Facts: field."""

    code = "invalid-argument"


class UnknownTopic(CallerError):
    """No such topic. Facts: topic."""

    code = "unknown-topic"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist", topic=topic)


class UnknownPartition(CallerError):
    """The topic has no such partition. Facts: topic, partition, partitions (how many it has)."""

    code = "unknown-partition"

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}: it has {partitions}, numbered from 0",
            topic=topic,
            partition=partition,
            partitions=partitions,
        )


class TopicExists(CallerError):
    """The topic is there already, in another shape. Facts: topic."""

    code = "topic-exists"


class InvalidTopic(CallerError):
    """A new topic's name breaks the backend's rules. Facts: topic."""

    code = "invalid-topic"


class InvalidConfig(CallerError):
    """A setting or topic config is unknown or has a bad value. Facts: name, value."""

    code = "invalid-config"


class OffsetOutOfRange(CallerError):
    """The offset lies outside [earliest, latest]. Facts: topic, partition, offset, earliest,
    latest.
    """

    code = "offset-out-of-range"

    def __init__(
        self, topic: str, partition: int, *, offset: int, earliest: int, latest: int
    ) -> None:
        super().__init__(
            f"offset {offset} of {topic}-{partition} is out of range: "
            f"the first is {earliest}, the next to be written is {latest}",
            topic=topic,
            partition=partition,
            offset=offset,
            earliest=earliest,
            latest=latest,
        )
        self.earliest = earliest
        self.latest = latest


class RecordTooLarge(CallerError):
    """A record or batch is over the limit. Facts: size_bytes, limit_bytes, index (of the record)."""

    code = "record-too-large"


class RecordNotFound(CallerError):
    """No record has this id. Facts: id."""

    code = "record-not-found"


class UnrepresentableRecord(CallerError):
    """The backend cannot keep this record as it is. Facts: field, index."""

    code = "unrepresentable-record"


class InvalidBatch(CallerError):
    """A record batch handed in is wrong: CRC, magic, codec, counts. Facts: field, position."""

    code = "invalid-batch"


class OutOfOrderSequence(CallerError):
    """A producer's sequence leaves a gap. Facts: producer_id, sequence, expected."""

    code = "out-of-order-sequence"


class FencedProducer(CallerError):
    """A producer with an older epoch than the newest seen. Facts: producer_id, epoch,
    current_epoch.
    """

    code = "fenced-producer"


class NotOffered(CallerError):
    """Known, but not offered by this version or backend. Facts: feature."""

    code = "not-offered"


class StateError(StorageError):
    """The store cannot serve this now."""

    code = "state-error"


class StoreClosed(StateError):
    """The store has been closed."""

    code = "store-closed"


class StoreReadOnly(StateError):
    """A write to a store that was opened read-only. Facts: path."""

    code = "store-read-only"


class StoreLocked(StateError):
    """Another process (or this one) owns the store. Facts: path, pid (None when unknown)."""

    code = "store-locked"


class StoreFenced(StateError):
    """A write or fsync failed: the store takes no more writes until it is opened anew. Facts: path,
    cause.
    """

    code = "store-fenced"


class MissingPartitions(StateError):
    """Partitions of an existing topic are missing on disk, or would give used offsets again; the rest is served.

    `reasons`: why, by partition; `partition`: the one that was asked for; `creating`: a topic of this name was to be
    created. Facts: topic, missing_partitions.
    """

    code = "missing-partitions"

    def __init__(
        self,
        topic: str,
        reasons: Mapping[int, str],
        *,
        partition: int | None = None,
        creating: bool = False,
    ) -> None:
        numbers = sorted(reasons)
        first = numbers[0] if partition is None else partition
        listed = ", ".join(map(str, numbers[:10]))
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        what = (
            f"topic {topic!r} cannot be created, partitions {listed}{more} of that name are in checkpoints"
            if creating
            else f"partitions {listed}{more} of topic {topic!r} are missing here"
        )
        super().__init__(
            f"{what}. Partition {first}: {reasons[first]}. Restore the files, or start with --accept-loss to go on "
            "above the highest offset that a file names",
            topic=topic,
            missing_partitions=numbers,
        )


class DataError(StorageError):
    """What is on disk is not what it should be."""

    code = "data-error"


class Truncated(DataError):
    """The buffer or file ends before the structure does; it may be whole later. Facts: kind,
    position, needed.
    """

    code = "truncated"


class Corrupt(DataError):
    """Bytes that break their format. Facts: kind, path, position, expected, found,
    next_good_offset; of a read of records also topic, partition and offset.
    """

    code = "corrupt"


class UnsupportedFormat(DataError):
    """Not a store of ours, another backend's, or a version that we do not know. Facts: path."""

    code = "unsupported-format"


class MiscountedResult(DataError):
    """A tool's new store, or a rebuilt file, does not hold what the tool reports. Facts: path, reported, counted; of a
    store also topic and partition.
    """

    code = "miscounted-result"


class DamagedStore(DataError):
    """A writable start refused: good data lies behind a damaged place. Facts: path, position,
    findings.
    """

    code = "damaged-store"


class IoFailure(StorageError):
    """The operating system refused a read, write, sync or rename. Facts: path, operation, errno; of a
    read also position.
    """

    code = "io-failure"


class DiskFull(IoFailure):
    """No space left (or a quota): nothing of the request is stored; writes go on once there is
    space.
    """

    code = "disk-full"
