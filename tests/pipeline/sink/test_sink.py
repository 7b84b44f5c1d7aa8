"""Writing into a store's directory, without Spark: tasks are called as Spark's executors call them."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logserver.pipeline.write import leftovers, rows
from logserver.pipeline.write.columns import check_columns
from logserver.pipeline.write.options import parse_write_options
from logserver.pipeline.write.store import Staged, StoreSink, Task, plan_write
from storage import Record, StoredRecord, TopicPartition, open_store, partition_for_key
from storage.errors import (
    InvalidArgument,
    RecordTooLarge,
    StorageError,
    StoreLocked,
    StoreReadOnly,
    UnknownPartition,
    UnrepresentableRecord,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", tz="UTC")
SPARKS: Mapping[str, tuple[str, pa.DataType]] = {
    "value": ("binary", pa.binary()),
    "key": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "headers": ("array<struct<key:string,value:binary>>", HEADERS),
    "timestamp": ("timestamp", TIME),
    "tag": ("string", pa.string()),
    "keys": ("array<string>", pa.list_(pa.string())),
    "unique_id": ("string", pa.string()),
    "properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "offset": ("bigint", pa.int64()),
}
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 123_000, dt.UTC)
BACKENDS = ["kafka", "rocketmq"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the store, which may not exist yet."""
    return tmp_path / "store"


def fields(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, SPARKS[name][0]) for name in names]


def planned(path: Path, names: Sequence[str], streaming: Any = False, **options: Any) -> StoreSink:
    """Return the sink as an executor receives it."""
    given = {name: str(value) for name, value in options.items()}
    parsed = parse_write_options({"path": str(path), **given}, overwrite=False)
    sink = plan_write(parsed, fields(names), streaming=streaming)
    copy: StoreSink = pickle.loads(pickle.dumps(sink))
    return copy


def batch(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    arrays = [pa.array(values, SPARKS[name][1]) for name, values in columns.items()]
    return pa.record_batch(arrays, names=list(columns))


def write(path: Path, tasks: Sequence[Mapping[str, Sequence[Any]]], **options: Any) -> list[Staged]:
    """Run a whole job; each task has one batch."""
    sink = planned(path, list(tasks[0]), **options)
    staged = [
        pickle.loads(pickle.dumps(sink.stage([batch(columns)], Task(number))))
        for number, columns in enumerate(tasks)
    ]
    sink.commit(staged[::-1])
    return staged


def stored(path: Path, backend: str, topic: str = "t") -> dict[int, list[StoredRecord]]:
    with open_store(backend, path, read_only=True) as store:
        numbers = store.topics()[topic].partitions
        return {number: list(store.scan(TopicPartition(topic, number))) for number in numbers}


def siblings(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


ROWS: Mapping[str, Sequence[Any]] = {
    "topic": ["t", "t", "u", "t"],
    "partition": [1, 0, 0, 1],
    "key": [b"a", None, b"c", b"d"],
    "value": [b"1", b"2", b"3", b"4"],
    "headers": [[("h", b"x"), ("g", b"y")], None, [], [("h", b"z")]],
    "timestamp": [NOON, NOON, None, NOON - dt.timedelta(days=30_000)],
    "tag": ["red", None, "blue", None],
    "keys": [["k1", "k2"], None, [], ["k3"]],
}


def test_every_column(path: Path, backend: str) -> None:
    write(path, [ROWS], backend=backend, numPartitions=2)
    found = stored(path, backend)
    first, last = found[1]
    (second,) = found[0]
    assert [record.value for record in (first, second, last)] == [b"1", b"2", b"4"]
    assert [record.key for record in (first, second, last)] == [b"a", None, b"d"]
    assert [record.tag for record in (first, second, last)] == ["red", None, None]
    assert [list(record.lookup_keys) for record in (first, second, last)] == [
        ["k1", "k2"],
        [],
        ["k3"],
    ]
    own = ("TAGS", "KEYS")  # Kafka keeps them in headers
    headers = [[h for h in record.headers if h[0] not in own] for record in (first, second, last)]
    assert headers == [[("h", b"x"), ("g", b"y")], [], [("h", b"z")]]
    noon_ms = int(NOON.timestamp() * 1000)
    assert first.timestamp_ms == second.timestamp_ms == noon_ms
    assert last.timestamp_ms == noon_ms - 30_000 * 86_400_000, "before 1970, too"
    (other,) = stored(path, backend, "u")[0]
    assert other.timestamp_ms > noon_ms, "the clock's"
    assert siblings(path) == ["store"]


def test_nulls_that_kafka_keeps(path: Path) -> None:
    write(path, [{"key": [None, b""], "value": [None, b""]}], backend="kafka", topic="t")
    assert [(r.key, r.value) for r in stored(path, "kafka")[0]] == [(None, None), (b"", b"")]


def test_order_of_tasks_and_partitions_by_key(path: Path, backend: str) -> None:
    """A partition has the rows of its tasks in task order, and keyed rows in the partition that a producer chooses."""
    keys = [b"key %d" % number for number in range(500)]
    tasks = [{"key": keys, "value": [b"%d %b" % (task, key) for key in keys]} for task in range(2)]
    write(path, tasks, backend=backend, topic="t", numPartitions=3)
    found = stored(path, backend)
    for number, records in found.items():
        mine = [key for key in keys if partition_for_key(key, 3) == number]
        assert [r.value for r in records] == [b"%d %b" % (t, key) for t in range(2) for key in mine]


def test_keyless_rows_take_turns(path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNK_ROWS", 10)
    sink = planned(path, ["value"], backend=backend, topic="t", numPartitions=3)
    batches = [batch({"value": [b"%d" % n for n in range(10)]})] * 6
    sink.commit([sink.stage(batches, Task(1))])
    assert [len(records) for records in stored(path, backend).values()] == [20, 20, 20]


def test_into_a_store_that_is_there(path: Path, backend: str) -> None:
    with open_store(backend, path) as store:
        store.create_topic("t", 2)
        store.append(TopicPartition("t", 1), [Record(None, b"old")])
    write(path, [{"partition": [1, 1], "value": [b"1", b"2"]}], topic="t")
    write(path, [{"partition": [1], "value": [b"3"]}], topic="t", backend=backend)
    assert [r.value for r in stored(path, backend)[1]] == [b"old", b"1", b"2", b"3"]
    assert [r.offset for r in stored(path, backend)[1]] == [0, 1, 2, 3]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression(path: Path, backend: str, compression: str) -> None:
    values = [b"again " * 2000] * 50
    write(path, [{"value": values}], backend=backend, topic="t", compression=compression)
    found = [record.value for records in stored(path, backend).values() for record in records]
    assert found == values
    logs = [f for f in path.rglob("*") if f.suffix == ".log" or f.parent.name == "commitlog"]
    assert sum(f.stat().st_blocks * 512 for f in logs) < 300_000


def test_many_runs_of_large_rows(path: Path, backend: str) -> None:
    """Runs stay below the topic's limit; a row above the limit is refused."""
    values = [bytes([n]) * 300_000 for n in range(20)]
    write(path, [{"value": values}], backend=backend, topic="t", numPartitions=1)
    assert [r.value for r in stored(path, backend)[0]] == values
    with pytest.raises(RecordTooLarge, match=r"^column 'value' of a row for t-0"):
        write(path, [{"value": [b"x", b"x" * (5 << 20)]}], topic="t")


REFUSED: Mapping[str, tuple[dict[str, list[Any]], str]] = {
    "null value": ({"value": [None]}, "^column 'value' of a row for t-0: is null"),
    "empty key": ({"value": [b"x"], "key": [b""]}, "column 'key' of a row for t-0: is empty"),
    "binary key": ({"value": [b"x"], "key": [b"\xff"]}, "column 'key' of .*: is no UTF-8"),
    "header twice": (
        {"value": [b"x"], "headers": [[("h", b"1"), ("h", b"2")]]},
        "column 'headers' of .*: 'h' comes twice",
    ),
    "reserved header": (
        {"value": [b"x"], "headers": [[("DELAY", b"1")]]},
        "column 'headers' of .*: 'DELAY' is a reserved name",
    ),
    "key with a space": (
        {"value": [b"x"], "keys": [["a b"]]},
        "column 'keys' of .*: hold an empty key or one with a space",
    ),
    "properties against a column": (
        {"value": [b"x"], "tag": ["red"], "properties": [[("TAGS", "blue")]]},
        "column 'tag' of .*: properties tell 'blue', its own column 'red'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_rocketmq_does_not_keep(path: Path, name: str) -> None:
    columns, problem = REFUSED[name]
    with pytest.raises(UnrepresentableRecord, match=problem):
        write(path, [columns], backend="rocketmq", topic="t", numPartitions=1)
    assert not path.exists()


def test_properties_of_a_read_can_be_written(path: Path) -> None:
    properties = [("UNIQ_KEY", "AB12"), ("TAGS", "red"), ("KEYS", "k x"), ("__SHARDINGKEY", "k")]
    given = [*properties, ("__LOGSERVER_SEQ", "1:0:0:1"), ("colour", "green")]
    columns: dict[str, Any] = {"value": [b"v"], "key": [b"k"], "properties": [given]}
    write(path, [columns], backend="rocketmq", topic="t", numPartitions=1)
    (record,) = stored(path, "rocketmq")[0]
    assert (record.key, record.tag, list(record.lookup_keys)) == (b"k", "red", ["x"])
    assert list(record.headers) == [("colour", b"green")]
    assert dict(record.properties or {}) == dict([*properties, ("colour", "green")])


BAD_ROWS: Mapping[str, tuple[dict[str, list[Any]], type[StorageError], str]] = {
    "no topic": ({"value": [b"x"], "topic": [None]}, InvalidArgument, "column 'topic' is null"),
    "no such partition": (
        {"value": [b"x"], "topic": ["t"], "partition": [7]},
        UnknownPartition,
        "topic 't' has no partition 7: it has 1",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_go_nowhere(path: Path, backend: str, name: str) -> None:
    columns, kind, problem = BAD_ROWS[name]
    with pytest.raises(kind, match=problem):
        write(path, [columns], backend=backend, numPartitions=1)
    assert not path.exists()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([("key", "binary")], "column 'value' is missing"),
        ([("value", "bigint")], "column 'value' is of type bigint: it must be binary or string"),
        ([("value", "string"), ("partition", "bigint")], "column 'partition' is of type bigint"),
        ([("value", "string"), ("partiton", "int")], "did you mean partition"),
        ([("value", "string"), ("Value", "string")], "column 'value' comes twice"),
        ([("value", "string"), ("properties", "map<string,string>")], "RocketMQ's"),
    ],
)
def test_a_schema_that_does_not_fit(schema: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        check_columns(schema, topic="t", messages=False)


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(InvalidArgument, match="column 'topic' is missing"):
        check_columns([("value", "string")], topic=None, messages=False)
    found = check_columns([("offset", "bigint"), ("VALUE", "string")], topic="t", messages=True)
    assert found == {"value": 1}, "what a store gives by itself is passed over"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "/p", "topics": "t"}, "option topics: is unknown: did you mean topic"),
        ({"path": "/p", "backend": "pulsar"}, "option backend: 'pulsar' is none of"),
        ({"path": "/p", "token": "x"}, "option token: is for a server"),
        ({"url": "http://h", "path": "/p"}, "option path: is for a directory"),
        ({"path": "/p", "numPartitions": "0"}, "option numPartitions: '0' is no whole number"),
        ({"path": "/p", "numPartitions": "10001"}, "no whole number from 1 to 10000"),
        ({"path": "/p", "queryId": "../x"}, "option queryId: '../x' is not 1 to 100 letters"),
        ({}, "option path: is missing"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        parse_write_options(options, overwrite=False)


def test_overwriting_is_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match='mode: "overwrite"'):
        parse_write_options({"path": str(path)}, overwrite=True)


def test_targets_that_do_not_fit(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="option backend: is missing"):
        planned(path, ["value"], topic="t")
    with pytest.raises(InvalidArgument, match="option compression: 'zlib' is none of"):
        planned(path, ["value"], topic="t", backend="kafka", compression="zlib")
    open_store("kafka", path).close()
    with pytest.raises(InvalidArgument, match="is a kafka store, not rocketmq"):
        planned(path, ["value"], topic="t", backend="rocketmq")
    (path / ".logserver.store.json").unlink()
    with pytest.raises(StoreReadOnly, match="belongs to a real kafka server"):
        planned(path, ["value"], topic="t")


def test_a_store_in_use_is_refused_at_once_and_at_the_commit(path: Path, backend: str) -> None:
    open_store(backend, path).close()
    sink = planned(path, ["value"], topic="t")
    staged = sink.stage([batch({"value": [b"x"]})], Task(0))
    with open_store(backend, path) as other:
        with pytest.raises(StoreLocked):
            planned(path, ["value"], topic="t")
        with pytest.raises(StoreLocked):
            sink.commit([staged])
        sink.abort([staged])
        assert not other.topics()
    assert siblings(path) == ["store"]


def test_two_jobs_make_the_same_store(path: Path, backend: str) -> None:
    sinks = [planned(path, ["value"], topic="t", backend=backend) for _ in range(2)]
    staged = [sink.stage([batch({"value": [b"x"]})], Task(0)) for sink in sinks]
    sinks[0].commit([staged[0]])
    with pytest.raises(InvalidArgument, match="a store was made here while the job ran"):
        sinks[1].commit([staged[1]])
    sinks[1].abort([staged[1]])
    assert siblings(path) == ["store"]
    assert sum(map(len, stored(path, backend).values())) == 1


def test_a_failed_task_leaves_nothing_that_counts(path: Path, backend: str) -> None:
    """Only the task's next attempt counts, and only one of two attempts that ran at once."""
    sink = planned(path, ["value"], topic="t", backend=backend, numPartitions=1)

    def broken() -> Any:
        yield batch({"value": [b"lost"]})
        raise RuntimeError("the executor fails")

    with pytest.raises(RuntimeError):
        sink.stage(broken(), Task(0))
    sink.stage([batch({"value": [b"speculative"]})], Task(0))
    sink.commit([sink.stage([batch({"value": [b"kept"]})], Task(0))])
    assert [r.value for r in stored(path, backend)[0]] == [b"kept"]


def test_a_micro_batch_that_comes_again_writes_nothing(path: Path, backend: str) -> None:
    def commit(batch_id: int, value: bytes, query: str = "q") -> bool:
        sink = planned(path, ["value"], streaming=True, topic="t", backend=backend)
        staged = [sink.stage([batch({"value": [value]})], Task(0, query, batch_id))]
        return sink.commit(staged, batch_id)

    assert [commit(0, b"0"), commit(0, b"again"), commit(1, b"1"), commit(0, b"old")] == [
        True,
        False,
        True,
        False,
    ]
    assert commit(0, b"other", "another query")
    found = [r.value for records in stored(path, backend).values() for r in records]
    assert sorted(filter(None, found)) == [b"0", b"1", b"other"]
    assert siblings(path) == ["store"]


def test_an_empty_job_makes_an_empty_store(path: Path, backend: str) -> None:
    sink = planned(path, ["value"], topic="t", backend=backend, numPartitions=2)
    sink.commit([sink.stage([], Task(0))])
    assert stored(path, backend) == {0: [], 1: []}


def test_leftovers_of_a_killed_job_go(path: Path, backend: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = path.with_name(f"store.staged-{leftovers.new_write_id(ended.pid)}")
    ended.communicate()
    living = path.with_name(f"store.staged-{leftovers.new_write_id()}")
    query = path.with_name("store.staged-query")
    for folder in (dead, living, query):
        folder.mkdir()
    write(path, [{"value": [b"x"]}], topic="t", backend=backend)
    assert siblings(path) == sorted(["store", living.name, query.name])
    later_ms = leftovers.KEPT_MS + 10 + int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    assert leftovers.remove_leftovers(path, own=living, now_ms=later_ms) == [query]


def test_topics_that_change_under_a_job(path: Path, backend: str) -> None:
    open_store(backend, path).close()
    sink = planned(path, ["value"], topic="t", numPartitions=2)
    staged = sink.stage([batch({"value": [b"x"]})], Task(0))
    with open_store(backend, path) as store:
        store.create_topic("t", 3)
    with pytest.raises(InvalidArgument, match="topic 't' has 3 partitions"):
        sink.commit([staged])
    with pytest.raises(InvalidArgument, match="option numPartitions: topic 't' is there"):
        planned(path, ["value"], topic="t", numPartitions=2)


def test_a_settings_option_reaches_the_store(path: Path) -> None:
    options: dict[str, Any] = {"backend": "kafka", "topic": "t"}
    sink = planned(path, ["value"], **options, **{"set.segment.bytes": 1 << 20})
    sink.commit([sink.stage([batch({"value": [b"x" * 1000] * 2000})], Task(0))])
    assert len(list((path / "t-0").glob("*.log"))) == 2
    sink = planned(path.with_name("other"), ["value"], **options, **{"set.no.such": 1})
    with pytest.raises(InvalidArgument, match=r"option set\.no\.such: is no setting"):
        sink.commit([])
