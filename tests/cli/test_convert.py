"""`logserver convert`: its output, its exit codes, and the files it leaves after a failure."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import Record, StoreOptions, TopicPartition, convert_store, detect, open_store
from storage.errors import DiskFull, MiscountedResult
from storage.files import RealFileSystem
from tests.cli.runner import fine, run, settings_options
from tests.damage.test_kafka_damage import root_of
from tests.golden import rocketmq_stores, stores
from tests.golden.trees import picture
from tests.robustness.crash.faulty import FaultyFileSystem, Killed, at_change, fails, killed
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.log.old_messages import old_log

EDGE = stores.KAFKA / "edge/data"
WHOLE = stores.KAFKA / "offsets/data"
SMALL = rocketmq_stores.golden("small")
SIZES = settings_options(SMALL.settings)
NEW_SIZES = [part.replace("--set", "--target-set") for part in SIZES]


class Way(NamedTuple):
    """A conversion that these tests run."""

    root: Path
    to: str
    options: StoreOptions
    target_options: StoreOptions


WAYS = [
    Way(SMALL.root, "kafka", StoreOptions(settings=SMALL.settings), StoreOptions()),
    Way(WHOLE, "rocketmq", StoreOptions(), StoreOptions(settings=SMALL.settings)),
]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ended = run(
        *("convert", EDGE, tmp_path / "new", "--to", "rocketmq", "--output", "table"),
        *("--topic", "edge-records", "--report", file, *NEW_SIZES[2:]),
    )
    assert ended.code == 1
    assert ended.out.decode().splitlines() == [
        "left out: edge-records-0 offset 39: headers: a name is empty (1 record)",
        "left out: edge-records-0 offset 38: headers: the value is null (1 record)",
        "left out: edge-records-0 offset 18: key: is empty (1 record)",
        "left out: edge-records-0 offsets 1, 2: value: is null (2 records)",
        "moved: edge-records-0 offsets 3, 4, 5, 6, 7, ...: offset: at another offset than before (335 records)",
        "edge-records: 336 records in 1 partition",
        f"converted: 336 records to rocketmq, in {tmp_path / 'new'}",
        "left out: 5 records",
    ]
    report = json.loads(file.read_bytes())
    assert report == json.loads((tmp_path / "new/.logserver.convert.json").read_bytes())
    assert [note["offsets"] for note in report["left_out"]] == [[39], [38], [18], [1, 2]]


def test_encoded_nothing_is_left_out(tmp_path: Path) -> None:
    ended = fine("convert", EDGE, tmp_path / "new", "--to", "rocketmq", "--encode", *NEW_SIZES[2:])
    assert ended.document["left_out"] == []
    assert sum(note["records"] for note in ended.document["encoded"]) >= 22
    assert ended.document["records"] == 388
    assert detect(tmp_path / "new") == ("rocketmq", True)


def test_times_and_offsets_of_a_whole_store(tmp_path: Path) -> None:
    ended = fine("convert", SMALL.root, tmp_path / "new", "--to", "kafka", *SIZES)
    assert ended.document["records"] == len(SMALL.expected())
    assert fine("verify", tmp_path / "new").rows == []
    rows = fine("dump", tmp_path / "new").rows
    wanted = [
        (r["topic"], r["queueId"], r["queueOffset"], r["bornTimestamp"]) for r in SMALL.expected()
    ]
    assert [(r["topic"], r["partition"], r["offset"], r["timestamp"]) for r in rows] == wanted


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_beside_a_server(backend: str, tmp_path: Path) -> None:
    address = TopicPartition("t", 0)
    other = {"kafka": "rocketmq", "rocketmq": "kafka"}[backend]
    options = StoreOptions(settings=SMALL.settings if backend == "rocketmq" else {})
    with open_store(backend, tmp_path / "store", options) as store:
        store.create_topic("t", 1)
        store.append(address, [Record(b"k", b"v")] * 7)
        store.checkpoint()
        before = picture(tmp_path / "store")
        fine("convert", tmp_path / "store", tmp_path / "new", "--to", other)
        assert picture(tmp_path / "store") == before
    with open_store(other, tmp_path / "new") as copy:
        assert [record.key for record in copy.scan(address)] == [b"k"] * 7
        assert copy.append(address, [Record(b"k", b"v")]).base_offset == 7


def test_damage_is_told_and_passed_over(tmp_path: Path) -> None:
    root = root_of("flip-middle-segment")
    before = picture(root)
    ended = run("convert", root, tmp_path / "new", "--to", "rocketmq", "--output", "json")
    assert ended.code == 1
    (finding,) = [f for f in ended.document["findings"] if f["severity"] == "error"]
    assert finding["code"] == "damaged-batch"
    assert 0 < ended.document["records"] < 1238
    assert picture(root) == before


def test_the_server_s_own_topics_are_taken_when_named(tmp_path: Path) -> None:
    fine("convert", WHOLE, tmp_path / "all", "--to", "rocketmq", "--encode")
    with open_store("rocketmq", tmp_path / "all", read_only=True) as store:
        assert not [topic for topic in store.topics() if topic.startswith("__")]
    ended = run(
        *("convert", WHOLE, tmp_path / "own", "--to", "rocketmq", "--encode"),
        *("--topic", "__consumer_offsets"),
    )
    assert [topic["topic"] for topic in ended.document["topics"]] == ["__consumer_offsets"]
    assert ended.document["records"] > 0


# ---- wrong use -----------------------------------------------------------------------------------


def refused(code: int, *arguments: object) -> str:
    ended = run("convert", *arguments)
    assert (ended.code, ended.out) == (code, b"")
    return ended.err


def test_wrong_arguments(tmp_path: Path) -> None:
    new = tmp_path / "new"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("no store")
    (tmp_path / "empty").mkdir()
    assert "a kafka store already" in refused(2, WHOLE, new, "--to", "kafka")
    assert "a rocketmq store already" in refused(2, SMALL.root, new, "--to", "rocketmq")
    assert "[unsupported-format]" in refused(2, tmp_path / "other", new, "--to", "kafka")
    assert "holds no store" in refused(2, tmp_path / "empty", new, "--to", "kafka")
    assert "does not exist" in refused(3, tmp_path / "missing", new, "--to", "kafka")
    assert "'nope' does not exist" in refused(2, WHOLE, new, "--to", "rocketmq", "--topic", "nope")
    assert "--to" in refused(2, WHOLE, new)
    assert "mappedFile" in refused(
        2, WHOLE, new, "--to", "rocketmq", "--target-set", "mappedFile=1"
    )
    assert not new.exists()


def test_a_target_that_is_taken(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    root = stores.copy_store(WHOLE, tmp_path / "store")
    before = picture(tmp_path)
    assert f"{full} is not empty, it holds mine.txt" in refused(2, WHOLE, full, "--to", "rocketmq")
    assert "is inside" in refused(2, root, root / "new", "--to", "rocketmq")
    assert picture(tmp_path) == before


# ---- a disk that fails halfway ------------------------------------------------------------------


def changes_of(way: Way, target: Path) -> int:
    """Return the number of disk changes of a conversion."""
    fs = FaultyFileSystem(RealFileSystem())
    convert(way, target, fs)
    return fs.changes


def convert(way: Way, target: Path, fs: FaultyFileSystem) -> None:
    convert_store(
        way.root,
        target,
        to=way.to,
        encode=True,
        options=way.options,
        target_options=way.target_options,
        fs=fs,
    )


@pytest.mark.parametrize("way", WAYS, ids=["kafka", "rocketmq"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8, 0.95])
def test_on_a_full_disk_nothing_is_left(way: Way, share: float, tmp_path: Path) -> None:
    changes = changes_of(way, tmp_path / "whole")
    fs = FaultyFileSystem(RealFileSystem())
    full = fails(errno.ENOSPC, "write")
    fs.fault = lambda done, path: full(done, path) if fs.changes > changes * share else None
    with pytest.raises(DiskFull):
        convert(way, tmp_path / "new", fs)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert fs.open_files == set()


@pytest.mark.parametrize("way", WAYS, ids=["kafka", "rocketmq"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_kill_leaves_a_folder_whose_name_tells_it(way: Way, share: float, tmp_path: Path) -> None:
    changes = changes_of(way, tmp_path / "whole")
    fs = FaultyFileSystem(RealFileSystem())
    fs.fault = at_change(fs, int(changes * share), killed)
    with pytest.raises(Killed):
        convert(way, tmp_path / "new", fs)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[-1] == "whole"
    assert left[0].startswith("new.unfinished-")
    assert len(left) == 2
    convert(way, tmp_path / "new", FaultyFileSystem(RealFileSystem()))  # a repeat needs no cleanup
    options = settings_options(way.target_options.settings)
    assert (
        fine("dump", tmp_path / "new", *options).rows
        == fine("dump", tmp_path / "whole", *options).rows
    )


def test_what_recovery_does_not_find_again_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new store is moved into place only after all written records were read again."""
    from storage.conversion import kafka_writer

    finish = kafka_writer.SegmentWriter.finish

    def forgetful(writer: kafka_writer.SegmentWriter) -> None:
        writer._batch = writer._batch[:-1]
        finish(writer)

    monkeypatch.setattr(kafka_writer.SegmentWriter, "finish", forgetful)
    with pytest.raises(MiscountedResult, match="records 29 by the report, 28 in the new store"):
        convert(WAYS[0], tmp_path / "new", FaultyFileSystem(RealFileSystem()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [0, 5])
def test_messages_of_an_old_format_are_not_passed_over_in_silence(
    tmp_path: Path, count: int
) -> None:
    with open_store("kafka", tmp_path / "old") as store:
        store.create_topic("t", 1)
    log = tmp_path / "old" / "t-0" / "00000000000000000000.log"
    log.write_bytes(old_log(20) + b"".join(data_batch(20 + n) for n in range(count)))
    ended = run(
        "convert", tmp_path / "old", tmp_path / "new", "--to", "rocketmq", "--output", "table"
    )
    shown = ended.out.decode()
    assert ended.code == 1
    assert shown.count("[old-message-format]") == 1
    assert f"converted: {count} records" in shown
    assert "nothing was left out" not in shown


# ---- before the work begins, and repeats -------------------------------------------------------------


def source_with(tmp_path: Path, *topics: str, records: tuple[Record, ...]) -> Path:
    """Create a Kafka store with these records in each of the topics."""
    root = tmp_path / "source"
    with open_store("kafka", root) as store:
        for topic in topics:
            store.create_topic(topic, 1)
            store.append(TopicPartition(topic, 0), records)
    return root


GOOD = Record(b"key", b"value")


@pytest.mark.parametrize(
    ("topics", "records", "reported"),
    [
        (("orders.v1",), (GOOD, GOOD), ["orders.v1-0 offsets 0, ...: topic: ", "(2 records)"]),
        (("plain", "a.b"), (GOOD,), ["a.b-0 offset 0: topic: "]),
        (("plain",), (GOOD, Record(b"k", None)), ["plain-0 offset 1: value: is null"]),
        (("plain",), (Record(b"", b"v"),), ["plain-0 offset 0: key: is empty"]),
    ],
)
def test_what_will_be_left_out_is_said_before_the_work(
    topics: tuple[str, ...], records: tuple[Record, ...], reported: list[str], tmp_path: Path
) -> None:
    root = source_with(tmp_path, *topics, records=records)
    ended = run("convert", root, tmp_path / "new", "--to", "rocketmq", *NEW_SIZES[2:])
    assert ended.code == 1
    said = [line for line in ended.err.splitlines() if line.startswith("will be left out: ")]
    assert len(said) == 1
    assert all(words in said[0] for words in reported)
    assert "--encode" in ended.err.splitlines()[-1]
    fine("convert", root, tmp_path / "kept", "--to", "rocketmq", "--encode", *NEW_SIZES[2:])


def test_it_is_said_before_anything_is_written(tmp_path: Path) -> None:
    root = source_with(tmp_path, "orders.v1", records=(GOOD,))
    target = tmp_path / "new"
    seen: list[list[str]] = []
    convert_store(
        root,
        target,
        to="rocketmq",
        target_options=StoreOptions(settings=SMALL.settings),
        on_foreseen=lambda notes: seen.append([path.name for path in tmp_path.iterdir()]),
    )
    assert seen == [["source"]]
    assert target.exists()


@pytest.mark.parametrize("encode", [[], ["--encode"]])
def test_a_conversion_can_be_repeated(encode: list[str], tmp_path: Path) -> None:
    """A repeated conversion gives the result of a first conversion, and keeps the earlier result."""
    root = source_with(tmp_path, "orders.v1", "plain", records=(GOOD, Record(b"k", None)))
    target, other = tmp_path / "new", tmp_path / "other"
    arguments = ["--to", "rocketmq", *NEW_SIZES]
    run("convert", root, target, *arguments)
    refused = run("convert", root, target, *arguments, *encode)
    assert refused.code == 2
    assert "--replace" in refused.err
    again = run("convert", root, target, *arguments, *encode, "--replace")
    assert again.code == (0 if encode else 1)
    run("convert", root, other, *arguments, *encode)
    dumps = [run("dump", place, *SIZES).rows for place in (target, other)]
    assert dumps[0] == dumps[1]
    (kept,) = tmp_path.glob("new.replaced-*")
    assert detect(kept) is not None
    assert [row["code"] for row in again.document["findings"]] == ["kept-aside"]


@pytest.mark.parametrize("what", ["other-source", "no-report", "broken-report"])
def test_only_an_earlier_result_is_replaced(what: str, tmp_path: Path) -> None:
    root = source_with(tmp_path, "plain", records=(GOOD,))
    target = tmp_path / "new"
    arguments = ["--to", "rocketmq", *NEW_SIZES]
    fine("convert", root, target, *arguments)
    report = target / ".logserver.convert.json"
    if what == "other-source":
        root = source_with(tmp_path / "2", "plain", records=(GOOD,))
    elif what == "no-report":
        report.unlink()
    else:
        report.write_bytes(report.read_bytes()[:10])
    before = picture(target)
    refused = run("convert", root, target, *arguments, "--replace")
    assert refused.code == 2
    assert "is not empty" in refused.err
    assert picture(target) == before


def test_an_earlier_result_stays_where_the_new_one_fails(tmp_path: Path) -> None:
    root = source_with(tmp_path, "plain", records=(GOOD,))
    target = tmp_path / "new"
    options = StoreOptions(settings=SMALL.settings)
    convert_store(root, target, to="rocketmq", target_options=options)
    before = picture(target)
    fs = FaultyFileSystem(RealFileSystem())
    fs.fault = fails(errno.ENOSPC, "write")
    with pytest.raises(DiskFull):
        convert_store(root, target, to="rocketmq", replace=True, target_options=options, fs=fs)
    assert picture(target) == before
