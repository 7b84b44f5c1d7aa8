"""Encoding of appended records, or of a client's whole batches, into the batches of the log.

Owns the checks and the encoding of one append: records become as few batches as the size limit
allows, raw batches are checked and stamped; must not write. Everything is checked before anything is
written, so an append is all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from storage.coding.varint import INT32_MAX, INT64_MAX
from storage.errors import (
    DataError,
    InvalidBatch,
    NotOffered,
    RecordTooLarge,
    Truncated,
    UnrepresentableRecord,
)
from storage.files import MAX_PIECES, Buffer
from storage.kafka.format.batch import (
    DEFAULT_MAX_BYTES,
    HEADER_SIZE,
    BatchHeader,
    check_offered,
    check_records,
    decode_header,
    decode_records,
    encode_batch,
    encode_control_batch,
    keyless,
    restamp_append_time,
    restamp_latest,
    split_batches,
    stamp,
)
from storage.kafka.format.compression import codec_id
from storage.kafka.format.record import MIN_RECORD_BYTES, NO_TIMESTAMP
from storage.kafka.log.reading import KEYS_HEADER, TAGS_HEADER
from storage.kafka.log.segment import AppendedBatch
from storage.kafka.state.settings import TIMESTAMP_AFTER, TIMESTAMP_BEFORE, TopicSettings
from storage.model import AppendResult, Header, ProducerEpoch, ProducerSequence, Record
from storage.shared.sequencing import SEQUENCES
from storage.transactions import PartitionMarker

INT16_MAX: Final = 2**15 - 1
MAX_CONTENT_BYTES: Final = DEFAULT_MAX_BYTES // 2
"""The limit for keys and values of one compressed batch: half of the bytes that a reader decompresses at most. The
other half is for headers and lengths."""


LEAST_PART_BYTES: Final = 16 << 10
"""Batches smaller than this on average are copied into one buffer for the write."""


class Stamp(NamedTuple):
    """The fields that an append assigns to its batches: base offset, leader epoch, and append time."""

    base_offset: int
    leader_epoch: int
    now_ms: int
    log_append_time: bool


class Encoded:
    """The bytes of whole batches, and the position and header of each batch.

    `parts`: the bytes to write, if a header has changed: a new header and a view of the records of each batch. Then
    `data` has the old headers. Empty: write `data`.
    """

    def __init__(
        self, data: bytes, batches: Sequence[AppendedBatch], parts: Sequence[Buffer] = ()
    ) -> None:
        self.data = data
        self.batches = batches
        self.parts = parts

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1].header.next_offset


class BatchRules:
    """What an append requires of whole batches: see `SupportsBatchBytes.append_batches`."""

    def __init__(
        self,
        *,
        keep_offsets: bool = False,
        client: bool = True,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
    ) -> None:
        self.keep_offsets = keep_offsets
        self.client = client
        self.checked = checked
        self.transaction = transaction

    @property
    def has_unchecked(self) -> bool:
        """Whether the batches are of a client, and their records are not checked yet."""
        return self.client and not self.checked


def with_lookup_headers(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records with tag and lookup keys moved into headers TAGS and KEYS, RocketMQ's names for them.

    Raises UnrepresentableRecord for properties, for a lookup key that is empty or has a space, and for a record that
    has the header already.
    """
    for record in records:
        if record.tag is not None or record.lookup_keys or record.properties:
            return [_with_lookups(record, index) for index, record in enumerate(records)]
    return records


def _with_lookups(record: Record, index: int) -> Record:
    if record.properties:
        raise UnrepresentableRecord(
            f"record {index}: this backend keeps no properties: use headers",
            field="properties",
            index=index,
        )
    names = {name for name, _ in record.headers}
    extra: list[Header] = []
    if record.tag is not None:
        _refuse_both(names, TAGS_HEADER, field="tag", index=index)
        extra.append((TAGS_HEADER, record.tag.encode()))
    if record.lookup_keys:
        _refuse_both(names, KEYS_HEADER, field="keys", index=index)
        if any(not key or key.split() != [key] for key in record.lookup_keys):
            raise UnrepresentableRecord(
                f"record {index}: a lookup key is empty or holds a space, which separates keys",
                field="keys",
                index=index,
            )
        extra.append((KEYS_HEADER, " ".join(record.lookup_keys).encode()))
    return record._replace(headers=(*record.headers, *extra), tag=None, lookup_keys=())


def _refuse_both(names: set[str], header: str, *, field: str, index: int) -> None:
    if header in names:
        raise UnrepresentableRecord(
            f"record {index} has both {field} and a header {header}: give one of them",
            field=field,
            index=index,
        )


def encode_records(
    records: Sequence[Record],
    mark: Stamp,
    *,
    compression: str,
    producer: ProducerSequence | None,
    limit_bytes: int,
) -> Encoded:
    """Encode records as one batch, or as several if one batch would be over `limit_bytes` or `MAX_CONTENT_BYTES`.

    A sequenced append is never split. Raises RecordTooLarge with the index of the record that is too large by itself,
    or for a sequenced batch that is too large; raises UnrepresentableRecord.
    """
    records = with_lookup_headers(records)
    codec = codec_id(compression)
    parts: list[bytes] = []
    # A stack, and no functions that call each other: such functions would hold the records until a garbage collection.
    pending = [(0, len(records))]
    while pending:
        start, stop = pending.pop()
        size_bytes = _content_bytes(records[start:stop]) if codec else 0
        most_bytes = MAX_CONTENT_BYTES
        if size_bytes <= MAX_CONTENT_BYTES:
            data = encode_batch(
                records[start:stop],
                base_offset=mark.base_offset + start,
                leader_epoch=mark.leader_epoch,
                now_ms=mark.now_ms,
                codec=codec,
                log_append_time=mark.log_append_time,
                producer_id=-1 if producer is None else producer.producer_id,
                producer_epoch=-1 if producer is None else producer.epoch,
                base_sequence=-1 if producer is None else producer.sequence,
                transactional=producer is not None and producer.transactional,
            )
            size_bytes, most_bytes = len(data), limit_bytes
            if size_bytes <= limit_bytes:
                parts.append(data)
                continue
        if stop - start == 1 or producer is not None:
            raise _too_large(size_bytes, most_bytes, index=start, whole=stop - start > 1)
        middle = (start + stop) // 2
        pending += (middle, stop), (start, middle)
    batches: list[AppendedBatch] = []
    at = 0
    for part in parts:
        batches.append(AppendedBatch(at, decode_header(part, 0)))
        at += len(part)
    return Encoded(parts[0] if len(parts) == 1 else b"".join(parts), batches)


def _content_bytes(records: Sequence[Record]) -> int:
    return sum(len(record.key or b"") + len(record.value or b"") for record in records)


def _too_large(size_bytes: int, limit_bytes: int, *, index: int, whole: bool) -> RecordTooLarge:
    what = "the sequenced batch" if whole else f"record {index}"
    return RecordTooLarge(
        f"{what} takes {size_bytes} bytes as a batch: the limit max.message.bytes is {limit_bytes}",
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
        index=index,
    )


def check_batches(
    data: bytes,
    *,
    limit_bytes: int,
    keep_offsets: bool,
    client: bool,
    transaction: ProducerEpoch | None = None,
    with_crc: bool = True,
) -> Sequence[AppendedBatch]:
    """Return the batches of `data`. Each batch is whole, with a good CRC and of legal size. `with_crc` False: the
    CRCs have been checked.

    Raises InvalidBatch (field, position), RecordTooLarge, and NotOffered for a client's control batches, and its
    transactional batches without a `transaction`.
    """
    try:
        found = split_batches(data, with_crc=with_crc)
        batches = [AppendedBatch(at, header) for at, header in found]
        for at, header in batches:
            check_offered(header, at)
    except DataError as error:
        facts = error.facts()
        raise InvalidBatch(
            f"record batch: {error.message}",
            field="length" if isinstance(error, Truncated) else facts.get("field", "batch"),
            position=facts.get("position"),
        ) from error
    if not batches:
        raise InvalidBatch("record batch: the body is empty", field="length", position=0)
    for index, (at, header) in enumerate(batches):
        if header.size_bytes > limit_bytes:
            raise _too_large(header.size_bytes, limit_bytes, index=index, whole=False)
        if not keep_offsets:
            _check_new_batch(at, header)
        if client:
            _check_client_attributes(at, header)
            _check_transaction(at, header, transaction)
    return batches


def _check_client_attributes(at: int, header: BatchHeader) -> None:
    """Raise for batches that only the log's owner writes: markers (NotOffered), and those with the time at which the
    cleaner may drop them (InvalidBatch).
    """
    if header.is_control:
        raise NotOffered(
            f"record batch at {at}: control batches are the server's own, a client sends none",
            feature="transactions",
        )
    if header.has_delete_horizon:
        raise _invalid(at, "attributes", "a delete horizon is the log cleaner's, not a producer's")


def _check_transaction(at: int, header: BatchHeader, transaction: ProducerEpoch | None) -> None:
    """Raise unless a client's batch is transactional exactly if the request names a transaction (NotOffered without
    one), and is of its producer.
    """
    if transaction is None:
        if header.is_transactional:
            raise NotOffered(
                f"record batch at {at}: a transactional batch must be sent within a transaction",
                feature="transactions",
            )
        return
    if not header.is_transactional:
        raise _invalid(at, "attributes", "a batch in a transaction must be transactional (bit 4)")
    if header.producer_id != transaction.producer_id:
        problem = f"producer_id is {header.producer_id}, the transaction's is {transaction[0]}"
        raise _invalid(at, "producer_id", problem)
    if header.producer_epoch != transaction.epoch:
        problem = (
            f"producer_epoch is {header.producer_epoch}, the transaction's is {transaction[1]}"
        )
        raise _invalid(at, "producer_epoch", problem)


def _invalid(at: int, field: str, problem: str) -> InvalidBatch:
    return InvalidBatch(f"record batch at {at}: {problem}", field=field, position=at)


def check_times(times_ms: Iterable[int | None], settings: TopicSettings, *, now_ms: int) -> None:
    """Raise UnrepresentableRecord for records with a timestamp too far from the server's clock. As LogValidator does,
    it names all of them. A record without a timestamp (None, NO_TIMESTAMP) passes. Under LogAppendTime all pass.
    """
    before_ms, after_ms = settings.timestamp_before_ms, settings.timestamp_after_ms
    if settings.log_append_time or (before_ms is None and after_ms is None):
        return
    found: list[tuple[int, int, str]] = []
    for index, time_ms in enumerate(times_ms):
        if time_ms is None or time_ms == NO_TIMESTAMP:
            continue
        if before_ms is not None and now_ms - time_ms > before_ms:
            found.append((index, time_ms, f"{TIMESTAMP_BEFORE}={before_ms}"))
        elif after_ms is not None and time_ms - now_ms > after_ms:
            found.append((index, time_ms, f"{TIMESTAMP_AFTER}={after_ms}"))
    if found:
        raise _untimely(found, now_ms)


def check_keys(records: Iterable[Record], settings: TopicSettings) -> None:
    """Raise UnrepresentableRecord for records without a key if the topic is compacted: compaction would drop them. As
    LogValidator does, it names all of them.
    """
    if settings.compacts:
        _refuse_keyless([index for index, record in enumerate(records) if record.key is None])


def check_batch_keys(
    data: bytes, batches: Sequence[AppendedBatch], settings: TopicSettings
) -> None:
    """Check the keys of a client's whole batches as `check_keys` does."""
    if not settings.compacts:
        return
    found: list[int] = []
    before = 0
    for at, header in batches:
        found += [before + number for number in keyless(data, at, header)]
        before += header.count
    _refuse_keyless(found)


def _refuse_keyless(indexes: Sequence[int]) -> None:
    if indexes:
        raise UnrepresentableRecord(
            f"record {indexes[0]}: it has no key. The topic is compacted (cleanup.policy): it keeps the newest record "
            "of each key",
            field="key",
            index=indexes[0],
            indexes=indexes,
        )


def check_batch_times(
    data: bytes, batches: Sequence[AppendedBatch], settings: TopicSettings, *, now_ms: int
) -> None:
    """Check the timestamps of a client's whole batches as `check_times` does."""
    if settings.timestamp_before_ms is None and settings.timestamp_after_ms is None:
        return  # spares decoding the records
    times_ms = (
        record[1] for at, header in batches for record in decode_records(data, at, header=header)
    )
    check_times(times_ms, settings, now_ms=now_ms)


def _untimely(found: Sequence[tuple[int, int, str]], now_ms: int) -> UnrepresentableRecord:
    index, time_ms, limit = found[0]
    return UnrepresentableRecord(
        f"record {index}: timestamp {time_ms} is {abs(now_ms - time_ms)} ms "
        f"{'before' if time_ms < now_ms else 'after'} the server's clock: the topic's limit is {limit}",
        field="timestamp",
        index=index,
        indexes=[number for number, _, _ in found],
    )


def take_in(data: bytes, batches: Sequence[AppendedBatch]) -> Encoded:
    """Return a client's batches in the form that the log stores. Each record is checked. A wrong largest timestamp in a
    header is corrected, as LogValidator does.

    Raises InvalidBatch (field records, position).
    """
    buffer: bytearray | None = None
    taken: list[AppendedBatch] = []
    for batch in batches:
        at, header = batch
        latest = _latest_or_fault(data, at, header)
        if isinstance(latest, str):
            raise InvalidBatch(f"record {latest}", field="records", position=at)
        if latest != header.max_timestamp:
            buffer = bytearray(data) if buffer is None else buffer
            restamp_latest(buffer, at, latest)
            taken.append(AppendedBatch(at, decode_header(buffer, at)))
        else:
            taken.append(batch)
    return Encoded(data if buffer is None else bytes(buffer), taken)


def taken(data: bytes, settings: TopicSettings, rules: BatchRules) -> Encoded:
    """Check whole batches of one append, and return a client's as `take_in` does.

    Raises the errors of `check_batches` and `take_in`.
    """
    batches = check_batches(
        data,
        limit_bytes=settings.max_message_bytes,
        keep_offsets=rules.keep_offsets,
        client=rules.client,
        transaction=rules.transaction,
        with_crc=not rules.checked,
    )
    return take_in(data, batches) if rules.has_unchecked else Encoded(data, batches)


def check_taken(new: Encoded, settings: TopicSettings, *, now_ms: int) -> None:
    """Check the timestamps and keys of a client's batches. Raises UnrepresentableRecord."""
    check_batch_times(new.data, new.batches, settings, now_ms=now_ms)
    check_batch_keys(new.data, new.batches, settings)


def are_compressed(data: bytes) -> bool:
    """Return whether any of these batches is compressed. False for bytes that are no batches."""
    with suppress(DataError):
        return any(header.codec for _, header in split_batches(data, with_crc=False))
    return False


def check_client_batches(
    data: bytes,
    settings: TopicSettings,
    transaction: ProducerEpoch | None = None,
    *,
    now_ms: int,
) -> Encoded:
    """Check a client's batches and return them as `take_in` does.

    Raises the errors of `taken` and `check_taken`.
    """
    new = taken(data, settings, BatchRules(transaction=transaction))
    check_taken(new, settings, now_ms=now_ms)
    return new


def _latest_or_fault(data: bytes, at: int, header: BatchHeader) -> int | str:
    """Return the largest timestamp, or a fault as text. A chained error would keep all decompressed bytes in memory
    until the request is answered, up to 256 MiB for each request.
    """
    try:
        return check_records(data, at, header)
    except DataError as error:
        return error.message


def _check_new_batch(at: int, header: BatchHeader) -> None:
    """Raise InvalidBatch for header fields that a right CRC does not prove (LogValidator, ProducerStateManager):

    - There are as many offsets as records.
    - The records fit into the bytes of the batch.
    - Producer id, producer epoch and base sequence number are in their ranges. With a producer id there is an epoch
      and, except in a control batch, a sequence number.
    """
    codec_bytes = header.size_bytes - HEADER_SIZE if header.codec == 0 else DEFAULT_MAX_BYTES
    idempotent = header.producer_id >= 0
    lowest_sequence = 0 if idempotent and not header.is_control else -1
    checks = (
        ("count", header.count, header.last_offset_delta + 1, header.last_offset_delta + 1),
        ("count", header.count, 1, codec_bytes // MIN_RECORD_BYTES),
        ("producer_id", header.producer_id, -1, INT64_MAX),
        ("producer_epoch", header.producer_epoch, 0 if idempotent else -1, INT16_MAX),
        ("base_sequence", header.base_sequence, lowest_sequence, INT32_MAX),
    )
    for field, value, low, high in checks:
        if not low <= value <= high:
            wanted = f"{low}" if low == high else f"{low} to {high}"
            raise _invalid(at, field, f"{field} is {value}, it must be {wanted}")


def check_span(batches: Sequence[AppendedBatch]) -> None:
    """Raise InvalidBatch for batches that no segment can hold: its index stores relative offsets in 31 bits."""
    first, last = batches[0].header.base_offset, batches[-1].header.last_offset
    if last - first > INT32_MAX or last >= INT64_MAX:
        raise InvalidBatch(
            f"record batches from offset {first} to {last}: one append may span {INT32_MAX} offsets "
            f"and end below {INT64_MAX}",
            field="base_offset",
            position=batches[-1].at,
        )


def stamp_batches(data: bytes, batches: Sequence[AppendedBatch], mark: Stamp) -> Encoded:
    """Return the batches with offsets from `mark.base_offset` on and the leader epoch of `mark`. Under LogAppendTime
    the batches get its time too.

    `data` does not change. Its records are written from where they are, unless the batches are so small that one copy
    costs less than a part for each.
    """
    view = memoryview(data)
    parts: list[Buffer] = []
    stamped: list[AppendedBatch] = []
    offset = mark.base_offset
    for at, header in batches:
        end = at + header.size_bytes
        if mark.log_append_time:
            whole = bytearray(view[at:end])
            stamp(whole, 0, base_offset=offset, leader_epoch=mark.leader_epoch)
            restamp_append_time(whole, 0, mark.now_ms)
            new = decode_header(bytes(whole[:HEADER_SIZE]), 0)
            parts.append(whole)
        else:
            head = bytearray(view[at : at + HEADER_SIZE])
            stamp(head, 0, base_offset=offset, leader_epoch=mark.leader_epoch)
            new = BatchHeader(offset, header.length, mark.leader_epoch, *header[3:])
            parts += head, view[at + HEADER_SIZE : end]
        stamped.append(AppendedBatch(at, new))
        offset = new.next_offset
    if len(parts) > MAX_PIECES or len(data) < len(batches) * LEAST_PART_BYTES:
        return Encoded(b"".join(parts), stamped)
    return Encoded(data, stamped, parts)


def check_kept_offsets(batches: Sequence[AppendedBatch], next_offset: int) -> None:
    """Raise InvalidBatch unless the offsets that the batches have already continue a log that ends at `next_offset`."""
    for at, header in batches:
        if header.base_offset < next_offset:
            problem = (
                f"base offset {header.base_offset} is below {next_offset}, the next of the log"
            )
            raise _invalid(at, "base_offset", problem)
        next_offset = header.next_offset


def check_one_producer(batches: Sequence[AppendedBatch]) -> None:
    """Raise InvalidBatch unless all data batches of a sequenced append have the same producer id and epoch and an
    unbroken sequence. An append in which no data batch has a producer id passes.
    """
    data = [batch for batch in batches if not batch.header.is_control]
    if all(header.producer_id < 0 for _, header in data):
        return
    for (_, before), (at, header) in pairwise(data):
        producer = (header.producer_id, header.producer_epoch)
        expected = (before.last_sequence + 1) % SEQUENCES
        if producer != (before.producer_id, before.producer_epoch):
            field = "producer_id"
        elif header.base_sequence != expected:
            field = "base_sequence"
        else:
            continue
        raise _invalid(at, field, f"{field} does not go on from the batch before it")


def mark_of(header: BatchHeader) -> ProducerSequence:
    """Return the producer id, epoch and base sequence number of a batch."""
    return ProducerSequence(
        header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional
    )


def encode_markers(markers: Sequence[PartitionMarker], *, now_ms: int) -> Encoded:
    """Encode the markers of transactions, one batch each, still without offsets: see `stamp_batches`."""
    parts = [
        encode_control_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=now_ms,
        )
        for marker in markers
    ]
    batches: list[AppendedBatch] = []
    at = 0
    for part in parts:
        batches.append(AppendedBatch(at, decode_header(part)))
        at += len(part)
    return Encoded(b"".join(parts), batches)


def as_one(known: Sequence[AppendResult | None]) -> AppendResult | None:
    """Return one result for batches that were all stored before, one directly after the other; else None."""
    found = [result for result in known if result is not None]
    if len(found) < len(known):
        return None
    if any(after.base_offset != before.last_offset + 1 for before, after in pairwise(found)):
        return None
    first, last = found[0].base_offset, found[-1].last_offset
    return AppendResult(first, last, -1, range(first, last + 1), duplicate=True)


def check_appendable(
    records: Sequence[Record] | bytes,
    settings: TopicSettings,
    *,
    compression: str | None,
    producer: ProducerSequence | None,
    now_ms: int,
) -> None:
    """Raise the error that an append of these records, or of a client's whole batches, would raise."""
    if isinstance(records, bytes):
        batches = check_client_batches(records, settings, now_ms=now_ms).batches
        check_one_producer(batches)
        check_span(stamp_batches(records, batches, Stamp(0, 0, 0, log_append_time=False)).batches)
    elif records:
        check_times([record.timestamp_ms for record in records], settings, now_ms=now_ms)
        check_keys(records, settings)
        encode_records(
            records,
            Stamp(0, 0, now_ms, settings.log_append_time),
            compression=compression or settings.compression,
            producer=producer,
            limit_bytes=settings.max_message_bytes,
        )
