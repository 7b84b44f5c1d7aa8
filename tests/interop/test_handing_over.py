"""One directory, two programs in turn: the real broker boots on our store, we open the broker's store, twice."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storage import LogStore, ProducerSequence, Record, TopicPartition, detect, open_store
from storage.errors import OutOfOrderSequence
from storage.kafka.format.checkpoints import decode_epochs, decode_offsets
from tests.interop import peers, written
from tests.interop.brokers import Broker
from tests.interop.peers import KafkaAnswer
from tests.robustness.process.server import BINARY, Client, Server

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)
APPENDED = 25
Rows = Mapping[tuple[str, int], list[dict[str, Any]]]


def hand_to_kafka(root: Path, keep: Path) -> tuple[KafkaAnswer, Path]:
    """Let a real broker boot on all of `root`, append, read everything and stop; return answers and its directory."""
    answer = peers.run_kafka_opens(
        root, "--whole", "yes", "--append", f"orders:0:{APPENDED}", "--keep", str(keep)
    )
    return answer, keep / "log"


def check_gained(answer: KafkaAnswer, before: Rows) -> list[dict[str, Any]]:
    """Check that all earlier records are unchanged and the broker's own records follow; return the broker's records."""
    orders = answer.records["orders", 0]
    for partition, expected in before.items():
        assert answer.records[partition][: len(expected)] == expected, partition
        gained = APPENDED if partition == ("orders", 0) else 0
        assert len(answer.records[partition]) == len(expected) + gained, partition
    return orders[-APPENDED:]


def epochs(root: Path, partition: str = "orders-0") -> list[tuple[int, int]]:
    return list(decode_epochs((root / partition / "leader-epoch-checkpoint").read_bytes()))


def offsets(root: Path, name: str) -> dict[TopicPartition, int]:
    return decode_offsets((root / name).read_bytes())


def check_epochs(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> None:
    """Check that all entries stay, and that one entry with a higher epoch and offset follows."""
    assert after[:-1] == before
    assert after[-1] > before[-1]
    assert after[-1][1] > before[-1][1]


def test_a_library_store_goes_to_and_fro(tmp_path: Path) -> None:
    root = tmp_path / "ours"
    written.write(root)
    with open_store("kafka", root) as store:
        store.create_topic("orders", 2, {"segment.ms": "86400000"})
        _append(store, first_sequence=0)
        mine = written.rows(store)
    for turn in (1, 2):
        answer, root_of_kafka = hand_to_kafka(root, tmp_path / f"kafka-{turn}")
        theirs = check_gained(answer, mine)
        check_epochs(epochs(root), epochs(root_of_kafka))
        identity = (root_of_kafka / "meta.properties").read_bytes()
        root = root_of_kafka
        assert detect(root) == ("kafka", True), "our own files do not disturb and stay"
        end = len(mine["orders", 0]) + APPENDED
        with open_store("kafka", root) as store:
            assert store.recovery.clean_shutdown
            assert (store.recovery.findings, store.recovery.losses) == ([], [])
            assert written.rows(store)["orders", 0][-APPENDED:] == theirs
            assert {p: r for p, r in written.rows(store).items() if p in mine} == dict(
                answer.records
            )
            assert store.topics()["orders"].configs == {"segment.ms": "86400000"}
            assert store.bounds(ORDERS).end == end
            led = epochs(root)
            _append(store, first_sequence=5 * turn)
            mine = written.rows(store)
        assert (root / "meta.properties").read_bytes() == identity
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert offsets(root, name)[ORDERS] == end + 5
        assert epochs(root) == led, "where a broker has led, its newest epoch stays"


def _append(store: LogStore, *, first_sequence: int) -> None:
    """Append five records of a producer that both programs know, two and then three; check that a gap is refused."""
    for sequence, count in ((first_sequence, 2), (first_sequence + 2, 3)):
        store.append(
            ORDERS,
            [Record(b"%d" % n, b"ours", [("h", None)]) for n in range(count)],
            producer=ProducerSequence(77, 1, sequence),
            compression="zstd",
        )
    with pytest.raises(OutOfOrderSequence):
        store.append(
            ORDERS,
            [Record(None, b"gap")],
            producer=ProducerSequence(77, 1, first_sequence + 9),
        )


def test_a_broker_s_consumers_read_on_behind_us(tmp_path: Path) -> None:
    """This holds after any number of our starts: the broker's own metadata counts only its own starts."""
    broker = Broker(tmp_path / "kafka")
    try:
        broker.start()
        topic = ("--topic", "orders", "--partitions", "1")
        peers.broker_tool("topics", broker.address, "--create", *topic)
        _produce(broker, 10)
        broker.end(kill=False)
        for _ in range(5):
            with open_store("kafka", broker.log) as store:
                store.append(ORDERS, [Record(None, b"ours")])
        broker.start()
        assert _consumed(broker, 15) == 15, (
            "and the group's offset bears the epoch of our last record"
        )
        _produce(broker, 10)
        assert _consumed(broker, 10) == 10
    finally:
        broker.end(kill=True)


def _consumed(broker: Broker, count: int) -> int:
    """Return how many of `count` records Kafka's own consumer receives, in a group that continues at its offset."""
    asked = ("--topic", "orders", "--group", "readers", "--num-records", str(count))
    reported = peers.broker_tool("consume", broker.address, *asked, "--timeout", "20000")
    return int(reported.splitlines()[-1].split(",")[4])


def _produce(broker: Broker, count: int) -> None:
    """Produce records with Kafka's own producer."""
    peers.broker_tool(
        "produce",
        broker.address,
        *("--topic", "orders", "--num-records", str(count), "--record-size", "10"),
        *("--throughput", "-1"),
    )


# ---- over HTTP -------------------------------------------------------------------------------------------------------

OPTIONS = ("--set=index.interval.bytes=300",)


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def produce_shapes(client: Client, topic: str, codec: str) -> None:
    """Produce every shape of record over HTTP."""
    records = [
        {
            "key": b64(shape.key),
            "value": b64(shape.value),
            "headers": [{"key": name, "value": b64(value)} for name, value in shape.headers],
            "partition": index % 2,
            **({"timestamp": shape.timestamp_ms} if shape.timestamp_ms is not None else {}),
        }
        for index, shape in enumerate(written.SHAPES)
    ]
    answer = client.produce(f"/topics/{topic}?compression={codec}", records, kind=BINARY)
    assert answer.status == 200, answer
    assert [o["error_code"] for o in answer.body["offsets"]] == [None] * len(records)


def served(client: Client, topic: str, partition: int) -> list[dict[str, Any]]:
    """Return the records of a fetch in the form of the peers' rows, with the fields that a fetch has."""
    return [
        {
            **{
                name: row[name]
                for name in ("topic", "partition", "offset", "timestamp", "key", "value")
            },
            "headers": [[header["key"], header["value"]] for header in row["headers"]],
        }
        for row in client.records(topic, partition, kind=BINARY)
    ]


def test_a_store_written_over_http_goes_to_and_fro(tmp_path: Path) -> None:
    root = tmp_path / "ours"
    with Server(root, *OPTIONS) as server, server.client() as client:
        for codec in written.CODECS:
            topic = f"over-http-{codec}"
            configs = {"internal.segment.bytes": "150000"}
            made = client.call("PUT", f"/topics/{topic}", {"partitions": 2, "configs": configs})
            assert made.status == 201
            for _ in range(2):
                produce_shapes(client, topic, codec)
        assert client.produce("/topics/orders", [{"value": "first"}]).status == 200
        server.stop()
    mine: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for turn in (1, 2):
        answer, root = hand_to_kafka(root, tmp_path / f"kafka-{turn}")
        with Server(root, "--write", *OPTIONS) as server, server.client() as client:
            _check_served(client, answer)
            produce_shapes(client, "over-http-gzip", "snappy")
            path = "/topics/orders/partitions/0?producer_id=900&producer_epoch=0"
            for _ in range(2):
                repeated = client.produce(
                    f"{path}&sequence={turn - 1}", [{"value": f"turn {turn}"}]
                )
                assert repeated.status == 200
            server.stop()
        with open_store("kafka", root, read_only=True) as store:
            assert store.recovery.clean_shutdown
            before, mine = mine, written.rows(store)
        for partition, rows in before.items():
            assert mine[partition][: len(rows)] == rows
        assert [row["value"] for row in mine["orders", 0]].count(
            b64(f'"turn {turn}"'.encode())
        ) == 1
    answer = peers.run_kafka_opens(root, "--clean", "yes", "--direct")
    assert answer.records == mine
    peers.index_check([root / "over-http-none-0", root / "over-http-zstd-1"])


def _check_served(client: Client, answer: KafkaAnswer) -> None:
    """Check that we serve what the real broker read."""
    for (topic, partition), rows in answer.records.items():
        expected = [{k: v for k, v in row.items() if k != "timestampType"} for row in rows]
        assert served(client, topic, partition) == expected, (topic, partition)
