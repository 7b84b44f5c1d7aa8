"""A torn RocketMQ store; see torn.py. The remaining records are also found by every lookup."""

from __future__ import annotations

import json

from storage import LogStore, Record, TopicPartition
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq.format.names import file_name
from tests.robustness.crash.torn import Torn
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    place_of,
    put_file,
    put_value,
    values,
)

VALUES = [b"value-%02d" % n for n in range(14)]
U0 = TopicPartition("u", 0)


class TornRocketMQ(Torn):
    """A log of some files with three faults.

    - Only the first half of the last record exists.
    - A queue's last file and the index are missing.
    - A topic is half deleted.
    """

    def __init__(self) -> None:
        self.disk = OverlayFileSystem()
        shop = Workshop(self.disk)
        store = shop.open_with_topic()
        store.create_topic("u", 1)
        gone = store.append(U0, [Record(b"k", b"of the topic that is deleted")])
        last = [put_value(store, value) for value in VALUES][-1]
        check_lookups(store)
        self.disk.remove(ROOT / "consumequeue/t/0" / file_name(shop.queue_bases()[-1]))
        self.disk.remove_tree(ROOT / "index")
        deleted = {"topics": {"u": place_of(gone) + 1}, "unfinished": ["u"]}
        put_file(self.disk, ROOT / ".logserver.deleted.json", json.dumps(deleted).encode())
        base, position = divmod(place_of(last), LOG_BYTES)
        shop.overwrite(shop.log_path(base * LOG_BYTES), position + 80, bytes(500))
        self.torn_bytes = shop.log_bytes()[place_of(last) :].rstrip(b"\0")
        assert 60 < len(self.torn_bytes) < 80

    def open(self, fs: FileSystem) -> LogStore:
        return Workshop(fs).open()

    def check(self, left: FileSystem) -> None:
        shop = Workshop(OverlayFileSystem(left))
        with shop.open() as store:
            assert values(store) == VALUES[:-1]
            assert list(store.topics()) == ["t"]
            assert store.bounds(T0) == (0, len(VALUES) - 1, len(VALUES) - 1)
            check_lookups(store)
            put_value(store, VALUES[-1])
        with shop.open() as store:
            assert values(store) == VALUES
            check_lookups(store)
        kept = [
            shop.fs.read_bytes(ROOT.parent / name / "commitlog" / part)
            for name in shop.cut_dirs()
            for part in shop.names(f"../{name}/commitlog")
        ]
        assert kept == [self.torn_bytes]
