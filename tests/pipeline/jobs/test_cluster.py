"""The jobs on a real cluster, in two applications: a master and two workers, the packaged code, spark-submit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from storage import Record, TopicPartition, open_store
from storage.columns import SPLIT_BYTES
from tests.golden import stores
from tests.pipeline.jobs import cluster, cluster_jobs
from tests.pipeline.jobs.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster for all tests in this module."""
    with cluster.running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def rows_in(output: str) -> list[Mapping[str, Any]]:
    """Return the rows that a job has printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def more_than_a_task(store: Path) -> list[tuple[int, int]]:
    """Add a topic that is too large for one task, so that both one-core workers get a task.

    Return (partition, offset) of its records.
    """
    value = bytes(1 << 19)
    count = SPLIT_BYTES // len(value) + 1
    with open_store("kafka", store) as opened:
        opened.create_topic("large", 1)
        for _ in range(count):
            opened.append(TopicPartition("large", 0), [Record(key=None, value=value)])
    return [(0, offset) for offset in range(count)]


def test_export(two_workers: Cluster, tmp_path: Path) -> None:
    """Every record of a store is exported to Parquet, by executors on both workers."""
    golden = stores.KAFKA / "parts"
    store = tmp_path / "store"
    shutil.copytree(golden / "data", store)
    expected = more_than_a_task(store) + [
        (row["partition"], row["offset"])
        for path in golden.glob("expect/*/expected.jsonl")
        for row in map(json.loads, path.read_text().splitlines())
    ]
    done = two_workers.submit("export", store, tmp_path / "out")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    reported = rows_in(done.stdout)
    assert sum(row["rows"] for row in reported) == len(expected)
    written = pq.read_table(tmp_path / "out", columns=["partition", "offset"])
    found = zip(*(written[name].to_pylist() for name in ("partition", "offset")), strict=True)
    assert sorted(found) == sorted(expected)
    for worker in (0, 1):
        assert two_workers.logged(worker, "Finished task")


def test_rebuild_and_audit(two_workers: Cluster, tmp_path: Path) -> None:
    """Lost indexes are rebuilt as the real broker had written them.

    The damage of a golden store is found, and the exit code is the code for findings.
    """
    source = stores.KAFKA / "parts" / "data"
    store = tmp_path / "store"
    shutil.copytree(source, store)
    lost = sorted(store.glob("*/*.timeindex"))
    for path in lost:
        path.unlink()
    damaged = stores.KAFKA / "torn" / "flip-active" / "data"
    jobs = [["rebuild", str(store), "--write"], ["audit", str(damaged)]]
    lines = [json.dumps(job) for job in jobs]
    done = two_workers.run(Path(cluster_jobs.__file__), cluster.SPARK_JOB, *lines)
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-4000:]
    rebuilt, _, audited = done.stdout.partition(f"{lines[1]}\n")
    assert rows_in(rebuilt)
    assert len(lost) > 1
    for path in lost:
        assert path.read_bytes() == (source / path.relative_to(store)).read_bytes()
    found = rows_in(audited)
    assert [row["position"] for row in found if row["code"] == "damaged-batch"] == [3384]
