"""A config file without a byte is reported, both with a `.bak`, which is then read, and without a `.bak`."""

from __future__ import annotations

from contextlib import closing

import pytest

from storage.model import TopicPartition
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value

CONFIG = ROOT / "config"
OFFSETS = b'{"offsetTable":{"t@g":{0:2}}}'
CODES = {
    "topics.json": "bad-topics-file",
    "consumerOffset.json": "bad-config-file",
    "subscriptionGroup.json": "bad-config-file",
    "delayOffset.json": "bad-config-file",
    "consumerFilter.json": "bad-config-file",
}


def filled(shop: Workshop) -> None:
    with closing(shop.open_with_topic()) as store:
        for number in range(4):
            put_value(store, b"value-%d" % number)
    put_file(shop.fs, CONFIG / "consumerOffset.json", OFFSETS)


def reported(shop: Workshop, name: str) -> list[str]:
    with inspector(shop) as tools:
        return [f.code for f in tools.verify() if f.path == str(CONFIG / name)]


@pytest.mark.parametrize("with_backup", [True, False])
@pytest.mark.parametrize("name", CODES)
def test_verify_reports_it_once(name: str, with_backup: bool, shop: Workshop) -> None:
    filled(shop)
    path = CONFIG / name
    if with_backup:
        good = shop.fs.read_bytes(path) if shop.fs.exists(path) else b"{}"
        put_file(shop.fs, path.with_name(name + ".bak"), good)
    elif shop.fs.exists(path.with_name(name + ".bak")):
        shop.fs.remove(path.with_name(name + ".bak"))
    assert reported(shop, name) == []
    put_file(shop.fs, path, b"")
    assert reported(shop, name) == [CODES[name]]


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_start_reports_it_and_serves(name: str, read_only: bool, shop: Workshop) -> None:
    filled(shop)
    backup = CONFIG / f"{name}.bak"
    if shop.fs.exists(backup):
        shop.fs.remove(backup)
    put_file(shop.fs, CONFIG / name, b"")
    with closing(shop.open(read_only=read_only)) as store:
        assert CODES[name] in [f.code for f in store.recovery.findings]
        assert store.bounds(TopicPartition("t", 0)).end == 4


def test_an_empty_backup_means_nothing(shop: Workshop) -> None:
    filled(shop)
    for name in CODES:
        put_file(shop.fs, CONFIG / f"{name}.bak", b"")
        assert reported(shop, f"{name}.bak") == []
