"""`logserver find PATH` and `logserver find URL` return the same records of the same store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logserver import LogServer
from storage import Record, StoreOptions, TopicPartition, open_store
from tests.cli.runner import run
from tests.contract.harness import ManualClock

QUERIES = [
    ("--key", "k2"),
    ("--key", "a b"),
    ("--key", "none"),
    ("--tag", "red"),
    ("--topic", "one", "--grep", "lookup-1"),
    ("--topic", "one", "--grep", "value-1"),
    ("--topic", "two", "--from", "5"),
    ("--topic", "one", "--key", "k1"),
    ("--topic", "two", "--tag", "red", "--from", "3", "--to", "9"),
]


def fill(backend: str, root: Path) -> None:
    """Write two topics of two partitions; every third record has a tag, every fourth a lookup key."""
    with open_store(backend, root, StoreOptions(), clock=ManualClock()) as store:
        for topic in ("one", "two"):
            store.create_topic(topic, 2)
        for n in range(24):
            target = TopicPartition(("one", "two")[n // 2 % 2], n % 2)
            record = Record(
                b"a b" if n % 7 == 0 else f"k{n % 5}".encode(),
                f"value-{n}".encode(),
                (),
                n,
                "red" if n % 3 == 0 else None,
                [f"lookup-{n}"] if n % 4 else [],
            )
            store.append(target, [record])


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_path_and_url(backend: str, index: bool, tmp_path: Path) -> None:
    """Also if a limit ends the search, and without the index of keys: then both read the log."""
    root = tmp_path / "store"
    fill(backend, root)
    if not index:
        shutil.rmtree(root / "index", ignore_errors=True)
    offset = "queueOffset" if backend == "rocketmq" else "offset"
    number = "queueId" if backend == "rocketmq" else "partition"
    cases = [(*query, "--limit", limit) for query in QUERIES for limit in (2, 100)]
    of_path = [
        [(row["topic"], row[number], row[offset]) for row in run("find", root, *case).rows]
        for case in cases
    ]
    with LogServer(root) as server:
        for case, wanted in zip(cases, of_path, strict=True):
            rows = run("find", server.url, *case).rows
            found = [(row["topic"], row["partition"], row["offset"]) for row in rows]
            assert found == wanted, case
