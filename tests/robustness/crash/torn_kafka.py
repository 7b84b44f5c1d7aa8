"""A torn Kafka log directory; see torn.py."""

from __future__ import annotations

from storage import LogStore, TopicPartition
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.format.names import parse_partition_dir
from tests.robustness.crash.torn import Torn
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values

SETTINGS = {"internal.segment.bytes": "400", "index.interval.bytes": "90"}
VALUES = [b"value %2d" % n for n in range(12)]


def check_names(shop: Workshop, addresses: list[TopicPartition]) -> None:
    """Check that only the store and the cut bytes exist in the parent, and only partition folders in the store."""
    assert set(shop.fs.list_dir(ROOT.parent)) == {ROOT.name, *shop.cut_dirs()}
    folders = [name for name in shop.fs.list_dir(ROOT) if shop.fs.is_dir(ROOT / name)]
    assert [parse_partition_dir(name) for name in folders] == addresses


class TornKafka(Torn):
    """Six segments; the last batch is torn, an index is missing, a topic is half deleted."""

    def __init__(self) -> None:
        self.disk = OverlayFileSystem()
        shop = Workshop(self.disk)
        store = shop.open_with_topic(SETTINGS)
        for value in VALUES:
            put_value(store, value)
        last = shop.bases()[-1]
        shop.truncate(len(shop.bytes_of(last)) - 5, base_offset=last)
        self.disk.remove(shop.path(0, ".index"))
        self.disk.make_dir(ROOT / f"u-0.{'0' * 32}-delete")
        self.torn_bytes = Workshop(self.disk).bytes_of(10)[-71:]

    def open(self, fs: FileSystem) -> LogStore:
        return Workshop(fs).open(SETTINGS)

    def check(self, left: FileSystem) -> None:
        shop = Workshop(OverlayFileSystem(left))
        with shop.open(SETTINGS) as store:
            assert values(store) == VALUES[:-1]
            assert store.bounds(T0) == (0, len(VALUES) - 1, len(VALUES) - 1)
        check_names(shop, [T0])
        torn = [
            shop.fs.read_bytes(ROOT.parent / name / str(T0) / kept)
            for name in shop.cut_dirs()
            for kept in shop.fs.list_dir(ROOT.parent / name / str(T0))
        ]
        assert torn == [self.torn_bytes]
