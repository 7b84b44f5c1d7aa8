"""Power loss during or after a recovery: served records stay, and cut bytes are kept next to the store first."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from storage.files import FileSystem
from tests.robustness.crash.power import Power, moments
from tests.unit.kafka.recovery.outage import (
    SETTINGS,
    VALUES,
    abort_one,
    after_cut,
    check_whole,
    committed,
    fill,
    folder,
    on,
    safe_place,
    sync_files,
)
from tests.unit.kafka.workshop import ROOT, T0, Workshop


@pytest.fixture
def shop(power: Power) -> Workshop:
    """A workshop on a disk that can lose its power."""
    return safe_place(power)


def killed(power: Power, shop: Workshop) -> list[bytes]:
    """Write a store without a flush of its records, and kill it; return the committed values."""
    store = shop.open_with_topic(SETTINGS)
    power.sync_dir(ROOT)
    abort_one(store)
    fill(shop, store, VALUES)
    power.kill()
    return [b"stays", *VALUES]


def test_what_recovery_accepted_is_durable_before_it_is_served(
    power: Power, shop: Workshop
) -> None:
    wanted = killed(power, shop)
    again = shop.open(SETTINGS)
    assert committed(again) == wanted
    power.kill()
    found = after_cut(power, shop)
    assert found.offsets("recovery-point-offset-checkpoint") == {T0: 18}
    assert folder(found) == folder(shop)
    with found.open(SETTINGS) as last:
        assert committed(last) == wanted
        assert last.recovery.findings == []


def test_rebuilt_indexes_are_durable(power: Power, shop: Workshop) -> None:
    """Rebuilt indexes are durable also after a clean stop, where no other file of the segment is written."""
    with shop.open_with_topic(SETTINGS) as store:
        fill(shop, store, VALUES)
    whole = folder(shop)
    bases = shop.bases()
    for base in bases:
        for suffix in (".index", ".timeindex"):
            power.remove(shop.path(base, suffix))
    power.sync_dir(ROOT / "t-0")
    shop.open(SETTINGS)
    assert folder(shop) == whole
    found = after_cut(power, shop)
    assert folder(found) == whole
    check_whole(found, VALUES)


def test_a_transaction_index_made_anew_is_durable(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS)
    abort_one(store)
    fill(shop, store, VALUES)
    store.close()
    whole = folder(shop)
    shop.put(shop.path(0, ".txnindex"), b"damaged")
    sync_files(power, shop, ".txnindex")
    shop.open(SETTINGS)
    found = after_cut(power, shop)
    assert folder(found) == whole
    with found.open(SETTINGS) as again:
        assert committed(again) == [b"stays", *VALUES]


def test_a_power_loss_during_recovery_does_no_harm(power: Power, shop: Workshop) -> None:
    """After a power loss at any step, the next start finds all synced records of the killed store again."""
    killed(power, shop)
    sync_files(power, shop, ".log")
    power.sync_dir(ROOT / "t-0")
    for cut in moments(power, lambda: shop.open(SETTINGS)):
        with on(cut, shop).open(SETTINGS) as again:
            assert again.recovery.findings == []
            assert committed(again) == [b"stays", *VALUES]


def torn(power: Power, shop: Workshop) -> dict[str, bytes]:
    """Write a store with a torn tail and a damaged batch before it; return the logs, all of which will be cut."""
    store = shop.open_with_topic(SETTINGS)
    fill(shop, store, VALUES)
    store.flush()
    power.kill()
    size = len(shop.bytes_of(0))
    shop.overwrite(size - 3, b"???")
    last = shop.bases()[-1]
    shop.truncate(len(shop.bytes_of(last)) - 2, base_offset=last)
    sync_files(power, shop, ".log")
    return {shop.path(base).name: shop.bytes_of(base) for base in shop.bases()}


def copies(fs: FileSystem) -> list[tuple[str, int, bytes]]:
    """Return the copies of cut bytes, by the reports next to them: name of the log, position and bytes."""
    found = []
    for name in fs.list_dir(ROOT.parent):
        report = ROOT.parent / name / "report.json"
        if ".cut-" in name and fs.exists(report):
            for loss in msgspec.json.decode(fs.read_bytes(report))["losses"]:
                data = fs.read_bytes(Path(loss["kept_at"]))
                found.append((Path(loss["path"]).name, loss["position"], data))
    return found


def test_what_is_cut_is_durably_kept_before_the_cut(power: Power, shop: Workshop) -> None:
    before = torn(power, shop)
    checked: list[str] = []

    def kept(operation: str, path: Path) -> None:
        if path.suffix == ".log" and operation in ("truncate", "remove"):
            found = {name: (at, data) for name, at, data in copies(power.cut())}
            assert set(found) == set(before)
            for name, (at, data) in found.items():
                assert before[name][at:] == data
            checked.append(path.name)

    power.before = kept
    shop.open(SETTINGS, accept_loss=True)
    power.before = lambda operation, path: None
    assert checked
    assert len(copies(power.cut())) == len(before)


def test_every_byte_of_a_torn_store_is_in_it_or_beside_it(power: Power, shop: Workshop) -> None:
    before = torn(power, shop)
    for cut in moments(power, lambda: shop.open(SETTINGS, accept_loss=True)):
        kept = {(name, at): data for name, at, data in copies(cut)}
        for name, data in before.items():
            path = ROOT / "t-0" / name
            here = cut.read_bytes(path) if cut.exists(path) else b""
            assert here == data or here + kept[name, len(here)] == data
