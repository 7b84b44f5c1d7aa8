"""Records with a topic that no folder can be named after: damage, or a file made to write outside the store.

No checksum covers the topic. Such a record is in no queue, and a report names it; all others are served.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from storage import (
    Finding,
    StoreOptions,
    SupportsParts,
    TopicPartition,
    convert_store,
    open_inspector,
)
from storage.contract import run_serially
from storage.rocketmq.format.message import decode_message
from tests.formats.rocketmq_messages.cases import walked
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_file, put_value, values

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 0)
NAMES = ["or\0ers", "\0rders", "or/ers", "/rders", "order/", "../../", "../abc"]


def damaged(name: str, *, built: bool) -> Workshop:
    """Return a killed store whose second record of `orders` has another topic; `built`: its queue entry exists."""
    shop = Workshop()
    with shop.open_with_topic() as store:
        for topic in ("orders", "other"):
            store.create_topic(topic, 1)
        for number in range(4):
            put_value(store, b"%d" % number, ORDERS)
            put_value(store, b"%d" % number, OTHER)
    if not built:
        shop.fs.remove_tree(ROOT / "consumequeue")
        shop.fs.make_dir(ROOT / "consumequeue")
    put_file(shop.fs, ROOT / "abort", b"")
    base, position = place_of(shop, 2)
    shop.overwrite(shop.log_path(base), position, name.encode())
    return shop


def place_of(shop: Workshop, number: int) -> tuple[int, int]:
    """Return the file and the position of the topic in the record of `orders` with this number, from 1 on."""
    seen = 0
    for base in shop.log_bases():
        data = shop.fs.read_bytes(shop.log_path(base))
        records, _, _ = walked(data, 0, len(data), base)
        for at, size in records:
            seen += decode_message(data, at - base).topic == "orders"
            if seen == number:
                return base, data.index(b"orders", at - base, at - base + size)
    raise AssertionError


def found(shop: Workshop) -> list[Finding]:
    """Return the findings of `verify`."""
    options = StoreOptions(settings=SMALL)
    inspector = open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)
    try:
        return [finding for finding in inspector.verify() if finding.severity == "error"]
    finally:
        inspector.close()


def outside(shop: Workshop) -> set[str]:
    """Return the folders and files next to the queues and next to the store."""
    return {*shop.names("."), *shop.names(".."), *shop.names("consumequeue")}


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_in_no_queue_and_is_reported(name: str, *, built: bool) -> None:
    shop = damaged(name, built=built)
    before = outside(shop)
    assert "suspect-header" in {finding.code for finding in found(shop)}
    with shop.open(read_only=True) as store:
        assert values(store, OTHER) == [b"0", b"1", b"2", b"3"]
    with shop.open(accept_loss=True) as store:
        assert values(store, OTHER) == [b"0", b"1", b"2", b"3"]
        assert set(store.topics()) == {"t", "orders", "other"}
        put_value(store, b"more", OTHER)
    assert {name for name in outside(shop) - before if "cut" not in name} <= {"orders", "other"}
    assert "suspect-header" in {finding.code for finding in found(shop)}


@pytest.mark.parametrize("name", NAMES)
def test_verify_and_rebuild_name_the_same_places(name: str) -> None:
    """Also in a file in which a topic with a control character, which has a queue, comes first."""
    shop = damaged(name, built=False)
    base, position = place_of(shop, 2)  # of those left
    shop.overwrite(shop.log_path(base), position, name.encode())
    base, position = place_of(shop, 1)
    shop.overwrite(shop.log_path(base), position, b"\x1b")
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    try:
        rebuilt = without_queue(inspector.rebuild("consumequeue").findings)
    finally:
        inspector.close()
    with shop.open(read_only=True) as store:
        assert without_queue(store.recovery.findings) == rebuilt
    assert without_queue(found(shop)) == rebuilt
    assert len(rebuilt) == 2
    served = [
        f for f in found(shop) if f.code == "suspect-header" and "in no queue" not in f.message
    ]
    assert [(f.topic, f.severity) for f in served] == [("\x1brders", "error")]
    assert "more like it" not in served[0].message


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_clean_stop_does_not_make_it_a_deleted_topic(name: str, *, in_parts: bool) -> None:
    """It has neither an entry nor a folder, but it never had one."""
    shop = damaged(name, built=False)
    shop.open(accept_loss=True).close()
    reported = without_queue(found(shop))
    assert len(reported) == 1
    shop.open(accept_loss=True).close()
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    assert isinstance(inspector, SupportsParts)
    try:
        if in_parts:
            report = inspector.rebuild_in_parts("consumequeue", run_serially)
        else:
            report = inspector.rebuild("consumequeue")
    finally:
        inspector.close()
    assert without_queue(report.findings) == reported


@pytest.mark.parametrize("name", NAMES)
def test_dump_and_convert_name_it_after_a_clean_stop(name: str) -> None:
    """Both read queues. The queues of a cleanly stopped store do not show that a record is in none."""
    shop = damaged(name, built=False)
    shop.open(accept_loss=True).close()
    reported = without_queue(found(shop))
    assert len(reported) == 1
    options = StoreOptions(settings=SMALL)
    inspector = open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)
    try:
        for _ in inspector.dump("records"):
            pass
        assert without_queue(inspector.findings()) == reported
    finally:
        inspector.close()
    report = convert_store(
        ROOT, "converted", to="kafka", options=options, fs=shop.fs, clock=shop.clock
    )
    assert without_queue(report.findings) == reported


def without_queue(findings: Iterable[Finding]) -> list[tuple[str, int | None]]:
    """Return file and position of each record that is reported to be in no queue."""
    return sorted((f.path, f.position) for f in findings if "in no queue" in f.message)


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_rebuild_leaves_it_out(name: str, *, in_parts: bool) -> None:
    shop = damaged(name, built=False)
    before = outside(shop)
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    assert isinstance(inspector, SupportsParts)
    try:
        if in_parts:
            report = inspector.rebuild_in_parts("consumequeue", run_serially)
        else:
            report = inspector.rebuild("consumequeue")
    finally:
        inspector.close()
    assert "suspect-header" in {finding.code for finding in report.findings}
    assert outside(shop) == before
