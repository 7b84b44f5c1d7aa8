"""Record batches in front of a RocketMQ store: an adapter for Kafka clients, who know batches only.

Owns the batches that a client sends, as records, and the records of a queue as batches; must not decide what a message
can hold: that is the store, whose own mapping is used (`storage/rocketmq/log/encoding.py`, `reading.py`). So a record
looks the same however it came. In addition the headers TAGS and KEYS are tag and lookup keys, as on Kafka's
format.

    in     check the batch (CRC, counts, attributes) -> decompress, decode -> Records -> one append of messages
    out    a page of records -> batches; the base offset of a batch is the queue offset of its first message

A batch has no gap: one begins at each gap of the queue. Its times are the born times. It has no codec, and the leader
epoch is always 0: a RocketMQ queue has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from storage.contract import DEFAULT_MAX_BYTES
from storage.errors import (
    DataError,
    InvalidBatch,
    InvalidTopic,
    NotOffered,
    UnknownTopic,
    UnrepresentableRecord,
)
from storage.kafka.format.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAX_LENGTH,
    BatchHeader,
    content_of,
    decode_header,
    decode_records,
    encode_batch,
    seal,
)
from storage.kafka.format.names import validate_new_topic
from storage.kafka.format.record import NO_TIMESTAMP, NewRecord
from storage.kafka.log.encoding import are_compressed, check_batches, mark_of
from storage.kafka.log.reading import KEYS_HEADER, TAGS_HEADER
from storage.model import (
    AppendResult,
    BatchPage,
    ConfigSource,
    EpochEnd,
    Header,
    Isolation,
    ProducerEpoch,
    Record,
    StoredRecord,
    TopicConfig,
    TopicPartition,
)
from storage.rocketmq.format.names import is_system_topic
from storage.rocketmq.format.names import validate_new_topic as validate_rocketmq_topic
from storage.rocketmq.format.properties import KEY_SEPARATOR
from storage.rocketmq.state.settings import INERT_CONFIGS, check_topic_config
from storage.rocketmq.store import RocketMQStore

EPOCH: Final = 0
ALL_THAT_FIT: Final = 1 << 30
KNOWN_NAMES: Final = 4096
_KINDS: Final = {"perm": "int", "topicSysFlag": "int", "order": "bool"}
_ATTRIBUTES: Final = "attributes"


class BatchesOverMessages:
    """See ClientBatches. The topics of the broker itself, and those whose name no Kafka topic can have, as of retries,
    are not served.
    """

    has_transactions = False

    def __init__(self, store: RocketMQStore) -> None:
        self._store = store
        self.are_compressed = are_compressed
        self.bounds = store.bounds

    def serves(self, topic: str) -> bool:
        return _is_for_clients(topic)

    def check_name(self, topic: str) -> None:
        validate_new_topic(topic)
        validate_rocketmq_topic(topic)

    # ---- in ----

    def check_client_batches(
        self, topic: str, data: bytes, transaction: ProducerEpoch | None = None
    ) -> bytes:
        """Return a client's batch without its compression. Its records are checked when they are appended.

        Raises InvalidBatch, and UnrepresentableRecord for a batch that is a marker or part of a transaction.
        """
        header = _checked(data)
        if not header.codec:
            return data
        try:
            content, start, stop = content_of(data, 0, header)
        except DataError as error:
            raise _invalid(error.message) from None
        plain = header._replace(attributes=header.attributes & ~CODEC_MASK)
        payload = content[start:stop]
        return b"".join([seal(plain, payload), payload])

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        publish: bool = True,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
        born_host: bytes | None = None,
    ) -> AppendResult:
        """Append the records of a client's batch. Raises UnrepresentableRecord (index, indexes) for records that no
        message can hold, and for a batch that is a marker or part of a transaction; then no record is stored.
        """
        header = decode_header(data) if checked else _checked(data)
        records = _records(data, header)
        try:
            return self._store.append(
                partition,
                records,
                producer=mark_of(header) if header.producer_id >= 0 else None,
                born_hosts=() if born_host is None else [born_host] * len(records),
                publish=publish,
            )
        except UnrepresentableRecord as error:
            indexes = [i for i, record in enumerate(records) if self._is_refused(partition, record)]
            raise UnrepresentableRecord(
                error.message, **{**error.facts(), "indexes": indexes}
            ) from None

    def _is_refused(self, partition: TopicPartition, record: Record) -> bool:
        try:
            self._store.preview_topic(partition.topic, [record])
        except UnrepresentableRecord:
            return True
        return False

    # ---- out ----

    def read_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> BatchPage:
        """See SupportsBatchBytes. Nothing is aborted: a message is in its queue from the commit on."""
        page = self._store.read(
            partition, offset, max_records=ALL_THAT_FIT, max_bytes=max_bytes, isolation=isolation
        )
        if not page.records:
            return BatchPage(b"", page.next_offset, page.bounds)
        parts = list(_batches(page.records))
        next_offset = page.next_offset
        if sum(map(len, parts)) > max_bytes:  # bodies that are compressed in the log
            records = page.records[: _fitting(page.records, max_bytes)]
            parts = list(_batches(records))
            next_offset = records[-1].offset + 1
        return BatchPage(b"".join(parts), next_offset, page.bounds)

    def leader_epoch(self, partition: TopicPartition) -> int:
        self._store.queue(partition)  # raises for a partition that does not exist
        return EPOCH

    def end_of_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        bounds = self._store.bounds(partition)
        return EpochEnd(EPOCH, bounds.end) if leader_epoch == EPOCH else None

    # ---- configs ----

    def describe_configs(self, topic: str) -> Sequence[TopicConfig]:
        """Return the configs of a topic under RocketMQ's names, and under Kafka's names what holds for every topic."""
        info = self._store.topics().get(topic)
        if info is None:
            raise UnknownTopic(topic)
        return self._configs(info.configs)

    def default_configs(self) -> Sequence[TopicConfig]:
        return self._configs({})

    def check_configs(self, configs: Mapping[str, str]) -> None:
        for name, value in configs.items():
            check_topic_config(name, value)

    def _configs(self, own: Mapping[str, str]) -> Sequence[TopicConfig]:
        defaults = {**INERT_CONFIGS, _ATTRIBUTES: ""}
        found = [
            TopicConfig(
                name=name,
                value=own.get(name, inherited),
                inherited=inherited,
                source=ConfigSource.TOPIC if name in own else ConfigSource.DEFAULT,
                kind=_KINDS.get(name, "string"),
            )
            for name, inherited in defaults.items()
        ]
        return sorted([*found, *self._fixed()])

    def _fixed(self) -> Iterator[TopicConfig]:
        """Yield what Kafka's configs would be: no topic can change them."""
        settings = self._store.settings
        kept_ms = settings.file_reserved_ms
        given = ConfigSource.STORE if kept_ms is not None else ConfigSource.DEFAULT
        for name, value, kind, source, server_name in (
            ("cleanup.policy", "delete", "list", ConfigSource.DEFAULT, None),
            ("compression.type", "uncompressed", "string", ConfigSource.DEFAULT, None),
            (
                "max.message.bytes",
                f"{settings.max_message_bytes}",
                "int",
                ConfigSource.STORE,
                "message.max.bytes",
            ),
            ("message.timestamp.type", "CreateTime", "string", ConfigSource.DEFAULT, None),
            ("retention.ms", f"{-1 if kept_ms is None else kept_ms}", "long", given, None),
        ):
            yield TopicConfig(name, value, value, source, kind, server_name)


@lru_cache(KNOWN_NAMES)
def _is_for_clients(topic: str) -> bool:
    """Return whether Kafka allows a name, and the broker has no own use for the topic."""
    try:
        validate_new_topic(topic)
    except InvalidTopic:
        return False
    return not is_system_topic(topic)


def _checked(data: bytes) -> BatchHeader:
    """Return the header of a client's one batch, whose CRC and header are right.

    A producer sends one batch for a partition; the real server refuses more (ProduceRequest.validateRecords).
    """
    try:
        batches = check_batches(data, limit_bytes=MAX_LENGTH, keep_offsets=False, client=True)
    except NotOffered as error:
        raise UnrepresentableRecord(
            f"{error.message}; a RocketMQ message belongs to no Kafka transaction",
            field="attributes",
            index=0,
        ) from None
    if len(batches) > 1:
        raise InvalidBatch(
            f"{len(batches)} record batches for one partition: send one", field="count", position=0
        )
    return batches[0].header


def _records(data: bytes, header: BatchHeader) -> Sequence[Record]:
    """Return the records of a batch. Raises InvalidBatch, UnrepresentableRecord."""
    try:
        decoded = decode_records(data, header=header)
    except DataError as error:
        raise _invalid(error.message) from None
    if len(decoded) != header.count or decoded[-1][0] != header.last_offset:
        raise _invalid("offset deltas do not rise from 0 one by one")
    records: list[Record] = []
    for _, time_ms, key, value, headers in decoded:
        born_ms = None if time_ms == NO_TIMESTAMP else time_ms
        if headers:
            tag, lookup_keys, headers = _lookups(headers, len(records))
            records.append(Record(key, value, headers, born_ms, tag, lookup_keys))
        else:
            records.append(Record(key, value, (), born_ms))
    return records


def _invalid(problem: str) -> InvalidBatch:
    return InvalidBatch(f"record batch: {problem}", field="records", position=0)


def _lookups(
    headers: Sequence[Header], index: int
) -> tuple[str | None, Sequence[str], Sequence[Header]]:
    """Return tag and lookup keys, from the first headers TAGS and KEYS, and the other headers."""
    tag: str | None = None
    lookup_keys: Sequence[str] = ()
    others: list[Header] = []
    for header in headers:
        name, value = header
        if name == TAGS_HEADER and tag is None:
            tag = _text(value, name, index)
        elif name == KEYS_HEADER and not lookup_keys:
            lookup_keys = _text(value, name, index).split(KEY_SEPARATOR)
        else:
            others.append(header)
    return tag, lookup_keys, others


def _text(value: bytes | None, name: str, index: int) -> str:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise UnrepresentableRecord(
            f"record {index}: header {name} is null, empty or no UTF-8 text",
            field="headers",
            index=index,
        )
    return text


def _batches(records: Sequence[StoredRecord]) -> Iterator[bytes]:
    """Encode records as batches without gaps."""
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        yield _batch(records)
        return
    begin = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or records[at].offset != records[at - 1].offset + 1:
            yield _batch(records[begin:at])
            begin = at


def _batch(records: Sequence[StoredRecord]) -> bytes:
    listed: list[NewRecord] = [
        (record.key, record.value, _headers(record), record.timestamp_ms) for record in records
    ]
    return encode_batch(listed, base_offset=records[0].offset, leader_epoch=EPOCH, now_ms=0)


def _headers(record: StoredRecord) -> Sequence[Header]:
    """Return the headers of a record, tag and lookup keys included."""
    if record.tag is None and not record.lookup_keys:
        return record.headers
    headers = list(record.headers)
    if record.tag is not None:
        headers.append((TAGS_HEADER, record.tag.encode()))
    if record.lookup_keys:
        headers.append((KEYS_HEADER, KEY_SEPARATOR.join(record.lookup_keys).encode()))
    return headers


def _fitting(records: Sequence[StoredRecord], max_bytes: int) -> int:
    """Return how many records fit into so many bytes of batches, by their largest part; at least one."""
    left_bytes = max_bytes - HEADER_SIZE - len(records[0].value or b"")
    for at, record in enumerate(islice(records, 1, None), 1):
        left_bytes -= len(record.value or b"")
        if left_bytes < 0:
            return at
    return len(records)
