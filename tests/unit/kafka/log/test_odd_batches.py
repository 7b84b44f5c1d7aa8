"""Complete batches with a valid CRC are never a torn tail: kept, and read as by Kafka's consumer, or skipped."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import pytest

from storage import Isolation, StoreOptions
from storage.contract import SupportsInspect
from storage.errors import Corrupt, DamagedStore
from storage.files import FileSystem
from storage.kafka.format.batch import scan_headers
from storage.kafka.store import KafkaStore
from storage.kafka.tools import open_inspector
from storage.model import FindQuery
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.log.odd_batches import control_batch, log_with, odd_batch
from tests.unit.kafka.log.splitting import read_rows, splitter_of, whole
from tests.unit.kafka.workshop import (
    ROOT,
    T0,
    Workshop,
    put_value,
    read_around,
)


class Odd(NamedTuple):
    """A case: a log, the offsets that the consumer of Kafka 4.3 returns, the finding of verify, and the log end."""

    log: bytes
    offsets: list[int]
    code: str
    end: int


ODD = {
    "last offset delta 0": Odd(
        log_with(odd_batch(2, last_offset_delta=0)), [0, 1, 2, 3, 4, 5], "unusual-offsets", 6
    ),
    "last offset delta 0 at the end": Odd(
        log_with(odd_batch(2, last_offset_delta=0), None), [0, 1, 2, 3, 4], "unusual-offsets", 5
    ),
    "last offset delta 1 of 4 records": Odd(
        log_with(odd_batch(2, (0, 1, 2, 3), last_offset_delta=1), 6),
        [0, 1, 2, 3, 4, 5, 6],
        "unusual-offsets",
        7,
    ),
    "the next batch begins in between": Odd(
        log_with(odd_batch(4, last_offset_delta=0), 5), [0, 1, 4, 5, 6], "unusual-offsets", 7
    ),
    "deltas all 0": Odd(log_with(odd_batch(2, (0, 0, 0))), [0, 1, 2, 5], "unusual-offsets", 6),
    "deltas all 0 at the end": Odd(
        log_with(odd_batch(2, (0, 0, 0)), None), [0, 1, 2], "unusual-offsets", 5
    ),
    "deltas from 1": Odd(log_with(odd_batch(2, (1, 2, 3))), [0, 1, 3, 4, 5], "unusual-offsets", 6),
    "deltas from 1, the next batch after it": Odd(
        log_with(odd_batch(2, (1, 2, 3)), 6), [0, 1, 3, 4, 5, 6], "unusual-offsets", 7
    ),
    "falling deltas": Odd(log_with(odd_batch(2, (2, 1, 0))), [0, 1, 4, 5], "unusual-offsets", 6),
    "a delta twice": Odd(
        log_with(odd_batch(2, (0, 1, 1), last_offset_delta=2)),
        [0, 1, 2, 3, 5],
        "unusual-offsets",
        6,
    ),
    "deltas from -1": Odd(
        log_with(odd_batch(2, (-1, 0, 1))), [0, 1, 2, 3, 5], "unusual-offsets", 6
    ),
    "attributes of a later version": Odd(
        log_with(odd_batch(2, attributes=0x4080)), [0, 1, 2, 3, 4, 5], "unknown-attributes", 6
    ),
    "codec 5": Odd(log_with(odd_batch(2, attributes=5)), [0, 1, 5], "unknown-codec", 6),
    "codec 7 at the end": Odd(
        log_with(odd_batch(2, attributes=7), None), [0, 1], "unknown-codec", 5
    ),
    "bytes after the records": Odd(
        log_with(odd_batch(2, behind=b"\0\0\0")), [0, 1, 5], "trailing-bytes", 6
    ),
    "bytes after the records at the end": Odd(
        log_with(odd_batch(2, behind=b"more"), None), [0, 1], "trailing-bytes", 5
    ),
    "more records counted than there are": Odd(
        log_with(odd_batch(2, count=4, last_offset_delta=3), 6), [0, 1, 6], "undecodable-batch", 7
    ),
    "a count below 0": Odd(
        log_with(odd_batch(2, count=-1, last_offset_delta=2)), [0, 1, 5], "undecodable-batch", 6
    ),
    "a control batch of a later type": Odd(log_with(control_batch(2, 7), 3), [0, 1, 3], "", 4),
}
READABLE = {"unusual-offsets", "unknown-attributes"}


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest) -> Odd:
    return ODD[request.param]


@pytest.fixture(params=[True, False], ids=["stopped", "killed"])
def found(request: pytest.FixtureRequest, shop: Workshop, odd: Odd) -> Workshop:
    """A directory with the log, with or without a clean stop."""
    return directory_with(shop, odd.log, stopped=request.param)


def directory_with(shop: Workshop, log: bytes, *, stopped: bool) -> Workshop:
    shop.open_with_topic().close()
    killed = shop.after_kill()
    killed.put(killed.path(0), log)
    for suffix in (".index", ".timeindex"):
        killed.fs.remove(killed.path(0, suffix))
    if not stopped:
        killed.fs.remove(ROOT / ".kafka_cleanshutdown")
    return killed


def inspect(fs: FileSystem, shop: Workshop) -> SupportsInspect:
    inspector = open_inspector(ROOT, StoreOptions(), fs=fs, clock=shop.clock)
    assert inspector is not None
    return inspector


def test_a_writable_start_keeps_every_byte(found: Workshop, odd: Odd) -> None:
    with found.open() as store:
        assert found.bytes_of(0) == odd.log
        assert store.recovery.losses == []
        assert [record.offset for record in read_around(store)[0]] == odd.offsets
        assert store.bounds(T0).end == odd.end
        assert put_value(store, b"next").base_offset == odd.end
        assert [record.offset for record in read_around(store)[0]] == [*odd.offsets, odd.end]
    assert found.bytes_of(0).startswith(odd.log)
    assert found.cut_dirs() == []
    with found.open() as store:
        assert store.recovery.clean_shutdown
        assert [record.offset for record in read_around(store)[0]] == [*odd.offsets, odd.end]


def test_every_way_of_reading_agrees(found: Workshop, odd: Odd) -> None:
    with found.open(read_only=True) as store:
        records, errors = read_around(store)
        assert [record.offset for record in records] == odd.offsets
        assert len(errors) == (odd.code not in {*READABLE, ""})
        assert isinstance(store, KafkaStore)
        raw, offset = b"", 0
        while offset < store.bounds(T0).end:
            page = store.read_batches(T0, offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
            assert page.next_offset > offset
            raw, offset = raw + page.data, page.next_offset
        assert raw == odd.log
    with closing(inspect(found.fs, found)) as inspector:
        rows = [row for run in inspector.dump("records") for row in run]
        assert [row["offset"] for row in rows] == odd.offsets
        assert [row["value"] for row in rows] == [record.value for record in records]
        batches = [row for run in inspector.dump("batches") for row in run]
        assert len(batches) == len(scan_headers(odd.log, 0, len(odd.log)))
        assert all(row["valid"] for row in batches)
        texts = inspector.find(FindQuery(grep="odd", limit=100))
        wanted = [r.offset for r in records if r.value is not None and r.value.startswith(b"odd")]
        assert [row["offset"] for row in texts] == wanted
    splitter = splitter_of(found)
    if odd.code in {*READABLE, ""}:
        reported = read_rows(found, splitter.plan(whole(splitter)))
        assert [(row.offset, row.value) for row in reported] == [
            (r.offset, r.value) for r in records
        ]
    splitter.close()


@pytest.mark.parametrize(
    ("size", "size_bytes"), [(1, 100), (2, 100), (3, 100), (100, 1), (100, 5), (100, 11)]
)
def test_pages_of_any_size_show_the_same(
    found: Workshop, odd: Odd, size: int, size_bytes: int
) -> None:
    with found.open(read_only=True) as store:
        offsets: list[int] = []
        at, end = 0, store.bounds(T0).end
        while at < end:
            try:
                page = store.read(T0, at, max_records=size, max_bytes=size_bytes)
            except Corrupt as error:
                following = error.facts()["next_good_offset"]
                assert isinstance(following, int)
                at = following
                continue
            assert page.next_offset > at
            offsets += [record.offset for record in page.records]
            at = page.next_offset
    assert offsets == odd.offsets


def test_verify_names_it(found: Workshop, odd: Odd) -> None:
    with closing(inspect(found.fs, found)) as inspector:
        codes = {f.code for f in inspector.verify()} - {
            "missing-index",
            "unclean-stop",
            "offset-gap",
        }
    assert codes == ({odd.code} if odd.code else {"unknown-control-type"})


def test_salvage_takes_it_along(found: Workshop, odd: Odd) -> None:
    target = ROOT.parent / "salvaged"
    with closing(inspect(found.fs, found)) as inspector:
        report = inspector.salvage(target)
    assert report.lost_bytes == 0
    assert report.kept_bytes == len(odd.log)
    undecodable = {"unknown-codec", "trailing-bytes", "undecodable-batch"}
    reported = {(f.code, f.topic, f.partition) for f in report.findings if f.code in undecodable}
    assert reported == ({(odd.code, "t", 0)} if odd.code in undecodable else set())
    assert found.fs.read_bytes(target / "t-0" / found.path(0).name) == odd.log


# ---- batches with offsets that fit nowhere ---------------------------------------------------------------------------

MISPLACED = {  # a log, and the number of its records that fit
    "written twice": (data_batch(0, count=5) + data_batch(2, count=3), 5),
    "an older batch": (data_batch(0, count=4) + data_batch(4) + data_batch(2), 5),
    "an offset below 0": (data_batch(0, count=2) + b"\xff" * 8 + data_batch(2)[8:], 2),
    "a last offset delta below 0": (data_batch(0, count=2) + odd_batch(2, last_offset_delta=-2), 2),
    "an offset of 63 bits": (data_batch(0, count=2) + b"\x7f" + b"\xff" * 7 + data_batch(2)[8:], 2),
    "after a bad one": (data_batch(0, count=2) + data_batch(2)[:-1] + b"?" + data_batch(0), 2),
}


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("name", MISPLACED)
def test_a_misplaced_batch_is_no_torn_tail(shop: Workshop, name: str, stopped: bool) -> None:
    log, count = MISPLACED[name]
    found = directory_with(shop, log, stopped=stopped)
    with pytest.raises(DamagedStore) as refusal:
        found.open()
    assert "do not fit" in refusal.value.message
    assert found.bytes_of(0) == log
    with closing(inspect(found.fs, found)) as inspector:
        assert "misplaced-batch" in {f.code for f in inspector.verify()}
    with found.open(read_only=True) as store:
        records, _ = read_around(store)
        assert len(records) == count
    with found.open(accept_loss=True) as store:
        (loss,) = store.recovery.losses
        assert found.fs.read_bytes(ROOT.parent / str(loss.kept_at)) == log[loss.position :]


def test_a_control_batch_of_a_later_type_ends_no_transaction(shop: Workshop) -> None:
    part = data_batch(0, count=2, producer=(9, 0, 0), transactional=True)
    log = part + control_batch(2, 7, producer_id=9) + data_batch(3)
    with directory_with(shop, log, stopped=False).open() as store:
        assert store.bounds(T0) == (0, 0, 4)


def test_a_torn_batch_that_holds_a_log_is_torn(shop: Workshop) -> None:
    inner = b"".join(data_batch(n) for n in range(3))
    torn = data_batch(2, value=inner + bytes(100))[:-50]
    found = directory_with(shop, data_batch(0, count=2) + torn, stopped=False)
    with found.open() as store:
        assert [f.code for f in store.recovery.findings] == ["torn-tail"]
        assert store.bounds(T0).end == 2
