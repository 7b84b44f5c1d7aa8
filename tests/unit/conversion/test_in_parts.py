"""A conversion in parts gives the same records as a conversion record by record, but in other segments."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from storage import (
    LogStore,
    RawMessage,
    StoreOptions,
    TopicPartition,
    convert_store,
    open_inspector,
    open_store,
)
from storage.errors import NotOffered, UnrepresentableRecord
from storage.rocketmq.format.properties import encode_properties
from tests.golden import rocketmq_stores, stores
from tests.golden.rocketmq_stores import GoldenStore
from tests.interop import written

P = TypeVar("P")
R = TypeVar("R")
SIZES = rocketmq_stores.golden("small").settings
HOST = b"\x7f\x00\x00\x01\x00\x00*\x9f"
STORES = [golden for golden in rocketmq_stores.all_stores() if golden.name != "broker"]


def elsewhere(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
    """Run parts as other processes would: parts and results are pickled, and each part is run twice."""
    for part in parts:
        work(pickle.loads(pickle.dumps(part)))
        done: R = pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(part)))))
        yield done


@pytest.mark.parametrize("golden", STORES, ids=rocketmq_stores.by_id)
def test_rocketmq_to_kafka(golden: GoldenStore, tmp_path: Path) -> None:
    options = StoreOptions(settings=golden.settings)
    one, many = tmp_path / "one", tmp_path / "many"
    report = convert_store(golden.root, one, to="kafka", encode=True, options=options)
    parts = convert_store(
        golden.root,
        many,
        to="kafka",
        encode=True,
        options=options,
        run=elsewhere,
        split_bytes=20_000,
    )
    assert replace(parts, target=report.target) == report
    with (
        open_store("kafka", one, read_only=True) as mine,
        open_store("kafka", many, read_only=True) as theirs,
    ):
        assert written.rows(theirs) == written.rows(mine)
    if golden.name == "many":
        assert len(list(many.rglob("*.log"))) > len(list(one.rglob("*.log")))
    assert not list(many.glob("part-*"))


def test_records_that_meet_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    """All records of the queue came from Kafka, with falling offsets, so that the offsets of the parts meet."""
    address = TopicPartition("t", 0)
    with open_store("rocketmq", tmp_path / "store", StoreOptions(settings=SIZES)) as store:
        for number in range(40):
            offset = encode_properties({"__kafka_offset": str(100 - number)})
            message = RawMessage(b"x" * 500, offset, born_host=HOST)
            store.append_messages(address, [message])  # type: ignore[attr-defined]
    with pytest.raises(NotOffered, match="t-0 has records that were Kafka's"):
        convert_store(
            tmp_path / "store", tmp_path / "new", to="kafka", run=elsewhere, split_bytes=2000
        )
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    report = convert_store(tmp_path / "store", tmp_path / "new", to="kafka")
    assert (report.records, len(report.moved)) == (40, 1)


SMALL = {**SIZES, "mappedFileSizeCommitLog": str(512 << 10)}


def logical(store: LogStore) -> list[tuple[object, ...]]:
    """Return every message of every queue with its times, whatever its position in the log."""
    return [
        (address, r.offset, r.timestamp_ms, r.store_timestamp_ms, r.value, r.properties)
        for address in rocketmq_stores.addresses(store)
        for r in store.scan(address)
    ]


def order_of(root: Path, options: StoreOptions) -> list[tuple[object, ...]]:
    """Return the messages in the order of the log."""
    inspector = open_inspector(root, options)
    rows = [row for run in inspector.dump("commitlog") for row in run]
    inspector.close()
    names = ("topic", "queueId", "queueOffset", "storeTimestamp", "size")
    return [tuple(row[name] for name in names) for row in rows if row["kind"] == "log"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in stores.healthy_stores() if n not in {"codecs", "edge"}]
)
@pytest.mark.parametrize("encode", [True, False], ids=["encode", "plain"])
def test_kafka_to_rocketmq(name: str, encode: bool, tmp_path: Path) -> None:
    """The files are too small for all messages, and each file is written by a part of its own."""
    root = stores.KAFKA / name / "data"
    options = StoreOptions(settings=SMALL)
    one, many = tmp_path / "one", tmp_path / "many"
    report = convert_store(root, one, to="rocketmq", encode=encode, target_options=options)
    parts = convert_store(
        root,
        many,
        to="rocketmq",
        encode=encode,
        target_options=options,
        run=elsewhere,
        split_bytes=20_000,
    )
    assert replace(parts, target=report.target, hidden=()) == replace(report, hidden=())
    with (
        open_store("rocketmq", one, options, read_only=True) as mine,
        open_store("rocketmq", many, options, read_only=True) as theirs,
    ):
        assert logical(theirs) == logical(mine)
    assert order_of(many, options) == order_of(one, options)
    inspector = open_inspector(many, options)
    assert list(inspector.verify()) == []
    inspector.close()
    assert not list(many.glob("part-*"))


def test_a_log_of_several_files_is_written_by_as_many_parts(tmp_path: Path) -> None:
    options = StoreOptions(settings={**SIZES, "mappedFileSizeCommitLog": str(96 << 10)})
    root = stores.KAFKA / "segments" / "data"
    convert_store(root, tmp_path / "one", to="rocketmq", target_options=options)
    convert_store(root, tmp_path / "many", to="rocketmq", target_options=options, run=elsewhere)
    assert len(list((tmp_path / "many/commitlog").iterdir())) > 2
    assert order_of(tmp_path / "many", options) == order_of(tmp_path / "one", options)


def test_files_too_small_to_be_cut_are_refused(tmp_path: Path) -> None:
    options = StoreOptions(settings={**SIZES, "mappedFileSizeCommitLog": "8192"})
    root = stores.KAFKA / "parts" / "data"
    with pytest.raises(UnrepresentableRecord, match="mappedFileSizeCommitLog"):
        convert_store(root, tmp_path / "new", to="rocketmq", target_options=options, run=elsewhere)
    assert list(tmp_path.iterdir()) == []
