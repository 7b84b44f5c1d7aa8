"""The broker's timer files in a salvaged store: copied with the offsets of the new log, or all left out.

The tests with the real broker are in tests/interop/rocketmq/test_real_rocketmq_timers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import pytest

from storage import StoreOptions, SupportsInspect, open_inspector
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_file, put_value

NEW = ROOT.parent / "new"
OPTIONS = StoreOptions(settings=SMALL)
UNIT = Struct(">iqiqiqiq4x")
LOG_BYTES = 100 * UNIT.size
BLANK_MAGIC = -875286124
TIMER_LOG = "timerlog/00000000000000000000"
REST = {"timerwheel": b"w" * 96, "config/timercheck": b"c" * 4096, "config/timermetrics": b"{}"}


class Place(NamedTuple):
    """The physical offset and the size of a record in the commit log."""

    offset: int
    size: int


def unit(place: Place, *, magic: int = 1) -> bytes:
    return UNIT.pack(UNIT.size, -1, magic, 1_000, 60, *place, 7)


def timer_log(*units: bytes) -> bytes:
    return b"".join(units).ljust(LOG_BYTES, b"\0")


class Timers:
    """A store of twelve records, and a timer log with a unit for each record."""

    def __init__(self) -> None:
        self.shop = Workshop()
        with self.shop.open_with_topic() as store:
            for number in range(12):
                put_value(store, b"v%d" % number)
        rows = [
            row
            for run in self._inspect().dump("commitlog")
            for row in run
            if row.get("kind") != "blank"
        ]
        self.places = [Place(int(str(r["physicalOffset"])), int(str(r["size"]))) for r in rows]
        self.shop.fs.make_dir(ROOT / "timerlog")
        self.put(TIMER_LOG, timer_log(*map(unit, self.places)))
        for name, data in REST.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        put_file(self.shop.fs, ROOT / name, data)

    def damage(self, number: int) -> None:
        """Damage the body of a record."""
        place = self.places[number]
        base = place.offset - place.offset % self.shop.fs.size(self.shop.log_path())
        self.shop.overwrite(self.shop.log_path(base), place.offset - base + 89, b"\xff\xff")

    def salvage(self) -> tuple[int, set[str]]:
        """Salvage; return by how many bytes records were moved, and the timer files that were left out."""
        inspector = self._inspect()
        report = inspector.salvage(NEW)
        inspector.close()
        left = [f.path for f in report.findings if f.code == "left-behind"]
        return report.moved_bytes, {path.rpartition("/")[2] for path in left}

    def units(self) -> list[Place]:
        """Return the physical offsets and sizes in the new timer log."""
        data = self.shop.fs.read_bytes(NEW / TIMER_LOG)
        assert len(data) == LOG_BYTES
        used = data[: len(self.places) * UNIT.size]
        return [Place(*fields[5:7]) for fields in UNIT.iter_unpack(used)]

    def _inspect(self) -> SupportsInspect:
        return open_inspector(ROOT, OPTIONS, fs=self.shop.fs, clock=self.shop.clock)


@pytest.fixture
def timers() -> Timers:
    return Timers()


def test_of_a_whole_log_they_are_copied_as_they_are(timers: Timers) -> None:
    assert timers.salvage() == (0, set())
    fs = timers.shop.fs
    for name in (TIMER_LOG, *REST):
        assert fs.read_bytes(NEW / name) == fs.read_bytes(ROOT / name)


@pytest.mark.parametrize("number", [1, 5, 8])
def test_they_name_the_new_places_where_records_are_moved(timers: Timers, number: int) -> None:
    """The unit of a lost record has no offset; otherwise the broker would try for ever to deliver its replacement."""
    timers.damage(number)
    moved_bytes, left = timers.salvage()
    assert (moved_bytes > 0, left) == (True, set())
    for at, (old, new) in enumerate(zip(timers.places, timers.units(), strict=True)):
        assert new == Place(-1 if at == number else old.offset + moved_bytes, old.size)
    for name, data in REST.items():
        assert timers.shop.fs.read_bytes(NEW / name) == data


def test_the_unit_of_a_record_that_was_cut_off_names_none(timers: Timers) -> None:
    timers.damage(11)
    assert timers.salvage() == (0, set())
    assert [place.offset for place in timers.units()] == [
        *(place.offset for place in timers.places[:11]),
        -1,
    ]


def test_a_full_file_ends_with_a_mark(timers: Timers) -> None:
    mark = UNIT.pack(LOG_BYTES - UNIT.size, 0, BLANK_MAGIC, *(-1,) * 5)
    timers.put(TIMER_LOG, timer_log(unit(timers.places[0]), mark, b"rest"))
    assert timers.salvage() == (0, set())
    assert timers.units()[0] == timers.places[0]


def no_wheel(timers: Timers) -> None:
    timers.shop.fs.remove(ROOT / "timerwheel")


def no_check(timers: Timers) -> None:
    timers.shop.fs.remove(ROOT / "config/timercheck")


def no_log(timers: Timers) -> None:
    timers.shop.fs.remove_tree(ROOT / "timerlog")


def short_check(timers: Timers) -> None:
    timers.put("config/timercheck", b"c" * 8)


def zeros_between_units(timers: Timers) -> None:
    timers.shop.overwrite(ROOT / TIMER_LOG, UNIT.size, bytes(UNIT.size))


def damaged_magic(timers: Timers) -> None:
    timers.shop.overwrite(ROOT / TIMER_LOG, 2 * UNIT.size + 12, b"\xff")


@pytest.mark.parametrize(
    "damage", [no_wheel, no_check, no_log, short_check, zeros_between_units, damaged_magic]
)
def test_where_one_is_missing_or_damaged_all_are_left_behind(
    timers: Timers, damage: Callable[[Timers], None]
) -> None:
    damage(timers)
    fs = timers.shop.fs
    present = {
        name.rpartition("/")[2] if "config" in name else name.split("/")[0]
        for name in (TIMER_LOG, *REST)
        if fs.exists(ROOT / name)
    }
    assert timers.salvage() == (0, present)
    for name in ("timerlog", *REST):
        assert not fs.exists(NEW / name)
