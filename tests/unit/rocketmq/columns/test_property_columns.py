"""Properties as columns equal the properties that the parser of single records returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.columns import Named, Slices
from storage.rocketmq.columns.properties import Properties
from storage.rocketmq.format.properties import RESERVED, decode_properties

TOKENS = [
    *(b"\x01", b"\x02", b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC"),
    *(b"attribute-number-1", b"attribute-number-2", b"a", b"\0", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\xed"),
]  # fmt: skip
rough = st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)
tidy = st.lists(
    st.tuples(st.sampled_from(TOKENS[4:]), st.sampled_from(TOKENS[4:])), max_size=30
).map(lambda pairs: b"".join(b"%b\x01%b\x02" % pair for pair in pairs))


def properties_of(regions: Sequence[bytes], around: bytes = b"\x02TAGS\x01no\x02") -> Properties:
    """Return the properties of records that have other bytes between them."""
    data = around + around.join(regions) + around
    lengths = np.array([len(region) for region in regions], np.int64)
    starts = len(around) + lengths.cumsum() - lengths + np.arange(len(regions)) * len(around)
    return Properties(data, starts, starts + lengths)


def texts(column: Slices) -> list[str | None]:
    places = zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
    return [None if n < 0 else column.data[at : at + n].decode() for at, n in places]


def pairs(column: Named) -> list[list[tuple[str | None, str | None]]]:
    all_of_them = zip(texts(column.names), texts(column.values), strict=True)
    return [[next(all_of_them) for _ in range(count)] for count in column.counts.tolist()]


@pytest.mark.parametrize("hidden", [(), RESERVED, ("TAGS", "attribute-number-2", "é")])
@given(regions=st.lists(st.one_of(rough, tidy), max_size=8))
def test_all_properties_are_those_of_each_record(
    hidden: Sequence[str], regions: list[bytes]
) -> None:
    wanted = [
        [(name, value) for name, value in decode_properties(region).items() if name not in hidden]
        for region in regions
    ]
    assert pairs(properties_of(regions).named(hidden)) == wanted


@given(st.lists(st.one_of(rough, tidy), max_size=8))
def test_one_property_is_that_of_each_record(regions: list[bytes]) -> None:
    properties = properties_of(regions)
    for name in ("TAGS", "UNIQ_KEY", "TIMER_DELAY_MS", "attribute-number-1", "a", "é", "not there"):
        wanted = [decode_properties(region).get(name) for region in regions]
        assert texts(properties.value(name)) == wanted


def test_of_many_properties_the_last_of_a_name_counts() -> None:
    many = b"".join(b"name%d\x01%d\x02" % (number % 50, number) for number in range(120))
    regions = [b"a\x011\x02", many, b"", b"a\x012\x02a\x013\x02"]
    properties = properties_of(regions)
    assert pairs(properties.named()) == [
        list(decode_properties(region).items()) for region in regions
    ]
    assert texts(properties.value("name7")) == [None, "107", None, None]


def test_no_records_have_no_properties() -> None:
    properties = properties_of([])
    assert pairs(properties.named()) == []
    assert texts(properties.value("TAGS")) == []
