"""A store on the disk that the tests of splits write, read and damage.

Owns a store of small files in one folder, and the records as the store's own reader returns them, by column name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage import (
    Finding,
    LogStore,
    RawMessage,
    Splitter,
    StoredRecord,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.rocketmq.format.message_id import host_text
from storage.rocketmq.store import RocketMQStore
from tests.column_rows import ALL_COLUMNS, Row, everything, read_rows

LOG_BYTES = 4096
QUEUE_BYTES = 200
SMALL = StoreOptions(
    settings={
        "mappedFileSizeCommitLog": str(LOG_BYTES),
        "mappedFileSizeConsumeQueue": str(QUEUE_BYTES),
        "maxHashSlotNum": "7",
        "maxIndexNum": "100000",
    }
)
T0 = TopicPartition("t", 0)
# Message fields that the store's reader does not return.
_RAW = ("sys_flag", "flag", "reconsume_times", "born_host", "store_host")


def open_small(
    path: Path, *, options: StoreOptions = SMALL, read_only: bool = False
) -> RocketMQStore:
    """Open the store at `path`, created if missing; with `read_only` as recovery would leave it."""
    store = open_store("rocketmq", path, options, read_only=read_only)
    assert isinstance(store, RocketMQStore)
    return store


def numbered(count: int, *, first: int = 0, body_bytes: int = 20) -> list[RawMessage]:
    """Return `count` distinguishable messages: each body begins with its number."""
    return [
        RawMessage(
            body=b"%d " % number + b"b" * body_bytes,
            properties=b"KEYS\x01k%d\x02TAGS\x01tag%d\x02color\x01red\x02" % (number, number % 3),
            born_timestamp_ms=number,
        )
        for number in range(first, first + count)
    ]


def made(path: Path, counts: Sequence[int] = (30, 5, 0), **options: int) -> RocketMQStore:
    """Create a store with the topic t; `counts` gives the number of records in each queue."""
    store = open_small(path)
    store.create_topic("t", len(counts))
    for turn in range(max(counts)):
        for queue_id, count in enumerate(counts):
            if turn < count:
                store.append_messages(
                    TopicPartition("t", queue_id), numbered(1, first=turn, **options)
                )
    return store


def stored_row(store: LogStore, partition: TopicPartition, record: StoredRecord) -> Row:
    """Return a record as a row, with the values that the store's reader returns."""
    properties = dict(record.properties or {})
    message_id = store.record_id(partition, record.locator)
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": 0,
        "key": record.key,
        "value": record.value,
        "headers": [[name.encode(), value] for name, value in record.headers],
        "tag": _bytes(record.tag),
        "keys": _bytes(properties.get("KEYS")),
        "unique_id": _bytes(properties.get("UNIQ_KEY")),
        "properties": [[name.encode(), value.encode()] for name, value in properties.items()],
        "message_id": message_id.encode(),
        "store_timestamp_ms": record.store_timestamp_ms,
        "physical_offset": int(message_id[-16:], 16),
        "suspect": " ".join(record.suspect).encode(),
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def stored_rows(store: LogStore) -> dict[TopicPartition, list[Row]]:
    """Return all records of a store as its reader returns them, with the fields of the stored message added."""
    assert isinstance(store, RocketMQStore)
    found: dict[TopicPartition, list[Row]] = {}
    for topic, info in store.topics().items():
        for number in info.partitions:
            partition = TopicPartition(topic, number)
            for record in store.scan(partition):
                row = stored_row(store, partition, record)
                found.setdefault(partition, []).append(row | _raw(store, row["physical_offset"]))
    return found


def _raw(store: RocketMQStore, position: int) -> Row:
    log = store.log
    message = log.checked(log.read(position, log.size_at(position)), 0, position)
    found = {name: getattr(message, name) for name in _RAW}
    hosts = {name: host_text(found[name]).encode() for name in ("born_host", "store_host")}
    return found | hosts


def split_rows(
    splitter: Splitter, *, split_bytes: int = 1 << 20, min_splits: int = 1
) -> dict[TopicPartition, list[Row]]:
    """Return all rows of all splits, in the form of `stored_rows`."""
    splits = splitter.plan(everything(splitter), split_bytes=split_bytes, min_splits=min_splits)
    return listed(read_rows(splits, ALL_COLUMNS))


def listed(rows: dict[TopicPartition, list[Row]]) -> dict[TopicPartition, list[Row]]:
    """Return the same rows with each pair as a list."""
    return {
        partition: [
            {
                name: [list(pair) for pair in value] if isinstance(value, list) else value
                for name, value in row.items()
            }
            for row in of_partition
        ]
        for partition, of_partition in rows.items()
    }


def bodies(rows: dict[TopicPartition, list[Row]], partition: TopicPartition = T0) -> list[int]:
    """Return the numbers of the messages that were read."""
    return [int(row["value"].split()[0]) for row in rows.get(partition, [])]


def damage(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a file at a position."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def record_place(path: Path, body: bytes) -> tuple[Path, int]:
    """Return the log file that contains `body`, and the position of the body in it."""
    for file in sorted((path / "commitlog").iterdir()):
        position = file.read_bytes().find(body)
        if position >= 0:
            return file, position
    raise AssertionError(body)


def rows_and_findings(
    splitter: Splitter, *, min_splits: int = 1
) -> tuple[dict[TopicPartition, list[Row]], list[Finding]]:
    """Return the rows that can be read, and the findings about all other rows."""
    findings: list[Finding] = []
    splits = splitter.plan(everything(splitter), min_splits=min_splits)
    return read_rows(splits, on_damage=findings.append), findings
