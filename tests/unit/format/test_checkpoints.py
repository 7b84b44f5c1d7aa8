"""The text files: a table for both directions, every cut, every flipped bit, and each way to be malformed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated, UnsupportedFormat
from storage.kafka.format import checkpoints
from storage.model import TopicPartition

TOPIC_ID = "WkZrMbPwQz2bD-ZDdG_p8g"
OFFSETS: dict[TopicPartition, int] = {
    TopicPartition("orders", 10): 0,
    TopicPartition("a-b.c_d", 0): 2**63 - 1,
    TopicPartition("__consumer_offsets", 2**31 - 1): 40,
}
OFFSETS_TEXT = (
    b"0\n3\norders 10 0\na-b.c_d 0 9223372036854775807\n__consumer_offsets 2147483647 40\n"
)
EPOCHS = [(0, 0), (2, 103), (2**31 - 1, 2**63 - 1)]
EPOCHS_TEXT = b"0\n3\n0 0\n2 103\n2147483647 9223372036854775807\n"
METADATA_TEXT = b"version: 0\ntopic_id: WkZrMbPwQz2bD-ZDdG_p8g"

CASES = [
    pytest.param(
        checkpoints.encode_offsets, checkpoints.decode_offsets, OFFSETS, OFFSETS_TEXT, id="offsets"
    ),
    pytest.param(
        checkpoints.encode_offsets, checkpoints.decode_offsets, {}, b"0\n0\n", id="no offsets"
    ),
    pytest.param(
        checkpoints.encode_epochs, checkpoints.decode_epochs, EPOCHS, EPOCHS_TEXT, id="epochs"
    ),
    pytest.param(
        checkpoints.encode_epochs, checkpoints.decode_epochs, [], b"0\n0\n", id="no epochs"
    ),
    pytest.param(
        checkpoints.encode_partition_metadata,
        checkpoints.decode_partition_metadata,
        TOPIC_ID,
        METADATA_TEXT,
        id="partition metadata",
    ),
    pytest.param(
        checkpoints.encode_clean_shutdown,
        checkpoints.decode_clean_shutdown,
        77,
        b'{"version":0,"brokerEpoch":77}',
        id="clean shutdown",
    ),
    pytest.param(
        checkpoints.encode_clean_shutdown,
        checkpoints.decode_clean_shutdown,
        2**63 - 1,
        b'{"version":0,"brokerEpoch":9223372036854775807}',
        id="clean shutdown, largest epoch",
    ),
    pytest.param(
        checkpoints.encode_clean_shutdown,
        checkpoints.decode_clean_shutdown,
        -1,
        b'{"version":0,"brokerEpoch":-1}',
        id="clean shutdown, epoch unknown",
    ),
]
Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]


def outcome(decode: Decode, data: bytes) -> object:
    """The value, or the error of our tree; any other error fails the test."""
    try:
        return decode(data)
    except DataError as error:
        return error


@pytest.mark.parametrize(("encode", "decode", "value", "data"), CASES)
def test_both_directions(encode: Encode, decode: Decode, value: object, data: bytes) -> None:
    assert encode(value) == data
    assert decode(data) == value


@pytest.mark.parametrize(("encode", "decode", "value", "data"), CASES)
def test_cut_at_every_byte(encode: Encode, decode: Decode, value: object, data: bytes) -> None:
    may_be_empty = decode in (checkpoints.decode_offsets, checkpoints.decode_epochs)
    for cut in range(1 if may_be_empty else 0, len(data)):
        with pytest.raises(Truncated) as caught:
            decode(data[:cut])
        assert caught.value.facts()["position"] == cut


@pytest.mark.parametrize(("encode", "decode", "value", "data"), CASES)
def test_a_flipped_bit_never_passes_for_the_same(
    encode: Encode, decode: Decode, value: object, data: bytes
) -> None:
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert outcome(decode, bytes(flipped)) != value, bytes(flipped)


def test_an_empty_checkpoint_holds_nothing() -> None:
    assert checkpoints.decode_offsets(b"") == {}
    assert checkpoints.decode_epochs(b"") == []


def test_the_order_of_lines_is_kept() -> None:
    assert list(checkpoints.decode_offsets(OFFSETS_TEXT)) == list(OFFSETS)


@pytest.mark.parametrize("decode", [checkpoints.decode_offsets, checkpoints.decode_epochs])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"1\n0\n", UnsupportedFormat),
        (b"-1\n0\n", Corrupt),
        (b"x\n0\n", Corrupt),
        (b"\n0\n", Corrupt),
        (b"0\n-1\n", Corrupt),
        (b"0\nx\n", Corrupt),
        (b"0\n99999999999\n", Corrupt),
        (b"0\n2147483648\n", Corrupt),
        (b"0\n2147483647\n", Truncated),
        (b"0\r\n0\r\n", Corrupt),
        (b"0\n0\n\n", Corrupt),
        (b"0\n1\n\n", Corrupt),
        (b"0\n1\none\n", Corrupt),
        (b"0\n2\n", Truncated),
        (b"\0" * 10, Truncated),
        (b"\xff\n", Corrupt),
    ],
)
def test_malformed_checkpoints(decode: Decode, data: bytes, error: type[DataError]) -> None:
    with pytest.raises(error):
        decode(data)


@pytest.mark.parametrize(("data", "line"), [(b"x\n0\n", "line 1"), (b"0\nx\n", "line 2")])
def test_malformed_heads_name_the_line(data: bytes, line: str) -> None:
    with pytest.raises(Corrupt, match=line):
        checkpoints.decode_offsets(data)


@pytest.mark.parametrize(
    "line",
    [
        b"orders 0",
        b"orders 0 1 2",
        b"two words 0 1",
        b"orders  0 1",
        b" orders 0 1",
        b"orders 0 1 ",
        b"orders\t0 1",
        b"orders -1 1",
        b"orders 0 -1",
        b"orders 2147483648 1",
        b"orders 0 9223372036854775808",
        b"orders 0 1_0",
        "ördérs 0 1".encode(),
        b"orders 0 \xd9\xa3",
    ],
)
def test_malformed_offset_lines(line: bytes) -> None:
    with pytest.raises(Corrupt, match="line 4") as caught:
        checkpoints.decode_offsets(b"0\n2\nfine 0 1\n" + line + b"\n")
    assert caught.value.facts()["expected"] == "topic partition offset"


def test_more_lines_than_counted() -> None:
    with pytest.raises(Corrupt) as caught:
        checkpoints.decode_offsets(b"0\n1\na 0 1\nb 0 1\n")
    assert (caught.value.facts()["expected"], caught.value.facts()["found"]) == (1, 2)


def test_a_partition_twice() -> None:
    with pytest.raises(Corrupt, match="line 4"):
        checkpoints.decode_offsets(b"0\n2\na 0 1\na 0 2\n")


@pytest.mark.parametrize("line", [b"1", b"1 2 3", b"-1 0", b"1 -2", b"2147483648 1", b"x 1"])
def test_malformed_epoch_lines(line: bytes) -> None:
    with pytest.raises(Corrupt, match="line 3"):
        checkpoints.decode_epochs(b"0\n1\n" + line + b"\n")


@pytest.mark.parametrize(
    "epochs", [[(1, 5), (1, 6)], [(1, 5), (2, 5)], [(2, 5), (1, 6)], [(1, 5), (2, 4)]]
)
def test_epochs_must_rise(epochs: list[tuple[int, int]]) -> None:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    with pytest.raises(Corrupt, match="line 4"):
        checkpoints.decode_epochs(f"0\n2\n{lines}".encode())
    with pytest.raises(InvalidArgument):
        checkpoints.encode_epochs(epochs)


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [("two words", 0, 1), ("", 0, 1), ("é", 0, 1), ("a", -1, 1), ("a", 0, -1), ("a\nb", 0, 1)],
)
def test_offsets_that_would_not_be_read_back(topic: str, partition: int, offset: int) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_offsets({TopicPartition(topic, partition): offset})


@pytest.mark.parametrize("offset", [2**63, 10**30])
def test_offsets_beyond_64_bits_are_not_written(offset: int) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_offsets({TopicPartition("a", 0): offset})


def test_partition_metadata_has_43_bytes_and_a_newline_does_no_harm() -> None:
    data = checkpoints.encode_partition_metadata(TOPIC_ID)
    assert len(data) == checkpoints.PARTITION_METADATA_SIZE == 43
    assert checkpoints.decode_partition_metadata(data + b"\n") == TOPIC_ID


def test_the_metadata_log_has_the_reserved_id() -> None:
    data = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.decode_partition_metadata(data) == checkpoints.METADATA_TOPIC_ID
    assert checkpoints.encode_partition_metadata(checkpoints.METADATA_TOPIC_ID) == data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (METADATA_TEXT.replace(b"0", b"1", 1), UnsupportedFormat),
        (METADATA_TEXT + b"\n\n", Corrupt),
        (METADATA_TEXT + b"x", Corrupt),
        (METADATA_TEXT.replace(b"\n", b" "), Corrupt),
        (METADATA_TEXT.replace(b"W", b"+"), Corrupt),
        (b"version: 0\ntopic_id: " + b"A" * 22, Corrupt),  # the reserved id of all zeros
        (b"version: 0\ntopic_id: " + b"z" * 22, Corrupt),  # more than 128 bits
        (bytes(43), Corrupt),
        (bytes(42), Corrupt),
        (b"version: 0\nto\n", Corrupt),
    ],
)
def test_malformed_partition_metadata(data: bytes, error: type[DataError]) -> None:
    with pytest.raises(error) as caught:
        checkpoints.decode_partition_metadata(data)
    assert caught.value.facts()["kind"] == "partition.metadata"


@pytest.mark.parametrize("topic_id", ["", "A" * 22, "z" * 22, TOPIC_ID[:21], TOPIC_ID + "A"])
def test_topic_ids_that_are_not_written(topic_id: str) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_partition_metadata(topic_id)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Truncated),
        (b'{"version":1,"brokerEpoch":1}', UnsupportedFormat),
        (b'{"version":false,"brokerEpoch":1}', UnsupportedFormat),
        (b'{"brokerEpoch":1}', UnsupportedFormat),
        (b'{"version":0}', Corrupt),
        (b'{"version":0,"brokerEpoch":true}', Corrupt),
        (b'{"version":0,"brokerEpoch":1.5}', Corrupt),
        (b'{"version":0,"brokerEpoch":"1"}', Corrupt),
        (b'{"version":0,"brokerEpoch":9223372036854775808}', Corrupt),
        (b'{"version":0,"brokerEpoch":-2}', Corrupt),
        (b"[0]", Corrupt),
        (b"{nonsense}", Corrupt),
        (b"\xff\xfe}", Corrupt),
        (b"[" * 100_000 + b"}", Corrupt),
    ],
)
def test_malformed_markers(data: bytes, error: type[DataError]) -> None:
    with pytest.raises(error):
        checkpoints.decode_clean_shutdown(data)


def test_a_marker_may_hold_more() -> None:
    data = b'{ "version": 0, "brokerEpoch": 5, "later": [] }\n'
    assert checkpoints.decode_clean_shutdown(data) == 5


@pytest.mark.parametrize("epoch", [-2, 2**63])
def test_broker_epochs_that_are_not_written(epoch: int) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_clean_shutdown(epoch)


partitions = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20))
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    decoded = checkpoints.decode_offsets(checkpoints.encode_offsets(offsets))
    assert list(decoded.items()) == list(offsets.items())


@given(
    st.sets(st.integers(0, 2**31 - 1), max_size=20).map(sorted),
    st.sets(st.integers(0, 2**63 - 1), max_size=20).map(sorted),
)
def test_epochs_round_trip(epochs: list[int], starts: list[int]) -> None:
    entries = list(zip(epochs, starts, strict=False))
    assert checkpoints.decode_epochs(checkpoints.encode_epochs(entries)) == entries


@pytest.mark.parametrize(
    "decode",
    [
        checkpoints.decode_offsets,
        checkpoints.decode_epochs,
        checkpoints.decode_partition_metadata,
        checkpoints.decode_clean_shutdown,
    ],
)
@given(data=st.binary(max_size=60) | st.text('0123456789 \n{}:,"ab', max_size=60).map(str.encode))
def test_any_bytes_decode_or_raise_in_the_tree(decode: Decode, data: bytes) -> None:
    result = outcome(decode, data)
    assert not isinstance(result, DataError) or result.facts()["kind"]
