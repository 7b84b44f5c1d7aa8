"""A store read in splits gives the rows of its own reader, however it is split; damage is reported or left out."""

from __future__ import annotations

import os
import shutil
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import (
    OffsetRange,
    RawMessage,
    Splitter,
    StoreOptions,
    TopicPartition,
    open_splitter,
    read_split,
)
from storage.columns import CHUNK_BYTES
from storage.errors import Corrupt, IoFailure, OffsetOutOfRange, UnknownPartition, UnknownTopic
from storage.rocketmq.columns import read, slices
from storage.rocketmq.format.message_id import encode_host
from tests.column_rows import ALL_COLUMNS, everything, read_rows
from tests.unit.rocketmq.columns.split_yard import (
    LOG_BYTES,
    QUEUE_BYTES,
    SMALL,
    T0,
    bodies,
    damage,
    listed,
    made,
    numbered,
    open_small,
    record_place,
    rows_and_findings,
    split_rows,
    stored_rows,
)

HOSTS = [
    encode_host("10.0.0.1", 40000),
    encode_host("fd00::1", 1),
    encode_host("::ffff:1.2.3.4", 9),
]
NAMES = [
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "__SHARDINGKEY",
    "color",
    "attribute1",
    "attribute2",
    "DELAY",
    "é",
    "\x01",
    "",
]
VALUES = st.sampled_from(["", "a", "a b", "\x01", "x\x01y", "ü", "k" * 40, "\0"])


def properties_bytes() -> st.SearchStrategy[bytes]:
    """Return a strategy for properties, well-formed and malformed."""
    pairs = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=25)
    written = pairs.map(
        lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found).encode()
    )
    rough = st.lists(
        st.sampled_from(
            [b"\x01", b"\x02", b"TAGS", b"a", b"\xff", b"\xed\xa0\x80", b"\0", b"KEYS"]
        ),
        max_size=20,
    ).map(b"".join)
    return st.one_of(written, written.map(lambda data: data[:-1]), rough)


def packed_bodies() -> st.SearchStrategy[tuple[bytes, int]]:
    """Return a strategy for (stored body, sys flag)."""
    plain = st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"\x02KEYS\x01no\x02", b"", b"\xda\xa3\x20\xa7" * 9]),
    )
    return st.one_of(
        plain.map(lambda body: (body, 0)),
        plain.map(lambda body: (zlib.compress(body), 0x001)),
        plain.map(lambda body: (zlib.compress(body), 0x301)),
        plain.map(lambda body: (lz4.frame.compress(body), 0x101)),
        plain.map(lambda body: (zstandard.ZstdCompressor().compress(body), 0x201)),
    )


@st.composite
def messages(draw: st.DrawFn) -> RawMessage:
    body, sys_flag = draw(packed_bodies())
    number = st.integers(-5, 2**40)
    transaction = draw(st.sampled_from([0, 0, 0, 4, 8, 12]))
    return RawMessage(
        body=body,
        properties=draw(properties_bytes()),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        sys_flag=sys_flag | transaction,
        born_timestamp_ms=draw(number),
        born_host=draw(st.sampled_from(HOSTS)),
        reconsume_times=draw(st.integers(0, 9)),
    )


Opener: TypeAlias = Callable[..., Splitter]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """A function that opens a store for splits; the splitters are closed at the end."""
    with ExitStack() as stack:

        def open_it(path: Path, options: StoreOptions = SMALL) -> Splitter:
            splitter = open_splitter(path, options)
            stack.callback(splitter.close)
            return splitter

        yield open_it


appends = st.lists(
    st.tuples(
        st.sampled_from(["t", "t2", "a topic of another length", "x" * 130]),
        st.integers(0, 2),
        st.lists(messages(), min_size=1, max_size=6),
        st.sampled_from(HOSTS),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=20)
@given(appends, st.sampled_from([1, 300, 5000, 1 << 20]), st.integers(1, 9), st.booleans())
def test_splits_have_what_the_store_reads(
    given_appends: list[tuple[str, int, list[RawMessage], bytes]],
    split_bytes: int,
    min_splits: int,
    clean: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_small(Path(folder, "store"))
        for topic, queue_id, batch, host in given_appends:
            partition = TopicPartition(topic, queue_id)
            for message in batch:
                store.append_messages(partition, [message], store_host=host)
        if clean:
            store.close()
        left = open_small(Path(folder, "store"), read_only=True)
        splitter = open_splitter(Path(folder, "store"), SMALL)
        found = split_rows(splitter, split_bytes=split_bytes, min_splits=min_splits)
        assert found == stored_rows(left)
        for opened_store in (splitter, left, store):
            opened_store.close()


# ---- how a store is split ----


def test_one_hot_queue_is_cut_like_any_other(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path, [300, 3]).close()
    splitter = opened(tmp_path)
    splits = splitter.plan(everything(splitter), split_bytes=6000)
    assert 6 <= len(splits) <= 12
    counts = [len(rows) for split in splits for rows in read_rows([split]).values()]
    assert max(counts) < 80
    assert all(split.size_bytes < 9000 for split in splits)


def test_records_that_lie_together_are_cut_apart(tmp_path: Path, opened: Opener) -> None:
    store = made(tmp_path, [0, 200])
    store.append_messages(T0, numbered(8))
    store.close()
    splitter = opened(tmp_path)
    wanted = [OffsetRange(T0, 0, 8)]
    assert [bodies(read_rows([split])) for split in splitter.plan(wanted, min_splits=4)] == [
        [0, 1], [2, 3], [4, 5], [6, 7],
    ]  # fmt: skip
    assert len(splitter.plan(wanted, min_splits=100)) == 8
    assert len(splitter.plan(wanted)) == 1


def test_hundreds_of_queues_fit_one_split(tmp_path: Path, opened: Opener) -> None:
    store = open_small(tmp_path)
    store.create_topic("t", 200)
    for number in range(200):
        store.append_messages(TopicPartition("t", number), numbered(2, first=number))
    wanted = stored_rows(store)
    store.close()
    splitter = opened(tmp_path)
    (split,) = splitter.plan(everything(splitter))
    assert listed(read_rows([split])) == wanted


def test_nothing_asked_gives_no_split(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    assert not splitter.plan([])
    assert not splitter.plan(
        [OffsetRange(T0, 7, 7), OffsetRange(TopicPartition("t", 2), 0, 0)], min_splits=3
    )


def test_what_is_not_there_is_refused(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    with pytest.raises(UnknownTopic):
        splitter.plan([OffsetRange(TopicPartition("u", 0), 0, 0)])
    with pytest.raises(UnknownPartition):
        splitter.bounds(TopicPartition("t", 3))
    with pytest.raises(OffsetOutOfRange, match="offset 31 of t-0"):
        splitter.plan([OffsetRange(T0, 0, 31)])


def test_only_the_columns_asked_for_are_there(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    (rows,) = read_rows(
        splitter.plan([OffsetRange(T0, 3, 5)]), ["offset", "tag", "no such"]
    ).values()
    assert rows == [{"offset": 3, "tag": b"tag0"}, {"offset": 4, "tag": b"tag1"}]


def test_offsets_alone_are_told_by_the_units(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path, [30, 5]).close()
    splitter = opened(tmp_path)
    splits = splitter.plan(everything(splitter), min_splits=2)
    wanted = read_rows(splits, ["offset", "physical_offset", "timestamp_type"])
    log, _ = record_place(tmp_path, b"0 bbbb")
    damage(log, 0, bytes(100))
    found = read_rows(splits, ["offset", "physical_offset", "timestamp_type"], check_crcs=False)
    assert found == wanted
    with pytest.raises(Corrupt):
        read_rows(splits, ["offset"])


def test_large_bodies_come_in_more_chunks(tmp_path: Path, opened: Opener) -> None:
    """The memory of a split is limited to some chunks, though its bodies are many times larger than its files."""
    big = StoreOptions(settings={**SMALL.settings, "mappedFileSizeCommitLog": str(1 << 20)})
    store = open_small(tmp_path, options=big)
    body = zlib.compress(bytes(CHUNK_BYTES // 2))
    store.append_messages(T0, [RawMessage(body=body, properties=b"", sys_flag=1)] * 9)
    store.close()
    splitter = opened(tmp_path, big)
    (split,) = splitter.plan(everything(splitter))
    assert [chunk.rows for chunk in read_split(split, ["value"])] == [2, 2, 2, 2, 1]


def test_memory_is_some_chunks_whatever_the_size_of_a_split(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = StoreOptions(settings={**SMALL.settings, "mappedFileSizeCommitLog": str(1 << 20)})
    store = open_small(tmp_path, options=big)
    for first in range(0, 4000, 200):
        store.append_messages(T0, numbered(200, first=first, body_bytes=1000))
    store.close()
    for module in (slices, read):
        monkeypatch.setattr(module, "CHUNK_BYTES", 64 << 10)
    (split,) = (splitter := opened(tmp_path, big)).plan(everything(splitter))
    assert next(read_split(split, ALL_COLUMNS)).rows  # imports at first use do not count
    tracemalloc.start()
    rows = sum(chunk.rows for chunk in read_split(split, ALL_COLUMNS))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (rows, split.size_bytes > 4 << 20) == (4000, True)
    assert peak_bytes < 1 << 20


# ---- damage ----


@pytest.mark.parametrize(
    ("shift", "what"),
    [
        (0, "the CRC of the body is wrong"),
        (-84, "the magic is"),
        (-76, "points to a record of another queue"),
        (-3, "do not add up"),
        (23, "points to a record of another queue"),
        (25, "do not add up"),
    ],
    ids=["body", "magic", "queue id", "body length", "topic", "properties length"],
)
def test_a_damaged_record_is_named_or_left_out(
    tmp_path: Path, opened: Opener, shift: int, what: str
) -> None:
    made(tmp_path).close()
    file, position = record_place(tmp_path, b"7 bbbb")
    byte = file.read_bytes()[position + shift]
    splitter = opened(tmp_path)
    damage(file, position + shift, bytes([byte ^ 0x15]))
    with pytest.raises(Corrupt, match=what) as raised:
        read_rows(splitter.plan(everything(splitter)))
    facts = raised.value.facts()
    assert (facts["path"], facts["position"]) == (str(file), position - 88)
    assert (facts["offset"], facts["next_good_offset"]) == (7, 8)

    rows, (finding,) = rows_and_findings(splitter, min_splits=3)
    assert bodies(rows) == [n for n in range(30) if n != 7]
    assert (finding.code, finding.path, finding.position) == (
        "damaged-record",
        str(file),
        position - 88,
    )
    assert (finding.topic, finding.partition, finding.offset) == ("t", 0, 7)


def test_crcs_are_looked_at_only_when_asked(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    file, position = record_place(tmp_path, b"7 bbbb")
    splitter = opened(tmp_path)
    damage(file, position, b"8")
    splits = splitter.plan(everything(splitter))
    assert bodies(read_rows(splits, check_crcs=False))[7] == 8
    with pytest.raises(Corrupt, match="CRC"):
        read_rows(splits, ["offset"])


def test_a_body_that_cannot_be_unpacked_is_named_or_left_out(
    tmp_path: Path, opened: Opener
) -> None:
    store = made(tmp_path, [3])
    store.append_messages(T0, [RawMessage(body=b"no zlib", properties=b"", sys_flag=1)])
    store.append_messages(T0, numbered(1, first=4))
    store.close()
    splitter = opened(tmp_path)
    with pytest.raises(Corrupt, match=r"t-0 offset 3: .*commitlog"):
        read_rows(splitter.plan(everything(splitter)))
    rows, (finding,) = rows_and_findings(splitter)
    assert bodies(rows) == [0, 1, 2, 4]
    assert (finding.code, finding.offset) == ("undecodable-body", 3)
    assert len(read_rows(splitter.plan(everything(splitter)), ["offset"])[T0]) == 5


@pytest.mark.parametrize(
    ("position", "data", "what"),
    [
        (0, b"\x7f", "leads to no record of this queue"),
        (6, b"\0\1", "the magic is|the lengths|leads to no record"),
        (8, b"\0\0\0\0", "leads to no record of this queue"),
        (11, b"\xff", "the unit tells a record of"),
    ],
    ids=["far away", "elsewhere", "no size", "another size"],
)
def test_a_damaged_unit_is_named_or_left_out(
    tmp_path: Path, opened: Opener, position: int, data: bytes, what: str
) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    file = tmp_path / "consumequeue" / "t" / "0" / f"{QUEUE_BYTES:020}"
    damage(file, 2 * 20 + position, data)
    splits = splitter.plan(everything(splitter))
    with pytest.raises(Corrupt, match=what) as raised:
        read_rows(splits)
    assert raised.value.facts()["offset"] == 12
    rows, (finding,) = rows_and_findings(splitter)
    assert bodies(rows) == [n for n in range(30) if n != 12]
    assert finding.offset == 12


def test_units_that_no_file_holds_come_with_the_plan(tmp_path: Path, opened: Opener) -> None:
    with_units, without = tmp_path / "with", tmp_path / "without"
    made(with_units).close()
    shutil.copytree(with_units, without)
    shutil.rmtree(without / "consumequeue")
    wanted = split_rows(opened(with_units))
    splitter = opened(without)
    for min_splits in (1, 7):
        assert split_rows(splitter, min_splits=min_splits) == wanted
    assert not (without / "consumequeue").exists()


def test_units_behind_a_torn_tail_are_no_rows(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    (tmp_path / "abort").write_bytes(b"1")
    file, position = record_place(tmp_path, b"29 bbbb")
    damage(file, position - 10, bytes(LOG_BYTES - position + 10))
    splitter = opened(tmp_path)
    assert "torn-tail" in {finding.code for finding in splitter.findings()}
    for _ in range(2):
        assert bodies(split_rows(splitter, min_splits=4)) == list(range(29))
        splitter.refresh()


def test_a_log_file_that_vanished_is_named_or_left_out(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    file, _ = record_place(tmp_path, b"0 bbbb")
    file.unlink()
    with pytest.raises(IoFailure, match=file.name):
        read_rows(splitter.plan(everything(splitter)))
    rows, (finding,) = rows_and_findings(splitter)
    assert 0 < len(bodies(rows)) < 30
    assert bodies(rows)[-1] == 29
    assert (finding.code, finding.path) == ("missing-file", str(file))


def test_a_queue_file_that_vanished_is_named_or_left_out(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    splits = splitter.plan(everything(splitter))
    file = tmp_path / "consumequeue" / "t" / "0" / f"{QUEUE_BYTES:020}"
    file.unlink()
    with pytest.raises(IoFailure, match=file.name):
        read_rows(splits)
    findings: list[object] = []
    rows = read_rows(splits, on_damage=findings.append)
    assert bodies(rows) == [*range(10), *range(20, 30)]
    assert len(findings) == 1


def test_a_queue_file_that_was_cut_is_named(tmp_path: Path, opened: Opener) -> None:
    made(tmp_path).close()
    splitter = opened(tmp_path)
    splits = splitter.plan(everything(splitter))
    file = tmp_path / "consumequeue" / "t" / "0" / f"{QUEUE_BYTES:020}"
    os.truncate(file, 50)
    with pytest.raises(Corrupt, match="position 50: the file ends before a unit"):
        read_rows(splits)
    rows = read_rows(splits, on_damage=lambda _: None)
    assert bodies(rows) == [*range(10), *range(20, 30)]


def test_records_behind_damage_are_read(tmp_path: Path, opened: Opener) -> None:
    """A writable start would refuse this store."""
    made(tmp_path).close()
    file, position = record_place(tmp_path, b"7 bbbb")
    damage(file, position, b"8")
    (tmp_path / "abort").write_bytes(b"1")
    shutil.rmtree(tmp_path / "consumequeue")
    splitter = opened(tmp_path)
    assert "damaged-record" in {finding.code for finding in splitter.findings()}
    rows, findings = rows_and_findings(splitter)
    assert bodies(rows) == [n for n in range(30) if n != 7]
    assert [finding.offset for finding in findings] == [7]
