"""Writing into a running server, without Spark: rows that a task sends, and sends again, are stored once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from logserver.client import ServerRefused
from logserver.pipeline.write import rows
from logserver.pipeline.write.options import parse_write_options
from logserver.pipeline.write.server import ServerSink, plan_sending
from logserver.pipeline.write.store import Task
from logserver.testing import ServerForTests
from storage import partition_for_key
from storage.errors import InvalidArgument
from tests.pipeline.sink.test_sink import BACKENDS, batch, fields


@pytest.fixture(scope="module", params=BACKENDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerForTests]:
    """A running server of each backend."""
    data = tmp_path_factory.mktemp("data") / "store"
    with ServerForTests(data=data, backend=request.param) as running:
        yield running


@pytest.fixture
def topic(server: ServerForTests, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions."""
    return server.fresh_topic(request.node.originalname, partitions=3)


def sink_of(
    server: ServerForTests, names: Sequence[str], *, streaming: bool = False, **options: Any
) -> ServerSink:
    given = {name: str(value) for name, value in options.items()}
    parsed = parse_write_options({"url": server.url, **given}, overwrite=False)
    sink: ServerSink = pickle.loads(
        pickle.dumps(plan_sending(parsed, fields(names), streaming=streaming))
    )
    return sink


def values(server: ServerForTests, topic: str) -> list[bytes | None]:
    return [record.value for record in server.records(topic)]


def test_rows_and_their_partitions(server: ServerForTests, topic: str) -> None:
    keys = [b"k%d" % number for number in range(3000)]
    sink = sink_of(server, ["key", "value"], topic=topic)
    staged = sink.stage([batch({"key": keys, "value": keys})], Task(0))
    assert sink.commit([staged])
    found = server.records(topic)
    assert sorted(record.key or b"" for record in found) == sorted(keys)
    assert all(record.partition == partition_for_key(record.key or b"", 3) for record in found)


def test_a_task_that_is_run_again(
    server: ServerForTests, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt fails in the middle, and the second attempt continues from there."""
    monkeypatch.setattr(rows, "CHUNK_ROWS", 1000)
    sink = sink_of(server, ["partition", "value"], topic=topic)
    wanted = [b"%d" % number for number in range(7000)]
    halves = [
        batch({"partition": [n % 2 for n in range(3500)], "value": wanted[at : at + 3500]})
        for at in (0, 3500)
    ]

    def broken() -> Iterator[Any]:
        yield halves[0]
        raise RuntimeError("the executor fails")

    with pytest.raises(RuntimeError):
        sink.stage(broken(), Task(0))
    assert len(values(server, topic)) == 3500
    for _ in range(2):
        sink.stage(halves, Task(0))
    sink.stage([batch({"partition": [2], "value": [b"of another task"]})], Task(1))
    assert sorted(values(server, topic), key=str) == sorted([*wanted, b"of another task"], key=str)


def test_micro_batches(server: ServerForTests, topic: str) -> None:
    """A repeated micro-batch is stored once, and a late one is fenced."""

    def send(batch_id: int, count: int = 2500, query: str = "q" + topic) -> None:
        sink = sink_of(server, ["partition", "value"], streaming=True, topic=topic)
        sent = [b"%d/%d" % (batch_id, number) for number in range(count)]
        sink.stage([batch({"partition": [1] * count, "value": sent})], Task(0, query, batch_id))

    for batch_id in (0, 0, 1, 1, 40_000):
        send(batch_id)
    with pytest.raises(ServerRefused, match="fenced"):
        send(0)
    send(0, query="another of " + topic)
    wanted = [b"%d/%d" % (b, n) for b in (0, 1, 40_000, 0) for n in range(2500)]
    assert values(server, topic) == wanted


def test_other_rows_in_a_repeat_are_refused(server: ServerForTests, topic: str) -> None:
    sink = sink_of(server, ["partition", "value"], topic=topic)
    sink.stage([batch({"partition": [1] * 10, "value": [b"x"] * 10})], Task(0))
    with pytest.raises(ServerRefused, match="out of order"):
        sink.stage([batch({"partition": [1] * 11, "value": [b"x"] * 11})], Task(0))


def test_a_new_topic(server: ServerForTests, tmp_path: Path) -> None:
    name = f"made-{tmp_path.name}"
    sink = sink_of(server, ["topic", "value"], numPartitions=2)
    sink.stage([batch({"topic": [name, name], "value": [b"a", b"b"]})], Task(1))
    assert values(server, name) == [b"a", b"b"]
    assert len(server.blocking.run(lambda client: client.topic(name)).partitions) == 2


def test_columns_are_checked(server: ServerForTests) -> None:
    with pytest.raises(InvalidArgument, match="column 'value' is missing"):
        sink_of(server, ["key"], topic="t")
