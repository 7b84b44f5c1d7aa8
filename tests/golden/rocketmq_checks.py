"""Checks that hold for any store of the real RocketMQ with expectations: golden stores, and stores made for one run.

Owns the comparisons; must not choose the stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from storage import (
    Bound,
    FindQuery,
    LogStore,
    RawMessage,
    StoreOptions,
    SupportsInspect,
    SupportsRawMessages,
    TopicPartition,
    open_inspector,
)
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq.format.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, Message
from storage.rocketmq.format.properties import decode_properties
from tests.cli.runner import fine, settings_options
from tests.contract.harness import ManualClock
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Row

ALL_OF_THEM = 1_000_000
REBUILT = Path("/store")


def dump(golden: GoldenStore, *options: object) -> list[Row]:
    """Return the rows that `logserver dump` prints for a store; it must succeed without messages."""
    return fine("dump", golden.root, *settings_options(golden.settings), *options).rows


def inspect(golden: GoldenStore) -> SupportsInspect:
    """Open the store for inspection only."""
    return open_inspector(golden.root, StoreOptions(settings=golden.settings))


# ---- records ---------------------------------------------------------------------------------------------------------


def check_records(golden: GoldenStore) -> None:
    """Check that `dump --what records` prints the lines of expected.jsonl, with complete bodies."""
    longest = golden.longest_body
    rows = [stores.shown(row, longest_body=longest) for row in dump(golden)]
    found = map(stores.by_golden_order, rows)
    assert list(map(stores.in_order, found)) == list(map(stores.in_order, golden.expected()))


def check_bodies(golden: GoldenStore) -> None:
    """Check that bodies are printed completely, however long."""
    for row in dump(golden):
        assert "bodySha256" not in row
        assert len(row["body"]) == (row["bodyLength"] + 2) // 3 * 4


def check_commit_log(golden: GoldenStore) -> None:
    """Check that `dump --what commitlog` prints the lines of commitlog.jsonl."""
    found = dump(golden, "--what", "commitlog")
    expected = golden.lines("commitlog.jsonl")
    assert list(map(stores.in_order, found)) == list(map(stores.in_order, expected))


def check_index_files(golden: GoldenStore) -> None:
    """Check that `dump --what indexfile` prints index-dump.json, except the names of files rebuilt by recovery."""
    found = dump(golden, "--what", "indexfile")
    expected = golden.index_dump
    if not golden.clean:
        found, expected = list(map(_nameless, found)), list(map(_nameless, expected))
    assert found == expected


def _nameless(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "file"}


def check_library(golden: GoldenStore, store: LogStore) -> None:
    """Check that the library reads what the real store read: records with all times, properties and ids; bounds."""
    expected = list(map(stores.library_view, golden.expected()))
    found = [
        stores.library_row(store, address, record)
        for address in golden.queues
        for record in store.scan(address)
    ]
    assert found == expected
    for address, (start, end) in golden.queues.items():
        assert store.bounds(address) == (start, end, end), address
    assert set(golden.queues) <= set(stores.addresses(store))


def check_ids(golden: GoldenStore, store: LogStore) -> None:
    """Check that every record is found by its offset id."""
    for row in golden.expected():
        address, record = store.find_by_id(row["msgId"])
        assert stores.library_row(store, address, record) == stores.library_view(row)


# ---- lookups ---------------------------------------------------------------------------------------------------------


def check_times(golden: GoldenStore, store: LogStore) -> None:
    """Check every lookup by time against the real answer: without a result LOWER is the end, UPPER the start."""
    for row in golden.json("times.json"):
        address = TopicPartition(row["topic"], row["queueId"])
        bounds = store.bounds(address)
        lower = store.offset_for_time(address, row["timestamp"])
        upper = store.offset_for_time(address, row["timestamp"], bound=Bound.UPPER)
        answer = {
            "default": bounds.end if lower is None else lower.offset,
            "lower": bounds.end if lower is None else lower.offset,
            "upper": bounds.start if upper is None else upper.offset,
        }
        assert answer.items() <= row.items(), row


def check_raw_answers(golden: GoldenStore) -> None:
    """Check that `find --raw` equals `indexOrder`, and equals `result` once sorted and without deleted records."""
    inspector = inspect(golden)
    for query in golden.json("queries.json"):
        wanted = _wanted(query, raw=True, limit=query["maxNum"])
        found = [row["physicalOffset"] for row in inspector.find(wanted)]
        assert found == query["indexOrder"], query
        kept = sorted(offset for offset in query["indexOrder"] if offset >= golden.start)
        assert kept == query["result"], query
    inspector.close()


def check_answers(golden: GoldenStore) -> None:
    """Check that `find` returns the records that really have the key and a store time in the range.

    The real store keeps the times of index entries in whole seconds, so it misses some records at the ends of a range
    and returns some beyond them; our answers are exact. After a crash it indexes a record again and returns it twice.
    Where neither effect applies, the answers equal the real ones.
    """
    records = {message.physical_offset: message for message in golden.messages()}
    inspector = inspect(golden)
    for query in golden.json("queries.json"):
        exact = [m.physical_offset for m in records.values() if _answers(query, m)]
        unlimited = inspector.find(_wanted(query, uniq=_is_unique_id(query, records.values())))
        assert [row["physicalOffset"] for row in unlimited] == exact, query
        real = [offset for offset in query["result"] if _has_key(query, records[offset])]
        in_range = [offset for offset in real if _in_range(query, records[offset])]
        assert set(in_range) <= set(exact), query
        if query["begin"] == 0 and len(query["indexOrder"]) < query["maxNum"]:
            assert exact == sorted(set(real)), query
    inspector.close()


def check_limited_answers(golden: GoldenStore) -> None:
    """Check that `find` returns the newest records, in log order, if more records match than the limit."""
    messages = list(golden.messages())
    inspector = inspect(golden)
    for query in golden.json("queries.json"):
        exact = [m.physical_offset for m in messages if _answers(query, m)]
        uniq = _is_unique_id(query, messages)
        limited = inspector.find(_wanted(query, uniq=uniq, limit=query["maxNum"]))
        found = [row["physicalOffset"] for row in limited]
        assert found == exact[-query["maxNum"] :], query
    inspector.close()


def _wanted(
    query: Row, *, raw: bool = False, uniq: bool = False, limit: int = ALL_OF_THEM
) -> FindQuery:
    by = "tag" if query.get("indexType") == "T" else "unique_id" if uniq else "key"
    return FindQuery(
        topic=query["topic"],
        from_ms=query["begin"],
        to_ms=query["end"],
        limit=limit,
        raw=raw,
        **{by: query["key"]},
    )


def _properties(message: Message) -> dict[str, str]:
    return decode_properties(message.properties)


def _is_unique_id(query: Row, messages: Iterable[Message]) -> bool:
    key = query["key"]
    return any(_properties(m).get("UNIQ_KEY") == key for m in messages)


def _has_key(query: Row, message: Message) -> bool:
    """Return whether the record really has this key, not another key with the same hash."""
    properties = _properties(message)
    if query.get("indexType") == "T":
        return bool(properties.get("TAGS") == query["key"])
    keys = properties.get("KEYS", "").split(" ")
    return query["key"] in (*keys, properties.get("UNIQ_KEY"))


def _in_range(query: Row, message: Message) -> bool:
    return bool(query["begin"] <= message.store_timestamp_ms <= query["end"])


def _answers(query: Row, message: Message) -> bool:
    indexed = message.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    ours = message.topic == query["topic"] and _has_key(query, message)
    return indexed and ours and _in_range(query, message)


def check_found_by_the_library(golden: GoldenStore, store: LogStore) -> None:
    """Check that the store's own `find` returns the same records, page by page, in both directions."""
    queued = {(row["topic"], row["physicalOffset"]) for row in golden.expected()}
    messages = list(golden.messages())
    for query in golden.json("queries.json"):
        exact = [
            m.physical_offset
            for m in messages
            if _answers(query, m) and (m.topic, m.physical_offset) in queued
        ]
        uniq = _is_unique_id(query, messages)
        assert found_offsets(store, query, uniq=uniq) == exact, query
        backward = found_offsets(store, query, uniq=uniq, backward=True)
        assert backward == exact[::-1], query


def found_offsets(
    store: LogStore, query: Row, *, uniq: bool = False, backward: bool = False
) -> list[int]:
    """Return the physical offsets of all pages of a `find`; small pages give several of them."""
    by = "tag" if query.get("indexType") == "T" else "unique_id" if uniq else "key"
    found: list[int] = []
    cursor = None
    while True:
        page = store.find(
            query["topic"],
            from_ms=query["begin"],
            to_ms=query["end"],
            limit=7,
            cursor=cursor,
            backward=backward,
            **{by: query["key"]},
        )
        for number, record in page.records:
            address = TopicPartition(query["topic"], number)
            found.append(stores.physical_offset(store, address, record))
        assert page.time_axis == "store_timestamp"
        if page.complete:
            return found
        cursor = page.cursor
        assert cursor is not None


# ---- rewriting -------------------------------------------------------------------------------------------------------


def as_raw(message: Message) -> RawMessage:
    """Return a log record in the form that `append_messages` takes."""
    return RawMessage(
        body=message.body,
        properties=message.properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def appends(golden: GoldenStore) -> Iterator[list[Message]]:
    """Yield the records as they were appended: one by one; in `batch` a batch is a run of one queue and time."""
    batched = golden.name.startswith(stores.BATCHES)
    for _, run in groupby(enumerate(golden.messages()), key=lambda pair: _run(pair, batched)):
        yield [message for _, message in run]


def _run(pair: tuple[int, Message], batched: bool) -> tuple[Any, ...]:
    number, message = pair
    if batched:
        return message.topic, message.queue_id, message.store_timestamp_ms
    return (number,)


def rewrite(golden: GoldenStore, fs: FileSystem, root: Path = REBUILT) -> None:
    """Append the golden records to a new store, with their clock and hosts, and stop it."""
    clock = ManualClock(0)
    queues: dict[str, int] = {}
    for message in golden.messages():
        queues[message.topic] = max(queues.get(message.topic, 1), message.queue_id + 1)
    stores.put_topics(fs, root, queues)
    with stores.open_golden(golden, path=root, fs=fs, clock=clock) as store:
        assert isinstance(store, SupportsRawMessages)
        for run in appends(golden):
            clock.now_ms = run[0].store_timestamp_ms
            result = store.append_messages(
                TopicPartition(run[0].topic, run[0].queue_id),
                list(map(as_raw, run)),
                store_timestamp_ms=run[0].store_timestamp_ms,
                store_host=run[0].store_host,
            )
            if run[0].in_queue:
                assert result.base_offset == run[0].queue_offset


def check_rewritten(golden: GoldenStore) -> None:
    """Check that the same records make the same commit log, queues and index files (except the index files' names)."""
    fs = OverlayFileSystem()
    rewrite(golden, fs)
    disk = stores.overlay()
    for part in ("commitlog", "consumequeue"):
        made = stores.files_below(fs, REBUILT, part)
        real = stores.files_below(disk, golden.root, part)
        assert sorted(made) == sorted(real)
        assert [name for name in real if made[name] != real[name]] == []
    made_index = stores.files_below(fs, REBUILT, "index")
    real_index = stores.files_below(disk, golden.root, "index")
    assert [made_index[name] for name in sorted(made_index)] == [
        real_index[name] for name in sorted(real_index)
    ]
