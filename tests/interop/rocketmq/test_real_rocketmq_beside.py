"""The real store, started by mistake on a directory that we serve, is refused, but only after it has run recovery.

It removes the spare file of the log, and index files newer than the checkpoint, while we run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import Record, TopicPartition
from storage import open_store as open_any
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)


def test_what_we_append_after_that_is_there(tmp_path: Path) -> None:
    params = tmp_path / "params.json"
    params.write_text(json.dumps({name: int(size) for name, size in written.SIZES.items()}))
    root = tmp_path / "store"

    def batch(start: int) -> list[Record]:
        return [
            Record(None, b"%d" % n, tag="t", lookup_keys=[f"k{n}"])
            for n in range(start, start + 300)
        ]

    with open_any("rocketmq", root, written.options()) as store:
        store.create_topic("orders", 1)
        store.append(ORDERS, batch(0))
        with pytest.raises(peers.PeerError, match="Lock failed"), peers.hold(root, params):
            pass
        for start in (300, 600, 900):
            store.append(ORDERS, batch(start))
            store.flush()
    with open_any("rocketmq", root, written.options()) as store:
        assert [r.value for r in store.scan(ORDERS)] == [b"%d" % n for n in range(1200)]
        for n in (5, 299, 300, 700, 1199):
            found = store.find("orders", key=f"k{n}").records
            assert [r.value for _, r in found] == [b"%d" % n]
        assert store.recovery.losses == []
