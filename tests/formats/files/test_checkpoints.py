"""Kafka's text files: a table for both directions, every cut, the answers of Kafka, and each malformed form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated, UnsupportedFormat
from storage.kafka.format import checkpoints
from storage.model import TopicPartition
from tests.formats.files import small_files

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
        lambda data: checkpoints.decode_partition_metadata(data).topic_id,
        TOPIC_ID,
        METADATA_TEXT,
        id="partition metadata",
    ),
    *(
        pytest.param(
            checkpoints.encode_clean_shutdown,
            checkpoints.decode_clean_shutdown,
            epoch,
            b'{"version":0,"brokerEpoch":%d}' % epoch,
            id=f"clean shutdown, epoch {epoch}",
        )
        for epoch in (77, 2**63 - 1, -1)
    ),
]
Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]


def outcome(decode: Decode, data: bytes) -> object:
    """Return the value, or the DataError; any other error fails the test."""
    try:
        return decode(data)
    except DataError as error:
        return error


@pytest.mark.parametrize(("encode", "decode", "value", "data"), CASES)
def test_both_directions(encode: Encode, decode: Decode, value: object, data: bytes) -> None:
    assert encode(value) == data
    assert decode(data) == value


@pytest.mark.parametrize(
    ("decode", "value", "data"),
    [
        (checkpoints.decode_offsets, OFFSETS, OFFSETS_TEXT),
        (checkpoints.decode_epochs, EPOCHS, EPOCHS_TEXT),
    ],
)
def test_a_cut_loses_no_line_in_silence(decode: Decode, value: object, data: bytes) -> None:
    """After the count, only a cut inside the last number is not noticed; Kafka does not notice it either."""
    last_number = data.rindex(b" ") + 2
    for cut in range(len(b"0\n3"), last_number):
        with pytest.raises(DataError):
            decode(data[:cut])
    assert decode(data[:-1]) == value, "without its last newline"


def test_any_cut_of_a_topic_id_is_seen() -> None:
    for cut in range(len(METADATA_TEXT)):
        with pytest.raises(DataError):
            checkpoints.decode_partition_metadata(METADATA_TEXT[:cut])


def test_an_empty_checkpoint_holds_nothing() -> None:
    assert checkpoints.decode_offsets(b"") == {}
    assert checkpoints.decode_epochs(b"") == []


def test_the_order_of_lines_is_kept() -> None:
    assert list(checkpoints.decode_offsets(OFFSETS_TEXT)) == list(OFFSETS)


@pytest.mark.parametrize(("data", "expected"), small_files.OFFSETS)
def test_offsets_are_read_as_kafka_reads_them(
    data: bytes, expected: list[list[object]] | None
) -> None:
    found = outcome(checkpoints.decode_offsets, data)
    if expected is None:
        assert isinstance(found, DataError)
        return
    assert isinstance(found, dict)
    assert sorted([*partition, offset] for partition, offset in found.items()) == expected


@pytest.mark.parametrize(("data", "expected"), small_files.EPOCHS)
def test_epochs_are_read_as_kafka_reads_them(data: bytes, expected: list[list[int]] | None) -> None:
    found = outcome(checkpoints.decode_epochs, data)
    if expected is None:
        assert isinstance(found, DataError)
        return
    assert found == [tuple(entry) for entry in expected]
    assert checkpoints.decode_epochs(checkpoints.encode_epochs(found)) == found


@pytest.mark.parametrize(("data", "expected"), small_files.METADATA)
def test_topic_ids_are_read_as_kafka_reads_them(data: bytes, expected: list[object] | None) -> None:
    found = outcome(checkpoints.decode_partition_metadata, data)
    if expected is None:
        assert isinstance(found, DataError)
        return
    assert found == tuple(expected)


@pytest.mark.parametrize(("data", "expected"), small_files.MARKERS)
def test_markers_are_read_as_kafka_reads_them(data: bytes, expected: int | None) -> None:
    assert checkpoints.decode_clean_shutdown(data) == expected


def test_a_deep_marker_is_no_crash() -> None:
    assert checkpoints.decode_clean_shutdown(b"[" * 100_000 + b"}") is None


@pytest.mark.parametrize("decode", [checkpoints.decode_offsets, checkpoints.decode_epochs])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"1\n0\n", UnsupportedFormat),
        (b"-1\n0\n", UnsupportedFormat),
        (b"0\n99999999999\n", Corrupt),
        (b"0\n2147483648\n", Corrupt),
        (b"0\n2147483647\n", Truncated),
        (b"0\n2\n", Truncated),
        (b"\0" * 10, Corrupt),
        (b"\xff\n", Corrupt),
    ],
)
def test_malformed_checkpoints(decode: Decode, data: bytes, error: type[DataError]) -> None:
    with pytest.raises(error):
        decode(data)


@pytest.mark.parametrize(
    ("data", "readable"),
    [
        (b"0\n3\na 0 1\nb 0 x\nc 0 3\n", {"a-0": 1, "c-0": 3}),
        (b"0\n3\na 0 1\nb 0 2", {"a-0": 1}),
        (b"0\n1\r\n\xff 0\r\na 2 7\r\n", {"a-2": 7}),
        (bytes(64) + b"\na 0 1\n", {"a-0": 1}),
        (bytes(64), {}),
    ],
)
def test_what_can_be_read_of_a_damaged_checkpoint(data: bytes, readable: dict[str, int]) -> None:
    with pytest.raises(DataError):
        checkpoints.decode_offsets(data)
    found = checkpoints.readable_offsets(data)
    assert {str(partition): offset for partition, offset in found.items()} == readable


@pytest.mark.parametrize(("data", "line"), [(b"x\n0\n", "line 1"), (b"0\nx\n", "line 2")])
def test_malformed_heads_name_the_line(data: bytes, line: str) -> None:
    with pytest.raises(Corrupt, match=line):
        checkpoints.decode_offsets(data)


def test_more_lines_than_counted() -> None:
    with pytest.raises(Corrupt) as caught:
        checkpoints.decode_offsets(b"0\n1\na 0 1\nb 0 1\n")
    assert (caught.value.facts()["expected"], caught.value.facts()["found"]) == (1, 2)


@pytest.mark.parametrize(
    "epochs", [[(1, 5), (1, 6)], [(1, 5), (2, 5)], [(2, 5), (1, 6)], [(1, 5), (2, 4)], [(-1, 0)]]
)
def test_only_epochs_that_rise_are_written(epochs: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_epochs(epochs)


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [("two words", 0, 1), ("a\tb", 0, 1), ("a\nb", 0, 1), ("a\rb", 0, 1), ("a", 2**31, 1)],
)
def test_offsets_that_would_not_be_read_back(topic: str, partition: int, offset: int) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_offsets({TopicPartition(topic, partition): offset})


@pytest.mark.parametrize("offset", [2**63, 10**30])
def test_offsets_beyond_64_bits_are_not_written(offset: int) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_offsets({TopicPartition("a", 0): offset})


def test_partition_metadata_has_43_bytes() -> None:
    data = checkpoints.encode_partition_metadata(TOPIC_ID)
    assert len(data) == checkpoints.PARTITION_METADATA_SIZE == 43


def test_the_metadata_log_has_the_reserved_id() -> None:
    data = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.decode_partition_metadata(data) == (0, checkpoints.METADATA_TOPIC_ID)
    assert checkpoints.encode_partition_metadata(checkpoints.METADATA_TOPIC_ID) == data


@pytest.mark.parametrize("topic_id", ["", "A" * 22, "z" * 22, TOPIC_ID[:21], TOPIC_ID + "A"])
def test_topic_ids_that_are_not_written(topic_id: str) -> None:
    with pytest.raises(InvalidArgument):
        checkpoints.encode_partition_metadata(topic_id)


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
