"""Input that a RocketMQ store cannot keep or open: a clear error names the field or the file, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogStore, RawMessage, Record, StoreOptions, SupportsRawMessages, TopicPartition
from storage import open_store as open_any
from storage.errors import (
    CallerError,
    DataError,
    InvalidTopic,
    RecordTooLarge,
    StorageError,
    UnrepresentableRecord,
)
from storage.files import OverlayFileSystem, RealFileSystem
from tests.contract.harness import ManualClock
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import files_below, put
from tests.golden.trees import picture

ROOT = Path("/data/store")
T0 = TopicPartition("t", 0)
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "500",
    "maxMessageSize": "100000",
}


class Place:
    """A store in memory with one record."""

    def __init__(self) -> None:
        self.fs = OverlayFileSystem()
        self.store = self.open()
        self.store.create_topic("t", 2)
        self.store.append(T0, [Record(b"k", b"first")])

    def open(self, *, read_only: bool = False) -> LogStore:
        options = StoreOptions(settings=SETTINGS)
        clock = ManualClock()
        return open_any("rocketmq", ROOT, options, fs=self.fs, clock=clock, read_only=read_only)

    def content(self) -> dict[str, bytes]:
        self.store.flush()
        return files_below(self.fs, ROOT, "commitlog", "consumequeue", "index", "config")

    def check_unharmed(self, before: dict[str, bytes]) -> None:
        """Check that nothing of the refused request is stored, and that the store still works."""
        assert self.content() == before
        assert [r.value for r in self.store.scan(T0)] == [b"first"]
        assert self.store.append(T0, [Record(b"k", b"next")]).base_offset == 1
        assert self.store.stats().fenced is None
        self.store.close()


@pytest.fixture
def place() -> Place:
    return Place()


# ---- topics ----------------------------------------------------------------------------------------------------------

NAMES = [
    "x" * 128,
    "a b",
    "a.b",
    "größe",
    "主题",
    "a/b",
    "..",
    ".",
    "",
    "a\x01b",
    "a\nb",
    "a:b",
    "a*",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_new_topic_with_a_bad_name(place: Place, name: str) -> None:
    before = place.content()
    with pytest.raises(InvalidTopic) as refusal:
        place.store.create_topic(name, 1)
    assert refusal.value.facts()["topic"] == name
    assert sorted(place.store.topics()) == ["t"]
    place.check_unharmed(before)


@pytest.mark.parametrize("name", ["x" * 127, "%order%x-1", "a|b", "_-%|"])
def test_names_that_are_fine(place: Place, name: str) -> None:
    place.store.create_topic(name, 1)
    address = TopicPartition(name, 0)
    place.store.append(address, [Record(None, b"v")])
    place.store.close()
    with place.open() as store:
        assert [r.value for r in store.scan(address)] == [b"v"]


def test_a_topic_of_many_bytes_and_few_characters_is_not_appended_to() -> None:
    """The length field of a short record is one signed byte: the real store writes records that it cannot read."""
    fs = OverlayFileSystem()
    name = "主" * 43
    stores.put_topics(fs, ROOT, {name: 1})
    with open_any("rocketmq", ROOT, StoreOptions(settings=SETTINGS), fs=fs) as store:
        with pytest.raises(InvalidTopic):
            store.append(TopicPartition(name, 0), [Record(None, b"v")])
        assert store.bounds(TopicPartition(name, 0)).end == 0


# ---- records ---------------------------------------------------------------------------------------------------------

TOO_LONG = [(f"name-{n}", b"v" * 1000) for n in range(33)]
CANNOT_BE_KEPT: dict[str, tuple[Record, str]] = {
    "a null value": (Record(b"k", None), "value"),
    "a binary key": (Record(b"\xff\xfe", b"v"), "key"),
    "an empty key": (Record(b"", b"v"), "key"),
    "a separator in the key": (Record(b"a\x02b", b"v"), "key"),
    "a separator in a header's name": (Record(None, b"v", [("a\x01b", b"v")]), "headers"),
    "a separator in a header's value": (Record(None, b"v", [("a", b"v\x02w")]), "headers"),
    "a repeated header": (Record(None, b"v", [("a", b"1"), ("a", b"2")]), "headers"),
    "a reserved header": (Record(None, b"v", [("TRAN_MSG", b"true")]), "headers"),
    "a header without a name": (Record(None, b"v", [("", b"x")]), "headers"),
    "an empty header": (Record(None, b"v", [("a", b"")]), "headers"),
    "a null header": (Record(None, b"v", [("a", None)]), "headers"),
    "a binary header": (Record(None, b"v", [("a", b"\xff")]), "headers"),
    "a separator in the tag": (Record(None, b"v", tag="a\x01"), "tag"),
    "a separator in a lookup key": (Record(None, b"v", lookup_keys=["a\x02"]), "keys"),
    "a space in a lookup key": (Record(None, b"v", lookup_keys=["a b"]), "keys"),
    "properties that are too long": (Record(None, b"v", TOO_LONG), "headers"),
}


@pytest.mark.parametrize("case", CANNOT_BE_KEPT)
def test_a_record_that_cannot_be_kept(place: Place, case: str) -> None:
    record, field = CANNOT_BE_KEPT[case]
    before = place.content()
    with pytest.raises((UnrepresentableRecord, RecordTooLarge)) as refusal:
        place.store.append(T0, [Record(None, b"good"), record])
    facts = refusal.value.facts()
    assert facts["index"] == 1
    named = str(facts.get("field", "")) + refusal.value.message
    assert field in named or "properties" in named or field.rstrip("s") in named
    place.check_unharmed(before)


def test_a_body_over_the_limit(place: Place) -> None:
    before = place.content()
    with pytest.raises(RecordTooLarge) as refusal:
        place.store.append(T0, [Record(None, b"good"), Record(None, b"v" * 100_001)])
    facts = refusal.value.facts()
    assert (facts["index"], facts["limit_bytes"]) == (1, 100_000)
    assert "maxMessageSize" in refusal.value.message
    place.check_unharmed(before)


def test_a_body_at_the_limit(place: Place) -> None:
    body = b"v" * 100_000
    place.store.append(T0, [Record(None, body)])
    assert [r.value for r in place.store.scan(T0)] == [b"first", body]
    place.store.close()


def test_a_record_larger_than_a_file() -> None:
    fs = OverlayFileSystem()
    settings = {**SETTINGS, "mappedFileSizeCommitLog": "4096"}
    with open_any("rocketmq", ROOT, StoreOptions(settings=settings), fs=fs) as store:
        store.create_topic("t", 1)
        with pytest.raises(RecordTooLarge) as refusal:
            store.append(T0, [Record(None, b"v" * 5000)])
        assert "4088" in refusal.value.message
        assert store.bounds(T0).end == 0
        assert store.append(T0, [Record(None, b"v")]).base_offset == 0


def test_raw_properties_over_the_limit(place: Place) -> None:
    before = place.content()
    assert isinstance(place.store, SupportsRawMessages)
    properties = b"a\x01" + b"v" * 32_765 + b"\x02"
    assert len(properties) == 32_768
    with pytest.raises(CallerError, match=r"properties.*32.?767"):
        place.store.append_messages(T0, [RawMessage(body=b"v", properties=properties)])
    place.check_unharmed(before)


# ---- files -----------------------------------------------------------------------------------------------------------

BAD_JSON = [
    b'{"topicConfigTable":{"t":',
    b"\x00\xff",
    b"[]",
    b'{"topicConfigTable":7}',
    b"nonsense",
]


@pytest.mark.parametrize("data", BAD_JSON)
def test_config_that_cannot_be_parsed(place: Place, data: bytes) -> None:
    """As in the real broker, the .bak file is used if it exists; if it is bad too, nothing is guessed."""
    place.store.close()
    for name in ("topics.json", "topics.json.bak"):
        put(place.fs, ROOT / "config" / name, data)
    before = files_below(place.fs, ROOT, "commitlog", "consumequeue", "index", "config")
    with pytest.raises(DataError) as refusal:
        place.open()
    assert "config/topics.json" in refusal.value.message
    with place.open(read_only=True) as store:
        reported = [finding.path for finding in store.recovery.findings]
        assert str(ROOT / "config" / "topics.json") in reported
        assert [r.value for r in store.scan(T0)] == [b"first"]
    after = files_below(place.fs, ROOT, "commitlog", "consumequeue", "index", "config")
    assert after == before


@pytest.mark.parametrize("data", BAD_JSON)
def test_config_whose_backup_is_good(place: Place, data: bytes) -> None:
    place.store.create_topic("second", 3)
    place.store.create_topic("third", 3)
    place.store.close()
    put(place.fs, ROOT / "config" / "topics.json", data)
    with place.open() as store:
        assert {"t", "second"} <= set(store.topics()), "the .bak is what stood there before"
        assert [r.value for r in store.scan(T0)] == [b"first"]
        store.create_topic("fourth", 1)
    with place.open() as store:
        assert {"t", "second", "fourth"} <= set(store.topics())


@pytest.mark.parametrize("short_by", [100, -100, 1, -1])
@pytest.mark.parametrize(
    "file", ["commitlog/00000000000000032768", "commitlog/00000000000000000000"]
)
def test_a_commit_log_file_of_the_wrong_length(tmp_path: Path, file: str, short_by: int) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    put(RealFileSystem(), root / "lock", b"lock")
    handle = RealFileSystem().open(root / file, write=True)
    handle.truncate(golden.file_bytes - short_by)
    handle.close()
    before = picture(tmp_path)
    with pytest.raises(DataError) as refusal:
        stores.open_golden(golden, path=root)
    assert file in refusal.value.message
    assert str(golden.file_bytes) in refusal.value.message
    with stores.open_golden(golden, path=root, read_only=True) as store:
        assert [f.path for f in store.recovery.findings if f.severity == "error"] == [
            str(root / file)
        ]
    assert picture(tmp_path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_an_index_file_of_another_size(*, read_only: bool) -> None:
    """The real store maps an index file to the configured length and so reads its slots as entries; ours rebuilds it.

    The rebuild happens at a writable start.
    """
    golden = stores.golden("small")
    fs = stores.overlay()
    name = golden.index_dump[1]["file"]
    path = golden.root / "index" / name
    data = fs.read_bytes(path)[:-20]
    put(fs, path, data)
    reported: list[str] = []
    try:
        with stores.open_golden(golden, fs=fs, read_only=read_only) as store:
            reported += [f.path for f in store.recovery.findings if f.severity != "info"]
            assert len(list(store.scan(TopicPartition("order_s1", 0)))) == 29
    except StorageError as error:
        reported.append(error.message)
    assert [text for text in reported if name in text] != []
    if read_only:
        assert fs.read_bytes(path) == data, "nothing of it is changed"
        return
    assert not fs.exists(path)
    with stores.open_golden(golden, fs=fs) as store:
        assert not [f for f in store.recovery.findings if f.code == "index-file-size"]
        for row in golden.expected():
            key = row["properties"].get("UNIQ_KEY")
            if key is not None and row["topic"] == "order_s1":
                page = store.find("order_s1", unique_id=key)
                assert (len(page.records), page.indexed) == (1, True)


def test_consume_queue_files_of_another_length() -> None:
    golden = stores.golden("small")
    fs = stores.overlay()
    path = golden.root / "consumequeue" / "order_s1" / "0" / f"{400:020}"
    put(fs, path, fs.read_bytes(path)[:-20])
    with pytest.raises(DataError) as refusal:
        stores.open_golden(golden, fs=fs)
    assert f"consumequeue/order_s1/0/{400:020}" in refusal.value.message


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\xff" * 4096, b"\xff" * 23])
def test_a_bad_checkpoint_costs_nothing(data: bytes) -> None:
    golden = stores.golden("small")
    for abort in (False, True):
        fs = stores.overlay()
        put(fs, golden.root / "checkpoint", data)
        if abort:
            put(fs, golden.root / "abort", b"1")
        with stores.open_golden(golden, fs=fs) as store:
            count = sum(len(list(store.scan(address))) for address in golden.queues)
            assert count == len(golden.expected())
            assert store.recovery.losses == []
