"""Every byte of a small store, flipped one at a time: it is reported, nothing wrong is served, no other record is lost.

The tables list the fields that no checksum covers: where `verify` may report nothing, and where a reader may receive
another value. The soak, which flips all bytes, requires the tables to be exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import pytest

from storage import Finding
from storage.errors import DamagedStore, StorageError
from tests.robustness.crash.flips import Address, Place, log_places, places
from tests.robustness.crash.ram import Ram
from tests.robustness.fuzz.tiny import BACKENDS, ROOT, Row, TinyStore, overwrite, read_all, tiny

MASKS: Final = {True: 0x01, False: 0x80}
"""By state of the store, cleanly stopped or killed: the bits that are flipped in a byte."""
SAMPLE_STEP: Final = 101  # of the quick run
STEP: Final = 16  # of CI: the commit chooses which bytes
VALUE: Final = 3  # index of the value in a row

UNSEEN: Final[Mapping[str, frozenset[str]]] = {
    "kafka": frozenset(
        {
            # Not under the CRC; an epoch below 0 counts as none.
            ".log: leader epoch",
            # In a killed store: the next start rebuilds them.
            *(".index: position", ".timeindex: relative offset"),
            # Another number or name that is as valid as the right one.
            *(".kafka_cleanshutdown: text", "meta.properties: text", "partition.metadata: text"),
            *("recovery-point-offset-checkpoint: text", "replication-offset-checkpoint: text"),
            *(".logserver.store.json: text", ".logserver.topics.json: text"),
            "leader-epoch-checkpoint: text",  # white space that the broker accepts as well
        }
    ),
    "rocketmq": frozenset(
        {
            # The CRC of a record covers its body. The other fields must be plausible, and the fields of its address are
            # compared with the queues and the index. A record of a deleted topic is in neither, so nothing is compared.
            *("commitlog: queue id", "commitlog: queue offset", "commitlog: sys flag"),
            *("commitlog: flag", "commitlog: reconsume times"),
            *("commitlog: born timestamp", "commitlog: born host", "commitlog: store host"),
            *("commitlog: store timestamp", "commitlog: properties"),
            # Never read.
            *("commitlog: padding size", "commitlog: free", "index: entry 0", "index: free"),
            *("checkpoint: free", "checkpoint: master offset", "abort: text"),
            # Another number that is as valid as the right one, for its purpose.
            *("checkpoint: physic timestamp", "checkpoint: logics timestamp"),
            *(
                "checkpoint: index timestamp",
                "checkpoint: confirm offset",
                "checkpoint: logics offset",
            ),
            *("index: begin timestamp", "index: end timestamp", "index: begin offset"),
            *("index: end offset", "index: entry count", "index: time difference"),
            # Another number or name that is as valid as the right one.
            *("config/topics.json: text", "config/topics.json.bak: text"),
            *(".logserver.store.json: text", ".logserver.producers.json: text"),
            ".logserver.index.json: text",  # lookups compare it with the index when they use it
            ".logserver.deleted.json: text",
        }
    ),
}
"""Where `verify` may find nothing: no checksum covers these fields, and the new value may be plausible."""
OTHERWISE: Final[Mapping[str, frozenset[str]]] = {
    "kafka": frozenset(
        {
            # Not under the CRC; nothing shows that the base offset of a log's last batch is too large.
            ".log: base offset",
        }
    ),
    "rocketmq": frozenset(
        {
            # Key, headers, tag and ids: not under the CRC, which covers only the body.
            "commitlog: properties",
        }
    ),
}
"""Fields that no checksum covers and that readers receive: the affected record may be returned with other values."""
NOT_OPENED: Final[Mapping[str, frozenset[str]]] = {
    "kafka": frozenset({"meta.properties: text", ".logserver.store.json: text"}),
    "rocketmq": frozenset({".logserver.store.json: text"}),
}
"""Files without which the identity of the store is unknown: no way of opening it works without them."""


class Flip(NamedTuple):
    """A store with one byte changed."""

    store: TinyStore
    place: Place
    disk: Ram

    @property
    def path(self) -> str:
        return str(ROOT / self.place.file)

    def __str__(self) -> str:
        state = "clean" if self.store.clean else "killed"
        return f"{state} {self.store.backend}: {self.path} at {self.place.position} ({self.place.field})"

    def read(self, **how: bool) -> list[Row]:
        """Return all records that can be read with these open options.

        Raises the errors of opening; the disk may change.
        """
        with self.store.open(self.disk, **how) as opened:
            return list(read_all(opened))


def flips(backend: str, share: slice) -> Iterator[Flip]:
    """Yield a flip of each byte in a share of all bytes, for the store in both of its states."""
    for clean, mask in MASKS.items():
        store = tiny(backend, clean=clean)
        files = store.files()
        for place in list(places(store))[share]:
            disk = store.copy()
            byte = files[place.file][place.position] ^ mask
            overwrite(disk, ROOT / place.file, place.position, bytes([byte]))
            yield Flip(store, place, disk)


def address_of(row: Row) -> Address:
    return row[0], row[1]


def is_told(flip: Flip) -> bool:
    """Return whether `verify` reports more than for the intact store. Only a `StorageError` may be raised."""
    try:
        found = flip.store.verified(flip.disk)
    except StorageError as error:
        return flip.path in str(error)
    return bool(set(found) - told_of_the_whole(flip.store.backend, clean=flip.store.clean))


@cache
def told_of_the_whole(backend: str, *, clean: bool) -> frozenset[Finding]:
    """Return the findings of `verify` for the intact store."""
    store = tiny(backend, clean=clean)
    return frozenset(store.verified(store.disk))


def must_name(error: StorageError, flip: Flip) -> None:
    """Check that a refusal names the file; for damage in a log also a position at or before the damage."""
    assert flip.path in str(error), flip
    if isinstance(error, DamagedStore) and flip.place.file != "checkpoint":
        position = error.facts()["position"]
        assert isinstance(position, int), flip
        assert position <= flip.place.position, flip


def read_only(flip: Flip) -> list[Row] | None:
    """Return the rows served read-only: all but records that contain this byte. None if the store does not open."""
    try:
        rows = flip.read(read_only=True)
    except StorageError as error:
        must_name(error, flip)
        return None
    missing = set(flip.store.rows) - set(rows)
    assert {address_of(row) for row in missing} <= flip.place.rows, flip
    return rows


def check_start(flip: Flip, readable: list[Row] | None) -> str:
    """Check that a start serves all readable records, or refuses and names the place.

    After a refusal, a start that accepts loss must keep everything before that place.
    """
    try:
        rows = flip.read()
    except StorageError as error:
        must_name(error, flip)
        if not isinstance(error, DamagedStore):
            return "not opened"
        check_loss(flip, readable or [])
        return "refused"
    assert rows == readable, flip
    return "opened"


def check_loss(flip: Flip, readable: list[Row]) -> None:
    """Check that the damaged log keeps everything before the damage, and the other logs everything."""
    kept = flip.read(accept_loss=True)
    assert set(kept) <= set(readable), flip
    where = log_places(flip.store)
    hit = flip.place.file, min(where[row] for row in flip.place.rows)[1] if flip.place.rows else 0
    lost = set(readable) - set(kept)
    folder = flip.place.file.rpartition("/")[0]
    for row in lost:
        file, position = where[address_of(row)]
        assert file.rpartition("/")[0] == folder, flip
        assert (file, position) >= hit, flip


def changed(flip: Flip, rows: list[Row] | None) -> bool:
    """Return whether a reader receives unwritten data. It is never a value: a checksum covers values."""
    other = set(rows or ()) - set(flip.store.rows)
    assert {row[VALUE] for row in other} <= {row[VALUE] for row in flip.store.rows}, flip
    return bool(other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sample(backend: str) -> None:
    check(backend, slice(None, None, SAMPLE_STEP))


ALWAYS_FOUND: Final = (
    *("size", "magic", "body crc", "physical offset", "body length", "topic length", "topic"),
    "properties length",
)
"""The fields of a RocketMQ record in which `verify` finds any other byte."""


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_each_byte_of_a_records_frame_is_found(mask: int) -> None:
    """A changed properties byte is also found if it becomes a separator, a zero or invalid UTF-8."""
    store = tiny("rocketmq", clean=True)
    files = store.files()
    every = [place for place in places(store) if place.field.startswith("commitlog: ")]
    rows = sorted({place.rows for place in every if place.rows}, key=sorted)
    for place in every:
        if place.rows != rows[mask % len(rows)]:
            continue
        field = place.field.removeprefix("commitlog: ")
        byte = files[place.file][place.position] ^ mask
        if field == "properties":
            byte = 0xFF if mask == 0xFF else 0 if mask == 0x80 else byte
        if field not in ALWAYS_FOUND and (field != "properties" or byte not in (0, 0xFF)):
            continue
        disk = store.copy()
        overwrite(disk, ROOT / place.file, place.position, bytes([byte]))
        assert is_told(Flip(store, place, disk)), (field, place.position)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_byte(
    backend: str, turn: Callable[[int], slice], figures: Callable[[str], None]
) -> None:
    share = turn(STEP)
    seen = check(backend, share)
    count = sum(number for (what, _), number in seen.items() if what == "flips")
    stated = sum(number for (what, _), number in seen.items() if what == "stated")
    refused = sum(number for (what, _), number in seen.items() if what == "refused")
    figures(
        f"flipped bytes {backend}: {count:,}, {stated:,} reported by verify, {refused:,} refused by a start"
    )
    for what, table in (("unseen", UNSEEN), ("otherwise", OTHERWISE), ("not opened", NOT_OPENED)):
        fields = {field for kind, field in seen if kind == what}
        assert fields == table[backend] if share == slice(None) else fields <= table[backend]


def check(backend: str, share: slice) -> Counter[tuple[str, str]]:
    """Check every flip against the guarantees; return how often each outcome occurred for each field."""
    seen: Counter[tuple[str, str]] = Counter()
    for flip in flips(backend, share):
        field = flip.place.field
        rows = read_only(flip)
        came = ["flips", "stated" if is_told(flip) else "unseen", check_start(flip, rows)]
        if changed(flip, rows):
            came.append("otherwise")
        seen.update((what, field) for what in came)
        assert "unseen" not in came or field in UNSEEN[backend], flip
        assert "otherwise" not in came or field in OTHERWISE[backend], flip
        assert "not opened" not in came or field in NOT_OPENED[backend], flip
    return seen
