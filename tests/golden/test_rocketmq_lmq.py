"""The golden store with light message queues, which the real store wrote with enableLmq and enableMultiDispatch."""

from __future__ import annotations

from pathlib import Path

from storage import TopicPartition
from tests.cli.runner import fine, settings_options
from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores

LMQ = stores.golden(stores.LIGHT)


def test_records_are_read_as_the_real_store_reads_them() -> None:
    checks.check_records(LMQ)
    checks.check_commit_log(LMQ)
    checks.check_index_files(LMQ)


def test_nothing_is_wrong_and_a_rebuild_gives_the_same() -> None:
    options = settings_options(LMQ.settings)
    assert fine("verify", LMQ.root, *options).rows == []
    for what in ("consumequeue", "indexfile"):
        report = fine("rebuild", LMQ.root, "--what", what, *options).document
        assert report["changed"] == []


def test_a_crash_that_took_the_queues_units_is_made_good(tmp_path: Path) -> None:
    """The same bytes are rebuilt, as long as the queues' folders exist."""
    root = stores.copy_store(LMQ, tmp_path / "store")
    files = sorted((root / "consumequeue").glob("*/*/*"))
    wanted = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    (root / "abort").write_text("7")
    with stores.open_golden(LMQ, path=root) as store:
        ends = {queue: end for queue, (_, end) in LMQ.queues.items()}
        assert {queue: store.bounds(queue).end for queue in ends} == ends
        assert store.bounds(TopicPartition("%LMQ%b", 0)) == (0, 40, 40)
    assert {path: path.read_bytes() for path in wanted} == wanted
