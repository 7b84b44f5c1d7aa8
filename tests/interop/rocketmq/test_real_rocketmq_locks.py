"""Our store and the real store on one directory: each locks the other out, and recovers after a kill of the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from storage import LogStore, Record, TopicPartition
from storage import open_store as open_any
from storage.errors import StoreLocked
from storage.files import RealFileSystem
from tests.golden.rocketmq_stores import files_below
from tests.golden.trees import picture
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written

pytestmark = pytest.mark.java

QUEUES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
COUNT = 200


@pytest.fixture
def params(tmp_path: Path) -> Path:
    """The file sizes, in the form that the real store reads."""
    path = tmp_path / "params.json"
    path.write_text(json.dumps({name: int(size) for name, size in written.SIZES.items()}))
    return path


def open_ours(path: Path, *, read_only: bool = False) -> LogStore:
    return open_any("rocketmq", path, written.options(), read_only=read_only)


def values(store: LogStore) -> list[list[bytes | None]]:
    return [[record.value for record in store.scan(queue)] for queue in QUEUES]


def put(store: LogStore) -> None:
    for n in range(COUNT):
        store.append(QUEUES[n % 2], [Record(b"k", b"%d" % n, tag="t")])
    store.flush()


EXPECTED = [[b"%d" % n for n in range(first, COUNT, 2)] for first in range(2)]


def test_the_real_store_keeps_us_out(tmp_path: Path, params: Path) -> None:
    root = tmp_path / "store"
    with open_ours(root) as store:
        store.create_topic("orders", 2)
        put(store)
    with peers.hold(root, params):
        with pytest.raises(StoreLocked) as refusal:
            open_ours(root)
        pid = refusal.value.facts()["pid"]
        assert isinstance(pid, int)
        assert b"Hold" in Path(f"/proc/{pid}/cmdline").read_bytes()
        before = picture(root)
        with open_ours(root, read_only=True) as beside:
            assert values(beside) == EXPECTED
        assert picture(root) == before
    with open_ours(root) as store:
        assert store.recovery.clean_shutdown
        assert values(store) == EXPECTED


OURS = """
import sys
from pathlib import Path
from tests.interop.rocketmq.test_real_rocketmq_locks import open_ours, put

store = open_ours(Path(sys.argv[1]))
store.create_topic("orders", 2)
put(store)
print("acknowledged", flush=True)
sys.stdin.read()
"""


def test_we_keep_the_real_store_out_and_leave_it_a_store_when_killed(
    tmp_path: Path, params: Path
) -> None:
    """It checks the lock only after it has recovered the directory: it removes the spare file of the log."""
    root = tmp_path / "store"
    command = [sys.executable, "-P", "-c", OURS, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "acknowledged\n"
        log = files_below(RealFileSystem(), root, "commitlog")
        with pytest.raises(peers.PeerError, match="Lock failed"), peers.hold(root, params):
            pass
        left = files_below(RealFileSystem(), root, "commitlog")
        assert left == {name: log[name] for name in log if any(log[name])}
        ours.kill()
        ours.wait()
    assert (root / "abort").exists()
    with open_ours(root, read_only=True) as reader:
        assert values(reader) == EXPECTED
    mine = written.rows(root)
    answer = peers.run_rocketmq_opens(root, written.SIZES)
    assert answer.store["lastExit"] == "abnormal"
    assert answer.messages == mine
