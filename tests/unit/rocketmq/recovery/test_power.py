"""A store after a power loss at any step: everything promised before the loss still holds.

The disk keeps only the synced data, or the synced data and any part of the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from storage import LogStore, RawMessage, Record
from storage.files import FileSystem, OverlayFileSystem
from tests.contract.harness import ManualClock
from tests.robustness.crash.power import Power, moments, nothing
from tests.unit.rocketmq.recovery.outage import after_cut, mixed, safe_place, tree
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    keyed,
    on,
    place_of,
    put_sequenced,
    put_value,
    values,
)

VALUES = [b"value-%02d" % n for n in range(20)]
HOUR_MS = 3_600_000
SECTOR_BYTES = 512
SEEDS = range(12)
PARTS = 5  # CI tries one seed and size in so many: the commit chooses which


class Life:
    """A store that is flushed after each append; the power may fail at any step."""

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self.settings = {"fileReservedTime": "1", "mappedFileSizeCommitLog": str(log_bytes)}
        clock = ManualClock()
        self.power = Power(OverlayFileSystem(clock=clock))
        self.shop = safe_place(self.power)
        self.shop.clock = clock
        self.acknowledged: list[bytes] = []
        self.written: list[bytes] = []
        self.topics: set[str] = set()
        self._looked_at: set[int] = set()

    def is_new(self, left: Workshop) -> bool:
        """Return whether no store with these files was checked since the last write or acknowledgement."""
        found = hash(
            (
                frozenset(tree(left.fs).items()),
                frozenset(folders(left.fs, ROOT)),
                left.clock.now_ms,
                len(self.written),
                len(self.acknowledged),
                frozenset(self.topics),
            )
        )
        is_new = found not in self._looked_at
        self._looked_at.add(found)
        return is_new

    def acts(self) -> Iterator[Callable[[LogStore], object]]:
        """Yield a series of operations with every kind of sync."""
        yield lambda store: store.create_topic("u", 1)
        yield lambda store: put_value(store, b"of the other topic" * 11, T0._replace(topic="u"))
        yield lambda store: store.create_topic("t", 1)
        yield lambda store: self.topics.add("t")
        yield self._age
        for value in VALUES[:8]:
            yield from self._produce(value)
        yield lambda store: store.checkpoint()
        yield lambda store: store.delete_topic("u")
        for value in VALUES[8:14]:
            yield from self._produce(value)
        yield lambda store: store.enforce_retention(self.shop.clock.now_ms)
        for value in VALUES[14:]:
            yield from self._produce(value)

    def _age(self, store: LogStore) -> None:
        self.shop.clock.now_ms += HOUR_MS

    def _produce(self, value: bytes) -> Iterator[Callable[[LogStore], object]]:
        def append(store: LogStore) -> None:
            self.written.append(value)
            store.append(T0, [keyed(value)], publish=False)

        yield append
        yield lambda store: store.flush()
        yield lambda store: self.acknowledged.append(value)
        if VALUES.index(value) % 3 == 0:
            yield lambda store: store.find("t", key=value)

    def run(self) -> None:
        """Run all operations, then close the store."""
        with self.shop.open(self.settings) as store:
            for act in self.acts():
                self.shop.clock.now_ms += 1
                act(store)


def folders(fs: FileSystem, path: Path) -> Iterator[Path]:
    """Yield every folder at or below `path`."""
    if fs.is_dir(path):
        yield path
        for name in fs.list_dir(path):
            yield from folders(fs, path / name)


def check_left(shop: Workshop, life: Life) -> None:
    """Check that a start finds all acknowledged records at their offsets, and no record that was never written."""
    if not life.is_new(shop):
        return
    with shop.open(life.settings) as store:
        assert [f for f in store.recovery.findings if f.severity == "error"] == []
        assert {"t"} >= set(store.topics()) - {"u"} >= life.topics
        found = values(store) if "t" in store.topics() else []
        assert found == life.written[: len(found)]
        assert found[: len(life.acknowledged)] == life.acknowledged
        if "t" in store.topics():
            put_value(store, b"afterwards")
    with shop.open(life.settings) as store:
        assert store.recovery.clean_shutdown
        assert list(store.recovery.losses) == []
        if "t" in store.topics():
            assert values(store) == [*found, b"afterwards"]
            check_lookups(store)


@pytest.mark.slow
def test_power_lost_before_each_step() -> None:
    life = Life()

    def look(operation: object, path: object) -> None:
        check_left(after_cut(life.power, life.shop), life)

    life.power.before = look
    life.run()
    life.power.before = nothing
    assert life.acknowledged == VALUES
    check_left(after_cut(life.power, life.shop), life)


@pytest.mark.slow
@pytest.mark.one_in(PARTS)
@pytest.mark.parametrize("log_bytes", [1024, 4096])
@pytest.mark.parametrize("seed", SEEDS)
def test_any_part_of_what_was_not_synced_may_be_there(seed: int, log_bytes: int) -> None:
    life = Life(log_bytes)
    dice = random.Random(seed)

    def look(operation: object, path: object) -> None:
        left = mixed(life.power.cut(), life.power, dice, SECTOR_BYTES)
        check_left(on(left, life.shop), life)

    life.power.before = look
    life.run()


@pytest.mark.slow
def test_power_lost_again_in_the_recovery(power: Power) -> None:
    shop = safe_place(power)
    store = shop.open_with_topic()
    for value in VALUES:
        put_value(store, value)
        store.flush()
        store.find("t", key=value)
    put_value(store, b"not acknowledged")
    lost = mixed(power.cut(), power, random.Random(1), SECTOR_BYTES)
    second = Power(lost)
    for cut in moments(second, lambda: on(second, shop).open()):
        with on(cut, shop).open() as again:
            assert values(again)[: len(VALUES)] == VALUES
            check_lookups(again)


def test_power_lost_while_a_log_is_cut_at_the_end_of_a_file(power: Power) -> None:
    """The first record of a log file is lost, and its queue entry is on disk: the entry is cut before the log file."""
    shop = safe_place(power)
    store = shop.open_with_topic()
    while store.log.end < LOG_BYTES:
        put_value(store, b"x" * 20)
    assert len(values(store)) == store.bounds(T0).end
    power.kill()
    shop.overwrite(shop.log_path(LOG_BYTES), 0, bytes(LOG_BYTES))
    kept = values(shop.after_kill().open())
    second = Power(OverlayFileSystem(shop.fs))
    for cut in moments(second, lambda: on(second, shop).open()):
        with on(cut, shop).open() as again:
            assert [f for f in again.recovery.findings if f.severity == "error"] == []
            assert values(again) == kept


def test_queue_files_without_units_go_last_first(power: Power) -> None:
    """A power loss took the entries and left their files, which the next start removes.

    A second power loss during the removal must not leave a later file as the first file: its name would say that the
    entries before it were deleted.
    """
    shop = safe_place(power)
    store = shop.open_with_topic()
    for value in VALUES:
        put_value(store, value)
        store.flush()
    assert values(store) == VALUES
    second, dice = Power(power.cut()), random.Random(0)
    left_bases: list[Sequence[int]] = []

    def look(operation: str, path: Path) -> None:
        if operation == "sync_dir" and path == ROOT / "consumequeue" / "t" / "0":
            for _ in range(8):
                left = on(mixed(second.cut(), second, dice, SECTOR_BYTES), shop)
                left_bases.append(left.queue_bases())
                with left.open() as again:
                    assert values(again) == VALUES

    second.before = look
    on(second, shop).open()
    assert {len(bases) for bases in left_bases} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("back_ms", [0, 1000])
def test_a_checkpoint_at_the_first_record_vouches_for_no_other(power: Power, back_ms: int) -> None:
    """The checkpoint holds only a time. Other records may have the same time, or an earlier one after a clock change.

    Their queue entries that a kill left in the machine's memory are synced before a checkpoint covers them.
    """
    shop = safe_place(power)
    store = shop.open_with_topic()
    put_value(store, VALUES[0])
    store.checkpoint()
    shop.clock.now_ms -= back_ms
    for value in VALUES[1:]:
        put_value(store, value)
    assert values(store) == VALUES
    power.kill()
    shop.open().checkpoint()
    queues = {path for path in tree(power) if "consumequeue" in path.parts}
    on_disk, now = tree(power.cut()), tree(power)
    assert len(queues) > 3
    assert {path: on_disk[path] for path in queues} == {path: now[path] for path in queues}


def test_what_was_served_after_a_crash_is_on_disk(power: Power) -> None:
    """Recovery syncs the data that it accepts before any read."""
    shop = safe_place(power)
    store = shop.open_with_topic()
    for value in VALUES:
        put_value(store, value)
    power.kill()
    again = shop.open()
    assert values(again) == VALUES
    with after_cut(power, shop).open() as found:
        assert values(found) == VALUES


def test_nothing_that_waits_for_its_sync_is_shown_before_it(power: Power) -> None:
    shop = safe_place(power)
    store = shop.open_with_topic()
    for value in VALUES:
        store.append(T0, [Record(None, value)], publish=False)
        shown = values(store)
        with after_cut(power, shop).open() as found:
            assert values(found)[: len(shown)] == shown
    store.flush()
    assert values(store) == VALUES


def test_asynchronous_appends_lose_a_suffix(power: Power) -> None:
    shop = safe_place(power)
    store = shop.open_with_topic()
    for count, value in enumerate(VALUES):
        put_value(store, value)
        with after_cut(power, shop).open() as found:
            left = values(found)
            assert left == VALUES[: len(left)]
            assert len(left) <= count + 1


# ---- sequenced appends ----


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_sequenced_append_is_taken_back_whole(power: Power, seed: int) -> None:
    """A producer's append is complete and recognised as a repeat, or it is missing and may be sent again."""
    shop = safe_place(power)
    store = shop.open_with_topic()
    put_sequenced(store, 7, 0, count=3)
    store.flush()
    put_sequenced(store, 7, 3, count=12)
    dice = random.Random(seed)
    for _ in range(3):
        found = on(mixed(power.cut(), power, dice, SECTOR_BYTES), shop)
        with found.open() as again:
            assert len(values(again)) in (3, 15)
            assert put_sequenced(again, 7, 0, count=3).duplicate
            result = put_sequenced(again, 7, 3, count=12)
            assert result.base_offset == 3
            assert values(again) == [b"7/%d" % n for n in range(15)]
        with found.open() as again:
            assert put_sequenced(again, 7, 3, count=12).duplicate
            assert not put_sequenced(again, 7, 15).duplicate
            check_lookups(again)


@pytest.mark.parametrize("stop", ["kill", "power"])
@pytest.mark.parametrize("checkpoint_at", [None, 2, 5])
def test_producers_are_known_after_a_crash(
    power: Power, stop: str, checkpoint_at: int | None
) -> None:
    shop = safe_place(power)
    store = shop.open_with_topic()
    for sequence in range(8):
        put_sequenced(store, 7, sequence)
        store.append(T0, [Record(None, b"another's")])
        if sequence == checkpoint_at:
            store.checkpoint()
    store.flush()
    found = after_cut(power, shop) if stop == "power" else shop.after_kill()
    with found.open() as again:
        for sequence in (3, 4, 5, 6, 7):
            repeated = put_sequenced(again, 7, sequence)
            assert (repeated.duplicate, repeated.base_offset) == (True, 2 * sequence)
        assert not put_sequenced(again, 7, 8).duplicate


def test_each_flush_holds_until_the_next(power: Power) -> None:
    shop = safe_place(power)
    store = shop.open_with_topic()
    for count, value in enumerate(VALUES, 1):
        put_value(store, value)
        for cut in moments(power, store.flush)[:-1]:
            with on(cut, shop).open() as found:
                left = values(found)
            assert left == VALUES[: len(left)]
            assert len(left) >= count - 1
        with after_cut(power, shop).open() as found:
            assert values(found) == VALUES[:count]


# ---- records that are torn ----


@pytest.mark.parametrize("kind", ["sequenced", "plain", "without a body", "without properties"])
def test_a_record_torn_at_any_byte_is_none(kind: str) -> None:
    """The record's CRC covers the body only, but zeros in the bytes after the body are detected too."""
    shop = Workshop()
    store = shop.open_with_topic()
    put_value(store, b"before")
    if kind == "sequenced":
        result = put_sequenced(store, 7, 0)
    elif kind == "without properties":
        result = store.append_messages(T0, [RawMessage(b"body", b"")])
    else:
        result = store.append(T0, [Record(b"k", b"" if kind == "without a body" else b"v")])
    place, size = place_of(result), store.log.end - place_of(result)
    whole = len(shop.log_bytes()[place : place + size].rstrip(b"\0"))
    for kept in range(whole):
        found = shop.after_kill()
        found.overwrite(found.log_path(), place + kept, bytes(size - kept))
        with found.open() as again:
            assert values(again) == [b"before"], kept
            assert not put_sequenced(again, 7, 0).duplicate


@pytest.mark.parametrize("first", range(64))
def test_a_lost_sector_is_no_damage(first: int) -> None:
    """Records after an unwritten sector do not make it damage, wherever in the sector the last flush ended."""
    shop = Workshop()
    settings = {"mappedFileSizeCommitLog": "4096"}
    store = shop.open_with_topic(settings)
    put_value(store, b"x" * (30 + first))
    put_value(store, b"y" * 70)
    synced = store.log.end
    for value in VALUES[:6]:
        put_value(store, value)
    end = min(synced - synced % 512 + 512, store.log.end)
    if end - synced < 4:
        return  # so few zeros may belong to a size
    found = shop.after_kill()
    found.overwrite(found.log_path(), synced, bytes(end - synced))
    with found.open(settings) as again:
        assert len(values(again)) == 2
        check_lookups(again)


@pytest.mark.parametrize("inside", [1, 2, 3])
def test_a_lost_sector_may_end_in_the_zeros_of_a_size(inside: int) -> None:
    """The record that lost its first bytes with the sector is still valid, and does not make the sector damage."""
    shop = Workshop()
    settings = {"mappedFileSizeCommitLog": "4096"}
    store = shop.open_with_topic(settings)
    put_value(store, b"synced")
    assert store.log.end < SECTOR_BYTES
    empty = store.append(T0, [Record(None, b"")])
    around = store.log.end - place_of(empty)
    store.append(T0, [Record(None, b"v" * (2 * SECTOR_BYTES - inside - store.log.end - around))])
    assert store.log.end == 2 * SECTOR_BYTES - inside
    store.append(T0, [Record(None, b"behind")])
    found = shop.after_kill()
    found.overwrite(found.log_path(), SECTOR_BYTES, bytes(SECTOR_BYTES))
    with found.open(settings) as again:
        assert values(again)[0] == b"synced"
        assert b"behind" not in values(again)
        check_lookups(again)


QUEUES = [T0._replace(partition=number) for number in range(3)]


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_while_several_queues_get_their_files(power: Power, seed: int) -> None:
    """Files of one round are created together.

    The rounds create first files, files that follow within a round, and files of a round that begins at a file's end.
    """
    shop, dice = safe_place(power), random.Random(seed)
    store = shop.open_with_topic(partitions=len(QUEUES))
    written: list[bytes] = []
    safe_count = 0

    def look(operation: str, path: Path) -> None:
        for disk in (power.cut(), mixed(power.cut(), power, dice, SECTOR_BYTES)):
            with on(disk, shop).open() as left:
                for queue in QUEUES:
                    found = values(left, queue)
                    assert safe_count <= len(found)
                    assert found == written[: len(found)]

    for count in (7, 3, 5):  # five entries a file: to 7, to the second file's end, a whole file
        values_of_round = [b"%d" % (len(written) + n) for n in range(count)]
        written += values_of_round
        for value in values_of_round:
            for queue in QUEUES:
                put_value(store, value, queue)
        power.before = look
        store.flush()
        safe_count = len(written)
        assert [len(values(store, queue)) for queue in QUEUES] == [safe_count] * len(QUEUES)
        power.before = nothing
    assert [shop.queue_bases(queue) for queue in QUEUES] == [[0, 100, 200]] * len(QUEUES)
