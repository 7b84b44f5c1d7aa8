"""The storage error tree: every error that storage raises; no other error leaves it.

Owns the classes, their stable codes and the facts they carry; must not know HTTP or any file.

    StorageError
      CallerError        UnknownTopic UnknownPartition TopicExists InvalidTopic InvalidConfig
                         OffsetOutOfRange RecordTooLarge RecordNotFound UnrepresentableRecord
                         InvalidBatch OutOfOrderSequence FencedProducer NotOffered InvalidArgument
      StateError         StoreClosed StoreReadOnly StoreLocked StoreFenced MissingPartitions
      DataError          Truncated Corrupt UnsupportedFormat DamagedStore MiscountedResult
      IoFailure          DiskFull

Each class has a stable `code` (kebab-case, never reused) and keeps its facts as attributes; `facts()` returns them as
plain values for JSON. The message names the field or the file, the problem of the value, and the limit.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import ClassVar


class StorageError(Exception):
    """The root of the tree. `code` is stable; `facts()` is the machine-readable form of the message."""

    code: ClassVar[str] = "storage-error"

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self._facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form: an error from another process is raised here with its type, message and facts."""
        return _restored, (type(self), self.message, self._facts)

    def facts(self) -> dict[str, object]:
        """Return the error's facts by name, as given when it was raised."""
        return dict(self._facts)


def _restored(kind: type[StorageError], message: str, facts: dict[str, object]) -> StorageError:
    error = kind.__new__(kind)
    StorageError.__init__(error, message, **facts)
    return error


class CallerError(StorageError):
    """Base class of errors in the request. The store is unharmed and unchanged."""

    code = "caller-error"


class InvalidArgument(CallerError):
    """Error for a value outside its limits. Facts: field."""

    code = "invalid-argument"


class UnknownTopic(CallerError):
    """Error for a topic that does not exist. Facts: topic."""

    code = "unknown-topic"

    def __init__(self, topic: str, known: Iterable[str] = ()) -> None:
        """Create the error; of the `known` topics the similar ones are named."""
        similar = ", ".join(difflib.get_close_matches(topic, known))
        hint = f"; similar: {similar}" if similar else ""
        super().__init__(f"topic {topic!r} does not exist{hint}", topic=topic)


class UnknownPartition(CallerError):
    """Error for a partition that the topic does not have. Facts: topic, partition, partitions (the number of
    partitions).
    """

    code = "unknown-partition"

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}: it has {partitions}, numbered from 0",
            topic=topic,
            partition=partition,
            partitions=partitions,
        )


class TopicExists(CallerError):
    """Error for a topic that already exists in another shape. Facts: topic."""

    code = "topic-exists"


class InvalidTopic(CallerError):
    """Error for a new topic whose name breaks the backend's rules. Facts: topic."""

    code = "invalid-topic"


class InvalidConfig(CallerError):
    """Error for a setting or topic config that is unknown or has a bad value. Facts: name, value."""

    code = "invalid-config"


class OffsetOutOfRange(CallerError):
    """Error for an offset outside [earliest, latest]. Facts: topic, partition, offset, earliest, latest."""

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
    """Error for a record or batch over the limit. Facts: size_bytes, limit_bytes, index (of the record)."""

    code = "record-too-large"


class RecordNotFound(CallerError):
    """Error for an id that no record has. Facts: id."""

    code = "record-not-found"


class UnrepresentableRecord(CallerError):
    """Error for a record that the backend cannot store unchanged.

    Facts: field, index, indexes (the numbers of all records that break the rule; of some rules only).
    """

    code = "unrepresentable-record"


class InvalidBatch(CallerError):
    """Error for a given record batch with a wrong CRC, magic, codec or count. Facts: field, position."""

    code = "invalid-batch"


class OutOfOrderSequence(CallerError):
    """Error for a producer's sequence number that leaves a gap. Facts: producer_id, sequence, expected."""

    code = "out-of-order-sequence"


class FencedProducer(CallerError):
    """Error for a producer with an older epoch than the newest one seen. Facts: producer_id, epoch, current_epoch."""

    code = "fenced-producer"


class FencedCoordinator(FencedProducer):
    """Error for the end of a transaction by an older coordinator than the one that ended the producer's last. Facts:
    producer_id, epoch, coordinator_epoch, current_epoch.
    """

    code = "fenced-coordinator"


class NotOffered(CallerError):
    """Error for a known feature that this version or backend does not offer. Facts: feature."""

    code = "not-offered"


class StateError(StorageError):
    """Base class of errors from the state of the store: it cannot serve the request now."""

    code = "state-error"


class StoreClosed(StateError):
    """Error for a call on a closed store."""

    code = "store-closed"


class StoreReadOnly(StateError):
    """Error for a write to a store that was opened read-only. Facts: path."""

    code = "store-read-only"


class StoreLocked(StateError):
    """Error for a store that another process (or this process) owns. Facts: path, pid (None if unknown)."""

    code = "store-locked"


class StoreFenced(StateError):
    """Error after a failed write or fsync: the store accepts no more writes until it is opened again. Facts: path,
    cause.
    """

    code = "store-fenced"


class MissingPartitions(StateError):
    """Error for partitions of an existing topic that are missing on disk, or that would assign used offsets again. All
    other partitions are served.

    `reasons`: the reason for each partition. `partition`: the requested partition. `creating`: the request was to
    create a topic of this name. Facts: topic, missing_partitions.
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
    """Base class of errors in the data on disk."""

    code = "data-error"


class Truncated(DataError):
    """Error for a buffer or file that ends before the structure ends; more bytes may complete it later. Facts: kind,
    position, needed.
    """

    code = "truncated"


class Corrupt(DataError):
    """Error for bytes that break their format. Facts: kind, path, position, expected, found, next_good_offset; from a
    read of records also topic, partition and offset.
    """

    code = "corrupt"


class UnsupportedFormat(DataError):
    """Error for a directory that is not a known store, belongs to another backend, or has an unknown version. Facts:
    path.
    """

    code = "unsupported-format"


class MiscountedResult(DataError):
    """Error for a tool's new store, or a rebuilt file, whose content differs from the tool's report. Facts: path,
    reported, counted; for a store also topic and partition.
    """

    code = "miscounted-result"


class DamagedStore(DataError):
    """Error that refuses a writable start: good data follows a damaged position. Facts: path, position, findings."""

    code = "damaged-store"


class IoFailure(StorageError):
    """Error of the operating system at a read, write, sync or rename. Facts: path, operation, errno; for a read also
    position.
    """

    code = "io-failure"


class DiskFull(IoFailure):
    """Error for a full disk or quota: no part of the request is stored. Writes continue as soon as there is space."""

    code = "disk-full"
