"""Other clients read our batches and we read theirs: every codec, every form of a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.kafka.format.batch import (
    HEADER_SIZE,
    decode_header,
    decode_records,
    encode_batch,
    split_batches,
)
from storage.kafka.format.compression import CODECS
from storage.model import Record
from tests.formats.kafka_batches.cases import COMPACTED, MS, PRODUCED, Case
from tests.formats.kafka_batches.oracles import CLIENTS, Client

PAIRS = [(client, codec) for client in CLIENTS for codec in client.codecs]
PAIR_NAMES = [f"{client.name}-{CODECS[codec]}" for client, codec in PAIRS]

SHAPES = [
    Record(None, None, (), MS),
    Record(b"", b"", (), MS),
    Record(b"key", None, [("", b""), ("n", None), ("n", b"v"), ("ключ", b"\xff")], MS - 7_000),
    Record(None, bytes(70_000), (), MS + 2**33),
    Record(b"k" * 64, b"the same again, " * 5_000, [(f"h{n}", b"%d" % n) for n in range(70)], MS),
    Record(bytes(range(256)), b"last", (), 0),
]

blobs = st.none() | st.binary(max_size=80)
records = st.builds(
    Record,
    key=blobs,
    value=blobs,
    headers=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), blobs), max_size=3
    ),
    timestamp_ms=st.integers(0, 2**42),
)


def expected(given_: list[Record], base_offset: int = 0) -> list[tuple[object, ...]]:
    return [
        (base_offset + index, r.timestamp_ms, r.key, r.value, list(r.headers))
        for index, r in enumerate(given_)
    ]


def ours(data: bytes) -> list[tuple[object, ...]]:
    split_batches(data)
    return [(*record[:4], list(record[4])) for record in decode_records(data)]


@pytest.mark.parametrize(("client", "codec"), PAIRS, ids=PAIR_NAMES)
def test_they_read_ours(client: Client, codec: int) -> None:
    data = encode_batch(SHAPES, base_offset=1_000, leader_epoch=4, now_ms=MS, codec=codec)
    assert client.decode(data) == expected(SHAPES, 1_000)


@pytest.mark.parametrize(("client", "codec"), PAIRS, ids=PAIR_NAMES)
def test_we_read_theirs(client: Client, codec: int) -> None:
    data = client.encode(SHAPES, codec=codec)
    assert ours(data) == expected(SHAPES)
    assert decode_header(data).codec == codec


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_same_bytes_without_a_codec(client: Client) -> None:
    """Other clients write 0 or -1 as the leader epoch; all bytes that the CRC covers are equal."""
    data = encode_batch(SHAPES, base_offset=0, leader_epoch=0, now_ms=MS)
    theirs = client.encode(SHAPES)
    assert theirs[HEADER_SIZE:] == data[HEADER_SIZE:]
    assert decode_header(theirs)._replace(leader_epoch=0) == decode_header(data)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@given(given_=st.lists(records, min_size=1, max_size=4))
def test_any_records_both_ways(client: Client, given_: list[Record]) -> None:
    data = encode_batch(given_, base_offset=0, leader_epoch=0, now_ms=MS)
    assert client.decode(data) == expected(given_)
    assert ours(client.encode(given_)) == expected(given_)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("case", PRODUCED + COMPACTED[:2], ids=lambda case: case.name)
def test_we_agree_about_the_real_kafka_s_batches(client: Client, case: Case) -> None:
    assert client.decode(case.data) == ours(case.data)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("codec", [0, 4])
def test_append_time(client: Client, codec: int) -> None:
    data = encode_batch(
        SHAPES, base_offset=0, leader_epoch=0, now_ms=MS + 77, codec=codec, log_append_time=True
    )
    assert client.decode(data) == ours(data)
    assert {record[1] for record in client.decode(data)} == {MS + 77}
