"""Any bytes over any part of a log: served records were written, in this order, and a second start finds no more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage import LogStore
from storage.errors import DamagedStore, MissingPartitions
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, read_around, values

SETTINGS = {"internal.segment.bytes": "400", "index.interval.bytes": "80"}
WRITTEN = [b"value %02d " % n * (1 + n % 4) for n in range(16)]
REFUSALS = {"checkpoint-ahead", "log-ends-below-named", "partition-without-logs"}
"""Findings for which a writable start does not serve a partition."""


class Damage(NamedTuple):
    """A damage: bytes written over a position of a file, or the file cut there."""

    file: int
    place: float
    data: bytes | None


def a_store() -> Workshop:
    """Write sixteen records to several segments, flushed but not stopped."""
    shop = Workshop()
    store = shop.open_with_topic(SETTINGS)
    for value in WRITTEN:
        shop.clock.now_ms += 1
        put_value(store, value)
    store.flush()
    return shop


KILLED = a_store()
damages = st.lists(
    st.builds(
        Damage,
        file=st.integers(0, 20),
        place=st.floats(0, 1),
        data=st.one_of(
            st.none(), st.binary(min_size=1, max_size=60), st.integers(1, 1200).map(bytes)
        ),
    ),
    min_size=1,
    max_size=4,
)


def apply(shop: Workshop, done: Sequence[Damage]) -> None:
    bases = shop.bases()
    for damage in done:
        base = bases[damage.file % len(bases)]
        position = int(damage.place * len(shop.bytes_of(base)))
        if damage.data is None:
            shop.truncate(position, base_offset=base)
        else:
            shop.overwrite(position, damage.data, base_offset=base)


def served(store: LogStore) -> list[bytes | None]:
    """Return the readable values; check that each was written, once, in this order."""
    records, _ = read_around(store)
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    places = [WRITTEN.index(record.value or b"") for record in records]
    assert places == sorted(set(places))
    return [record.value for record in records]


def logs_of(shop: Workshop) -> dict[int, bytes]:
    """Return the bytes of each log."""
    return {base: shop.bytes_of(base) for base in shop.bases()}


@example(done=[Damage(0, 0.0, b"\x01"), Damage(1, 0.0, b"\x01")], clean=False)  # two base offsets
@example(
    done=[Damage(3, 0.0, b"\x01"), Damage(3, 0.4375, b"\0")], clean=True
)  # in the last segment
@given(done=damages, clean=st.booleans())
def test_whatever_happens_to_the_logs(done: Sequence[Damage], clean: bool) -> None:
    shop = KILLED.after_kill()
    if clean:
        shop.open(SETTINGS).close()
    apply(shop, done)
    with shop.open(SETTINGS, read_only=True) as reader:
        readable = served(reader)
    with suppress(DamagedStore):
        unasked = shop.after_kill()
        logs = logs_of(unasked)
        with unasked.open(SETTINGS) as store:
            refused = bool(store.topics()["t"].missing)
            if clean:  # an unclean stop may lose records that only an index names
                assert refused == any(f.code in REFUSALS for f in store.recovery.findings)
            if refused:
                for use in (served, partial(put_value, value=b"more")):
                    with pytest.raises(MissingPartitions):
                        use(store)
            else:
                assert served(store) == readable, "what could be read is not cut unasked"
        if refused:
            assert logs_of(unasked) == logs, "the files of a refused partition stay"
    with shop.open(SETTINGS, accept_loss=True) as store:
        kept = served(store)
        assert kept == readable[: len(kept)]
        put_value(store, b"more")
    again = shop.open(SETTINGS)
    errors = {f.code for f in again.recovery.findings if f.severity == "error"}
    assert errors <= {"offset-gap"}, "each start reports a segment that is missing in the middle"
    assert values(again) == [*kept, b"more"]
    assert again.bounds(T0).end > len(kept)
    assert ROOT.name in shop.fs.list_dir(ROOT.parent)
