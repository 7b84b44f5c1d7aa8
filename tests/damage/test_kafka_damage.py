"""Every damaged copy of a golden log, opened read-only, for writing, and for writing with accepted loss.

The copies, and the results of the real broker and its log classes for each, are in `kafka/torn`. All tests use an
overlay: a start's writes stay in memory, and a kill is modelled as an overlay on the overlay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage import LogStore, OffsetBounds, Record
from storage.errors import Corrupt, DamagedStore
from storage.files import OverlayFileSystem, RealFileSystem
from storage.kafka.format.checkpoints import decode_epochs, decode_offsets
from tests.golden import stores
from tests.golden.stores import GoldenPartition
from tests.golden.trees import picture
from tests.killed_store import killed

HEALTHY = GoldenPartition("epochs", "epoch-idem-0")
ADDRESS = HEALTHY.address
END = 1203
NOW_MS = 1_000  # before the records' times: no producer expires
ACTIVE, MIDDLE = "00000000000000001113.log", "00000000000000000597.log"
MODES = ("read-only", "writable", "accept-loss")
Ranges = tuple[range, ...]


class Outcome(NamedTuple):
    """The expected result of a variant: the finding, and the offsets served in each mode (None: refused)."""

    code: str | None
    file: str = ACTIVE
    position: int | None = None
    read_only: Ranges = (range(END),)
    writable: Ranges | None = (range(END),)
    accept_loss: Ranges = (range(END),)

    def served(self, mode: str) -> list[int] | None:
        """Return the offsets that are readable in a mode."""
        ranges: Ranges | None = getattr(self, mode.replace("-", "_"))
        return None if ranges is None else [offset for r in ranges for offset in r]


SOUND = Outcome(None)
_LAST_LOST = (range(1202),)
TORN_TAIL = Outcome("torn-tail", ACTIVE, 6804, _LAST_LOST, _LAST_LOST, _LAST_LOST)
ZEROS = Outcome("zero-tail", ACTIVE, 6961)
_AROUND_ACTIVE = (range(1155), range(1163, END))
DAMAGED_ACTIVE = Outcome("damaged-batch", ACTIVE, 3384, _AROUND_ACTIVE, None, (range(1155),))
_AROUND_MIDDLE = (range(635), range(642, END))
DAMAGED_MIDDLE = Outcome("damaged-batch", MIDDLE, 3096, _AROUND_MIDDLE, None, (range(635),))
NOT_LOOKED_AT = Outcome(None, MIDDLE, 3096, _AROUND_MIDDLE, _AROUND_MIDDLE, _AROUND_MIDDLE)
_HOLE = (range(597), range(681, END))
FOLLOWING = f"{681:020}.log"

OUTCOMES = {
    "cut-7-bytes": TORN_TAIL,
    "cut-in-header": TORN_TAIL,
    "cut-mid-batch": TORN_TAIL,
    "cut-mid-batch-clean": TORN_TAIL,
    "cut-mid-batch-recovery-point-end": TORN_TAIL,
    "epochs-missing": SOUND,
    "flip-active": DAMAGED_ACTIVE,
    "flip-base-offset": DAMAGED_ACTIVE._replace(code="misplaced-batch"),
    "flip-leader-epoch": SOUND,
    "flip-length": DAMAGED_ACTIVE,
    "flip-magic": TORN_TAIL,
    "flip-middle-segment": DAMAGED_MIDDLE,
    "flip-middle-segment-clean": NOT_LOOKED_AT,
    "flip-middle-segment-recovered-below": NOT_LOOKED_AT,
    "garbage-tail": Outcome("torn-tail", ACTIVE, 6961),
    "index-missing-clean": SOUND,
    "index-odd-size-clean": SOUND,
    "index-zero-extended": SOUND,
    "index-zero-extended-clean": SOUND,
    "indexes-missing": SOUND,
    "leftover-swap": SOUND,
    "leftovers-deleted-cleaned": SOUND,
    "middle-segment-missing-clean": Outcome("offset-gap", FOLLOWING, 0, _HOLE, _HOLE, _HOLE),
    "snapshot-flip-clean": Outcome("bad-snapshot", "00000000000000001203.snapshot"),
    "snapshots-missing": SOUND,
    "timeindex-missing-clean": SOUND,
    "zero-tail": ZEROS,
    "zero-tail-clean": ZEROS,
}
CASES = [
    pytest.param(variant, mode, id=f"{variant}-{mode}") for variant in OUTCOMES for mode in MODES
]
OPENED = [
    case for case in CASES if OUTCOMES[str(case.values[0])].served(str(case.values[1])) is not None
]
REFUSED = [variant for variant, outcome in OUTCOMES.items() if outcome.writable is None]
CUT = [
    pytest.param(variant, mode, id=f"{variant}-{mode}")
    for variant, outcome in OUTCOMES.items()
    for mode in MODES[1:]
    if outcome.code == "torn-tail"
    or (outcome.code in {"damaged-batch", "misplaced-batch"} and mode == "accept-loss")
]


def root_of(variant: str) -> Path:
    return stores.KAFKA / stores.DAMAGED / variant / "data"


def overlay() -> OverlayFileSystem:
    return OverlayFileSystem(RealFileSystem())


def open_variant(variant: str, mode: str, fs: OverlayFileSystem) -> LogStore:
    return stores.open_golden(
        root_of(variant),
        HEALTHY.settings,
        fs=fs,
        clock=lambda: NOW_MS,
        read_only=mode == "read-only",
        accept_loss=mode == "accept-loss",
    )


def read_around(store: LogStore) -> tuple[list[dict[str, Any]], list[Corrupt]]:
    """Return all readable records as rows, and the errors at unreadable places."""
    bounds = store.bounds(ADDRESS)
    rows: list[dict[str, Any]] = []
    errors: list[Corrupt] = []
    at: int | None = bounds.start
    while at is not None and at < bounds.end:
        try:
            page = store.read(ADDRESS, at)
        except Corrupt as error:
            errors.append(error)
            at = error.facts()["next_good_offset"]  # type: ignore[assignment]  # facts have the type object
            continue
        rows += [stores.as_row(ADDRESS, record) for record in page.records]
        assert page.next_offset > at
        at = page.next_offset
    return rows, errors


@cache
def written() -> dict[int, dict[str, Any]]:
    """Return the originally written rows, by offset."""
    return {row["offset"]: row for row in HEALTHY.lines("expected.jsonl")}


# The log classes return a batch of any magic above 1; no consumer accepts it, and neither do we.
NOT_READ_BY_CONSUMERS = {"flip-magic": {1202}}


def kept_by_the_real_ones(variant: str) -> set[int]:
    """Return the offsets that the broker or its log classes could still read."""
    result = json.loads((root_of(variant).parent / "result.json").read_text())
    ranges = [r for who in ("broker", "logClasses") for r in result[who]["readable"]]
    kept = {offset for first, last in ranges for offset in range(first, last + 1)}
    return kept - NOT_READ_BY_CONSUMERS.get(variant, set())


def test_every_variant_has_its_outcome() -> None:
    assert sorted(OUTCOMES) == stores.damaged_variants()
    assert (len(OPENED), len(REFUSED)) == (80, 4)


@pytest.mark.parametrize(("variant", "mode"), OPENED)
def test_what_is_served_is_what_was_written_and_nothing_else(variant: str, mode: str) -> None:
    with open_variant(variant, mode, overlay()) as store:
        rows, _ = read_around(store)
    assert rows == [written()[row["offset"]] for row in rows]
    assert [row["offset"] for row in rows] == OUTCOMES[variant].served(mode)


@pytest.mark.parametrize("variant", OUTCOMES)
def test_no_less_is_kept_than_by_the_real_broker(variant: str) -> None:
    best = OUTCOMES[variant].served("read-only")
    assert best is not None
    assert kept_by_the_real_ones(variant) <= set(best)
    for mode in ("writable", "accept-loss"):
        served = OUTCOMES[variant].served(mode)
        assert served is None or kept_by_the_real_ones(variant) <= set(served)


def test_a_torn_tail_beside_the_marker_costs_the_torn_batch_only() -> None:
    real = kept_by_the_real_ones("cut-mid-batch-clean")
    ours = OUTCOMES["cut-mid-batch-clean"].served("writable")
    assert (len(real), len(ours or ())) == (1113, END - 1)


@pytest.mark.parametrize(("variant", "mode"), OPENED)
def test_what_is_wrong_is_told_with_file_and_position(variant: str, mode: str) -> None:
    outcome = OUTCOMES[variant]
    with open_variant(variant, mode, overlay()) as store:
        found = [(f.code, f.path, f.position) for f in store.recovery.findings]
        _, errors = read_around(store)
    path = str(root_of(variant) / HEALTHY.name / outcome.file)
    assert found == ([] if outcome.code is None else [(outcome.code, path, outcome.position)])
    served = outcome.served(mode)
    gaps = [] if served is None or served[-1] < END - 2 else _gaps(served)
    if "missing" in variant:
        assert errors == []
        return
    facts = [error.facts() for error in errors]
    assert [(f["path"], f["position"], f["next_good_offset"]) for f in facts] == [
        (path, outcome.position, gap.stop) for gap in gaps
    ]


def _gaps(offsets: Sequence[int]) -> list[range]:
    return [range(before + 1, after) for before, after in pairwise(offsets) if after != before + 1]


def test_every_offset_of_a_bad_batch_fails_and_its_neighbours_do_not() -> None:
    with open_variant("flip-middle-segment", "read-only", overlay()) as store:
        for offset in range(635, 642):
            with pytest.raises(Corrupt) as failure:
                store.read(ADDRESS, offset)
            assert failure.value.facts()["next_good_offset"] == 642
        for offset in (634, 642):
            assert store.read(ADDRESS, offset, max_records=1).records[0].offset == offset


@pytest.mark.parametrize("variant", REFUSED)
def test_a_refused_start_changes_nothing(variant: str, tmp_path: Path) -> None:
    root = stores.copy_store(root_of(variant), tmp_path / "store")
    (root / ".lock").touch()
    before = picture(tmp_path)
    with pytest.raises(DamagedStore) as refusal:
        stores.open_golden(root, HEALTHY.settings)
    outcome, facts = OUTCOMES[variant], refusal.value.facts()
    assert facts["path"] == str(root / HEALTHY.name / outcome.file)
    assert facts["position"] == outcome.position
    assert f"position {outcome.position}" in refusal.value.message
    assert picture(tmp_path) == before


@pytest.mark.parametrize("variant", REFUSED)
def test_a_refused_start_leaves_the_lock_free(variant: str) -> None:
    fs = overlay()
    with pytest.raises(DamagedStore):
        open_variant(variant, "writable", fs)
    open_variant(variant, "accept-loss", fs).close()


@pytest.mark.parametrize(("variant", "mode"), CUT)
def test_what_is_cut_is_kept_beside_the_store(variant: str, mode: str) -> None:
    fs, root = overlay(), root_of(variant)
    with open_variant(variant, mode, fs) as store:
        losses = store.recovery.losses
        end = store.bounds(ADDRESS).end
    outcome = OUTCOMES[variant]
    kept = root.with_name(f"{root.name}.cut-{NOW_MS}")
    assert losses[0].path == str(root / HEALTHY.name / outcome.file)
    first_lost = (outcome.served(mode) or [])[-1] + 1
    assert (losses[0].position, losses[0].first_offset) == (outcome.position, first_lost)
    assert end == END, "above every offset that a checkpoint names"
    for loss in losses:
        original = Path(loss.path).read_bytes()
        assert loss.kept_at == str(
            kept / HEALTHY.name / f"{Path(loss.path).name}.from-{loss.position}"
        )
        assert fs.read_bytes(Path(loss.kept_at)) == original[loss.position :]
        assert loss.size_bytes == len(original) - loss.position
        left = fs.read_bytes(Path(loss.path)) if fs.exists(Path(loss.path)) else b""
        assert left == original[: loss.position]
    stated = json.loads(fs.read_bytes(kept / "report.json"))
    assert stated["store"] == str(root)
    assert [(each["path"], each["first_offset"], each["kept_at"]) for each in stated["losses"]] == [
        (loss.path, loss.first_offset, loss.kept_at) for loss in losses
    ]


@pytest.mark.parametrize(
    ("variant", "mode"), [case for case in OPENED if case not in CUT], ids=lambda value: str(value)
)
def test_nothing_else_is_cut(variant: str, mode: str) -> None:
    fs, root = overlay(), root_of(variant)
    with open_variant(variant, mode, fs) as store:
        losses = store.recovery.losses
    if mode == "read-only":
        assert all(loss.kept_at is None for loss in losses)
    else:
        assert losses == []
    assert not [path for path in fs.changed() if ".cut-" in str(path)]
    assert not [name for name in fs.list_dir(root.parent) if ".cut-" in name]


def test_later_segments_go_with_an_accepted_loss() -> None:
    with open_variant("flip-middle-segment", "accept-loss", overlay()) as store:
        lost = [(x.first_offset, x.next_offset, x.size_bytes) for x in store.recovery.losses]
    sizes = {int(p.stem): p.stat().st_size for p in HEALTHY.log_files}
    later = [base for base in sizes if base > 597]
    assert lost[0] == (635, 681, sizes[597] - 3096)
    assert lost[1:] == [
        (base, after, sizes[base]) for base, after in zip(later, [*later[1:], END], strict=True)
    ]


WRITABLE = [case for case in OPENED if case.values[1] != "read-only"]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "mode"), WRITABLE)
def test_a_start_after_the_next_crash_finds_nothing_more(variant: str, mode: str) -> None:
    fs = overlay()
    with killed(open_variant(variant, mode, fs)) as store:
        rows, _ = read_around(store)
        bounds = store.bounds(ADDRESS)
    for _ in range(2):
        fs = OverlayFileSystem(fs)
        with killed(open_variant(variant, "writable", fs)) as store:
            assert not store.recovery.clean_shutdown
            # A missing segment is reported by each start: it cannot be repaired.
            expected = {"offset-gap"} if variant == "middle-segment-missing-clean" else set()
            assert {f.code for f in store.recovery.findings} == expected
            assert store.recovery.losses == []
            assert (read_around(store)[0], store.bounds(ADDRESS)) == (rows, bounds)
    assert fs.changed() == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("variant", "mode"), WRITABLE)
def test_a_start_after_a_clean_stop_finds_nothing_more(variant: str, mode: str) -> None:
    fs = overlay()
    with open_variant(variant, mode, fs) as store:
        rows, _ = read_around(store)
        bounds = store.bounds(ADDRESS)
    with open_variant(variant, "writable", fs) as store:
        assert store.recovery.clean_shutdown
        # A missing segment is reported by each start: it cannot be repaired.
        assert {f.code for f in store.recovery.findings} <= {"offset-gap"}
        assert store.recovery.losses == []
        assert (read_around(store)[0], store.bounds(ADDRESS)) == (rows, bounds)


@pytest.mark.parametrize(("variant", "mode"), CUT)
def test_the_checkpoints_do_not_name_what_was_cut(variant: str, mode: str) -> None:
    fs, root = overlay(), root_of(variant)
    with killed(open_variant(variant, mode, fs)) as store:
        end = store.bounds(ADDRESS).end
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert decode_offsets(fs.read_bytes(root / name))[ADDRESS] == end


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("variant", "mode"), WRITABLE)
def test_appending_after_a_recovery_works(variant: str, mode: str) -> None:
    fs = overlay()
    with open_variant(variant, mode, fs) as store:
        before, _ = read_around(store)
        end = store.bounds(ADDRESS).end
        epoch, _ = epochs_of(variant, fs)[-1]
        result = store.append(ADDRESS, [Record(b"k", b"new", (), 1)])
        assert result.base_offset == end
        assert store.bounds(ADDRESS) == OffsetBounds(0, end + 1, end + 1)
        after, _ = read_around(store)
        assert after[:-1] == before
    with open_variant(variant, "writable", OverlayFileSystem(fs)) as store:
        assert read_around(store)[0] == after
        assert store.read(ADDRESS, end).records[0].value == b"new"
    assert epochs_of(variant, fs)[-1][0] == epoch, "the broker's newest stays"


def epochs_of(variant: str, fs: OverlayFileSystem) -> Sequence[tuple[int, int]]:
    return decode_epochs(fs.read_bytes(root_of(variant) / HEALTHY.name / "leader-epoch-checkpoint"))
