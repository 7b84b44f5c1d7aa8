"""The journal of requests with a key names offsets: a writable start never assigns them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import pytest

from storage import Finding, StoreOptions, TopicPartition
from storage.errors import DamagedStore, MissingPartitions
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format import names as kafka_names
from storage.kafka.tools import open_inspector as open_kafka_inspector
from storage.model import RecoveryReport
from storage.request_journal import (
    JOURNAL_FILE,
    Completed,
    Forgotten,
    JournalEntry,
    Marked,
    Started,
    encode_entry,
    journal_offsets,
)
from storage.shared.journal import encode_entries
from tests.unit.kafka import workshop as kafka
from tests.unit.rocketmq import workshop as rocketmq

ROOT = kafka.ROOT
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"internal.segment.bytes": "200"}
COUNT = 6


def begun(key: str, *parts: tuple[int, int], topic: str = "t") -> Started:
    marks = [Marked(number, 1 << 50, 0, records) for number, records in parts]
    return Started(key, b"d", 0, topic, marks)


def lines(entries: Iterable[JournalEntry]) -> bytes:
    return encode_entries([encode_entry(entry) for entry in entries])


def put(fs: FileSystem, name: str, data: bytes) -> None:
    rocketmq.put_file(fs, ROOT / name, data)


ONE: list[JournalEntry] = [begun("a", (0, 6)), Completed("a", [(0, 0)])]
TWO: list[JournalEntry] = [begun("a", (0, 2), (1, 1)), Completed("a", [(0, 4), (1, 0)])]
TWICE: list[JournalEntry] = [
    begun("a", (0, 2)),
    Completed("a", [(0, 1)]),
    begun("a", (0, 2)),
    Completed("a", [(0, 4)]),
]
AFTER: list[JournalEntry] = [Forgotten("t"), *ONE]
NAMED = pytest.mark.parametrize(
    "entries", [ONE, TWO, TWICE, AFTER], ids=["one", "two", "twice", "after"]
)


# ---- the offsets that it names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "clean", "ends"),
    [
        (ONE, True, {T0: 6}),
        (TWO, True, {T0: 6, T1: 1}),
        (TWICE, True, {T0: 6}),
        (TWICE, False, {T0: 3}),  # the last group may have been lost before its flush
        (ONE, False, {}),
        ([*ONE, Forgotten("t")], True, {}),
        ([*ONE, Forgotten("other")], True, {T0: 6}),
        ([Completed("unknown", [(0, 9)])], True, {}),
        ([begun("b", (0, 9))], True, {}),
        ([], True, {}),
    ],
)
def test_ends(
    entries: Sequence[JournalEntry], clean: bool, ends: dict[TopicPartition, int]
) -> None:
    fs = OverlayFileSystem()
    fs.make_dir(ROOT.parent)
    fs.make_dir(ROOT)
    put(fs, JOURNAL_FILE, lines(entries))
    assert journal_offsets(fs, ROOT, clean=clean) == (ends, [])


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_both_generations_count(cut: int) -> None:
    fs = OverlayFileSystem()
    fs.make_dir(ROOT.parent)
    fs.make_dir(ROOT)
    put(fs, JOURNAL_FILE + ".old", lines(ONE[:cut]))
    put(fs, JOURNAL_FILE, lines(ONE[cut:]))
    assert journal_offsets(fs, ROOT, clean=True).ends == {T0: 6}


STORED = lines([begun("a", (0, 1)), Completed("a", [(0, 0)])])
TAILS = {"torn": STORED[:-1], "garbage": STORED + b"\xff" * 40, "zeros": bytes(100)}


@pytest.mark.parametrize("data", TAILS.values(), ids=TAILS)
def test_a_damaged_journal_is_reported_after_a_clean_stop(data: bytes) -> None:
    fs = OverlayFileSystem()
    fs.make_dir(ROOT.parent)
    fs.make_dir(ROOT)
    put(fs, JOURNAL_FILE, data)
    found = journal_offsets(fs, ROOT, clean=True).findings
    assert [(one.code, one.severity) for one in found] == [("damaged-journal", "warning")]
    assert not journal_offsets(fs, ROOT, clean=False).findings


def test_a_folder_in_its_place_is_reported() -> None:
    fs = OverlayFileSystem()
    fs.make_dir(ROOT.parent)
    fs.make_dir(ROOT)
    fs.make_dir(ROOT / JOURNAL_FILE)
    ends, found = journal_offsets(fs, ROOT, clean=False)
    assert not ends
    assert [one.code for one in found] == ["damaged-journal"]


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def kafka_shop() -> kafka.Workshop:
    """Return a cleanly stopped store without its last segments, and without the files that name their offsets."""
    shop = kafka.Workshop()
    with shop.open(SETTINGS) as store:
        store.create_topic("t", 2)
        for n in range(COUNT):
            kafka.put_value(store, b"%d" % n)
        kafka.put_value(store, b"x", T1)
    for name in (kafka_names.RECOVERY_POINTS, kafka_names.HIGH_WATERMARKS):
        shop.fs.remove(ROOT / name)
    last = shop.bases()[-1]
    for name in shop.names():
        if name[:20].isdigit() and int(name[:20]) >= last:
            shop.fs.remove(ROOT / "t-0" / name)
    return shop


def codes(found: Sequence[Finding]) -> set[tuple[str, str, int | None]]:
    return {(one.code, one.severity, one.partition) for one in found}


@NAMED
def test_kafka_does_not_give_offsets_again(entries: Sequence[JournalEntry]) -> None:
    shop = kafka_shop()
    put(shop.fs, JOURNAL_FILE, lines(entries))
    inspector = open_kafka_inspector(
        ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock
    )
    assert inspector is not None
    with closing(inspector):
        assert ("log-ends-below-named", "error", 0) in codes(list(inspector.verify()))
    with shop.open(SETTINGS) as store, pytest.raises(MissingPartitions, match="idempotency"):
        kafka.put_value(store, b"new")
    with shop.open(SETTINGS, accept_loss=True) as store:
        assert kafka.put_value(store, b"new").base_offset == COUNT
        assert [loss.next_offset for loss in store.recovery.losses] == [COUNT]


@pytest.mark.parametrize("key", ["b", "c"])
@pytest.mark.parametrize("entries", [ONE, TWO, TWICE], ids=["one", "two", "twice"])
def test_kafka_reports_what_a_power_loss_took(entries: Sequence[JournalEntry], key: str) -> None:
    """Without a clean stop records may have been lost before their flush: this is no reason to refuse the partition."""
    shop = kafka_shop()
    shop.fs.remove(ROOT / kafka_names.CLEAN_SHUTDOWN)
    put(shop.fs, JOURNAL_FILE, lines([*entries, begun(key, (0, 1))]))
    with shop.open(SETTINGS, read_only=True) as shown:
        end = shown.bounds(T0).end
    with shop.open(SETTINGS) as store:
        assert ("log-ends-below-named", "warning", 0) in codes(store.recovery.findings)
        assert store.recovery.losses == []
        assert kafka.put_value(store, b"new").base_offset == end


@pytest.mark.parametrize("data", TAILS.values(), ids=TAILS)
def test_kafka_starts_with_a_damaged_journal(data: bytes) -> None:
    shop = kafka.Workshop()
    with shop.open_with_topic() as store:
        kafka.put_value(store, b"x")
    put(shop.fs, JOURNAL_FILE, data)
    with shop.open() as store:
        assert reported(store.recovery)
        assert kafka.put_value(store, b"y").base_offset == 1


def reported(report: RecoveryReport) -> bool:
    return "damaged-journal" in {one.code for one in report.findings}


# ---- RocketMQ --------------------------------------------------------------------------------------------------------


def rocketmq_shop() -> rocketmq.Workshop:
    """Return a cleanly stopped store of which only the topics are left; a test adds the journal."""
    shop = rocketmq.Workshop()
    with rocketmq.by_hand(), shop.open_with_topic(partitions=2) as store:
        for n in range(COUNT):
            rocketmq.put_value(store, b"%d" % n)
        rocketmq.put_value(store, b"x", T1)
    for name in ("commitlog", "consumequeue", "index"):
        shop.fs.remove_tree(ROOT / name)
    shop.fs.remove(ROOT / "checkpoint")
    for name in shop.fs.list_dir(ROOT):
        if name.startswith(".logserver.") and name != ".logserver.store.json":
            shop.fs.remove(ROOT / name)
    return shop


@NAMED
def test_rocketmq_does_not_give_offsets_again(entries: Sequence[JournalEntry]) -> None:
    shop = rocketmq_shop()
    put(shop.fs, JOURNAL_FILE, lines(entries))
    with rocketmq.by_hand():
        with pytest.raises(DamagedStore, match="idempotency"):
            shop.open()
        with shop.open(accept_loss=True) as store:
            assert rocketmq.put_value(store, b"new").base_offset == COUNT


def test_rocketmq_without_the_journal_begins_at_zero() -> None:
    """No other file names the offsets in this store: in the test above only the journal does."""
    shop = rocketmq_shop()
    with rocketmq.by_hand(), shop.open() as store:
        assert rocketmq.put_value(store, b"new").base_offset == 0


@pytest.mark.parametrize("data", TAILS.values(), ids=TAILS)
def test_rocketmq_starts_with_a_damaged_journal(data: bytes) -> None:
    shop = rocketmq.Workshop()
    with rocketmq.by_hand(), shop.open_with_topic() as store:
        rocketmq.put_value(store, b"x")
    put(shop.fs, JOURNAL_FILE, data)
    with rocketmq.by_hand(), shop.open() as store:
        assert reported(store.recovery)
        assert rocketmq.put_value(store, b"y").base_offset == 1
