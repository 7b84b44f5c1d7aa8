"""A folder in the place of a file that a start reads or writes: readers report the folder, a writable start fails."""

from __future__ import annotations

from contextlib import closing

import pytest

from storage.errors import DamagedStore
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.recovery.test_blocked_folders import T1, VALUES, block, filled
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value, values

PLACES = [
    "abort",
    "abort.tmp",
    "checkpoint",
    "checkpoint.tmp",
    "lock",
    "config/topics.json",
    "config/topics.json.bak",
    "config/topics.json.tmp",
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "config/delayOffset.json",
    "config/subscriptionGroup.json",
    ".logserver.staged.json",
    ".logserver.store.json",
    ".logserver.producers.json",
    ".logserver.deleted.json",
    ".logserver.index.json",
]


def put_folder(shop: Workshop, place: str, *, is_empty: bool) -> bytes | None:
    """Put a folder at `place`; return the bytes of the file that it replaces, None without a file."""
    path = ROOT / place
    before = shop.fs.read_bytes(path) if shop.fs.exists(path) else None
    if before is not None:
        shop.fs.remove(path)
    shop.fs.make_dir(path)
    if not is_empty:
        put_file(shop.fs, path / "notes.txt", b"x")
    return before


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_readers_report_it(place: str, is_empty: bool, shop: Workshop) -> None:
    filled(shop)
    put_folder(shop, place, is_empty=is_empty)
    before = shop.files()
    with closing(shop.open(read_only=True)) as store:
        found = [f for f in store.recovery.findings if f.path == str(ROOT / place)]
        assert [(f.code, f.severity) for f in found] == [("unknown-file", "error")]
        assert "Move it away" in found[0].message
        assert values(store, T1) == VALUES
    with inspector(shop) as tools:
        reported = [f for f in tools.verify() if f.path == str(ROOT / place)]
        assert ("unknown-file", "error") in [(f.code, f.severity) for f in reported]
    with inspector(shop) as tools:
        summary = tools.summary()["findings"]
        assert str(ROOT / place) in str(summary)
    assert shop.files() == before


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_writable_start_changes_nothing(place: str, is_empty: bool, shop: Workshop) -> None:
    filled(shop)
    removed = put_folder(shop, place, is_empty=is_empty)
    before = shop.files()
    for accept_loss in (False, True):
        with pytest.raises(DamagedStore, match="a folder in the place of a file") as refused:
            shop.open(accept_loss=accept_loss)
        assert "Move it away" in str(refused.value)
        assert refused.value.facts()["path"] == str(ROOT / place)
    assert shop.files() == before
    assert shop.fs.is_dir(ROOT / place)
    shop.fs.remove_tree(ROOT / place)
    if removed is not None:
        put_file(shop.fs, ROOT / place, removed)
    with closing(shop.open()) as store:
        assert values(store, T1) == VALUES
        assert put_value(store, b"more", T1).base_offset == len(VALUES)


@pytest.mark.parametrize("place", ["checkpoint", "lock"])
def test_what_a_start_makes_again_needs_no_copy(place: str, shop: Workshop) -> None:
    filled(shop)
    put_folder(shop, place, is_empty=False)
    shop.fs.rename(ROOT / place, ROOT.parent / "aside")
    with closing(shop.open()) as store:
        assert values(store, T1) == VALUES
        assert put_value(store, b"more", T1).base_offset == len(VALUES)


def test_a_folder_named_abort_is_an_unclean_stop(shop: Workshop) -> None:
    filled(shop)
    put_folder(shop, "abort", is_empty=True)
    with closing(shop.open(read_only=True)) as store:
        assert not store.recovery.clean_shutdown


# ---- a file in the place of a folder that no start creates again ----


@pytest.mark.parametrize("data", [b"", b"text", b"{}"])
@pytest.mark.parametrize("place", ["config", "commitlog"])
def test_a_file_in_the_place_of_config_or_log(place: str, data: bytes, shop: Workshop) -> None:
    filled(shop)
    with closing(shop.open()) as store:
        store.create_topic("quiet", 3)
    shop.fs.rename(ROOT / place, ROOT.parent / "aside")
    block(shop, place, data)
    before = shop.files()
    with closing(shop.open(read_only=True)) as store:
        reported = [f for f in store.recovery.findings if f.path == str(ROOT / place)]
        assert ("unknown-file", "error") in [(f.code, f.severity) for f in reported]
    with inspector(shop) as tools:
        reported = [f for f in tools.verify() if f.path == str(ROOT / place)]
        assert ("unknown-file", "error") in [(f.code, f.severity) for f in reported]
    for accept_loss in (False, True):
        with pytest.raises(DamagedStore, match="restore the folder") as refused:
            shop.open(accept_loss=accept_loss)
        assert refused.value.facts()["path"] == str(ROOT / place)
    assert shop.files() == before
    shop.fs.remove(ROOT / place)
    shop.fs.rename(ROOT.parent / "aside", ROOT / place)
    with closing(shop.open()) as store:
        assert sorted(store.topics()) == ["quiet", "t"]
        assert values(store, T1) == VALUES
