"""`meta.properties`: Java's properties syntax, the broker's rules for the keys, and UUIDs as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument, UnsupportedFormat
from storage.kafka.format.properties import (
    MetaProperties,
    decode_properties,
    encode_properties,
    new_meta_properties,
    new_uuid_text,
    parse_meta_properties,
    parse_uuid_text,
)

DIRECTORY_ID = "2w0vQbUXTkWXPCWb7I2fpA"
WRITTEN_BY_KAFKA = (
    b"#\n#Sat Nov 21 01:20:09 GMT 2026\ncluster.id=FSKWEREpS6eN8Ud_GkZlFw\n"
    b"directory.id=2w0vQbUXTkWXPCWb7I2fpA\nnode.id=1\nversion=1\n"
)

CASES = [
    pytest.param({}, b"", id="empty"),
    pytest.param({"version": "1", "a": "b"}, b"version=1\na=b\n", id="plain"),
    pytest.param({"k": ""}, b"k=\n", id="empty value"),
    pytest.param({"": "v"}, b"=v\n", id="empty key"),
    pytest.param({"a b": " c d"}, b"a\\ b=\\ c d\n", id="spaces"),
    pytest.param({"~": "a~\x7f"}, b"~=a~\\u007f\n", id="the last of ASCII"),
    pytest.param({"a=b:c": "d=e:f"}, b"a\\=b\\:c=d\\=e\\:f\n", id="separators"),
    pytest.param({"#k": "!v"}, b"\\#k=\\!v\n", id="comment signs"),
    pytest.param({"k": "a\tb\nc\rd\fe\\"}, b"k=a\\tb\\nc\\rd\\fe\\\\\n", id="controls"),
    pytest.param(
        {"k\u00e9": "\u20ac\U0001f600\0"},
        b"k\\u00e9=\\u20ac\\ud83d\\ude00\\u0000\n",
        id="unicode",
    ),
]

# Input, and the result of java.util.Properties.load (OpenJDK 17).
SYNTAX = [
    pytest.param(b"a:b", {"a": "b"}, id="colon"),
    pytest.param(b"a b", {"a": "b"}, id="space"),
    pytest.param(b"a \t=\f b ", {"a": "b "}, id="white space around"),
    pytest.param(b"a==b", {"a": "=b"}, id="one separator only"),
    pytest.param(b"a = : b", {"a": ": b"}, id="the second is value"),
    pytest.param(b"a", {"a": ""}, id="no separator"),
    pytest.param(b"  a=b", {"a": "b"}, id="indented"),
    pytest.param(b"\n \t\n# x=y\n  ! z\na=b", {"a": "b"}, id="blanks and comments"),
    pytest.param(b"# x\\\na=b", {"a": "b"}, id="a comment is not continued"),
    pytest.param(b"a=b\\\n  c", {"a": "bc"}, id="continued"),
    pytest.param(b"a=b\\\\\\\n c", {"a": "b\\c"}, id="continued after an escaped backslash"),
    pytest.param(b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}, id="an escaped backslash ends a line"),
    pytest.param(b"a=b\\\n#c", {"a": "b#c"}, id="no comment in a continued line"),
    pytest.param(b"\\\n#c\na=b", {"a": "b"}, id="unless nothing stands before it"),
    pytest.param(b"a=b\\\n\nc=d", {"a": "b", "c": "d"}, id="continued by a blank"),
    pytest.param(b"a=b\\", {"a": "b"}, id="backslash at the end"),
    pytest.param(b"a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}, id="line ends"),
    pytest.param(b"a=b\\\r\n c", {"a": "bc"}, id="continued over two characters"),
    pytest.param(b"a=1\nb=2\na=3", {"a": "3", "b": "2"}, id="the last one counts"),
    pytest.param(b"a\\=b=c", {"a=b": "c"}, id="escaped separator"),
    pytest.param(b"a=\\q\\u00E9\\t", {"a": "q\u00e9\t"}, id="escapes"),
    pytest.param(b"a=\\\\u00e9", {"a": "\\u00e9"}, id="an escaped backslash is no escape"),
    pytest.param(b"a=\xe9", {"a": "\u00e9"}, id="latin 1"),
    pytest.param(b"a=\\uD83D\\uDE00", {"a": "\U0001f600"}, id="surrogates"),
]


@pytest.mark.parametrize(("properties", "data"), CASES)
def test_both_directions(properties: dict[str, str], data: bytes) -> None:
    assert encode_properties(properties) == data
    assert decode_properties(data) == properties


@pytest.mark.parametrize(("data", "properties"), SYNTAX)
def test_java_syntax(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data) == properties


@pytest.mark.parametrize("data", [b"a=\\u", b"a=\\u12", b"a=\\u12g4", b"\\uxxxx=b", b"a=\\u 123"])
def test_bad_escapes(data: bytes) -> None:
    with pytest.raises(Corrupt, match="hex digits"):
        decode_properties(data)


def test_order_and_unknown_keys_are_kept() -> None:
    properties = decode_properties(WRITTEN_BY_KAFKA + b"zebra=1\nape=2\n")
    assert list(properties) == ["cluster.id", "directory.id", "node.id", "version", "zebra", "ape"]
    assert decode_properties(encode_properties(properties)) == properties
    assert list(decode_properties(encode_properties(properties))) == list(properties)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=5))
def test_round_trip(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    assert data.isascii()
    assert decode_properties(data) == properties


def outcome(data: bytes) -> dict[str, str] | DataError:
    """Return the properties, or the DataError; any other error fails the test."""
    try:
        return decode_properties(data)
    except DataError as error:
        return error


@given(st.binary(max_size=60) | st.text("a\\u0=: \t\n\r#!", max_size=40).map(str.encode))
def test_any_bytes_decode_or_raise_in_the_tree(data: bytes) -> None:
    result = outcome(data)
    assert isinstance(result, dict) or result.facts()["kind"] == "meta.properties"


def test_what_kafka_wrote() -> None:
    assert parse_meta_properties(decode_properties(WRITTEN_BY_KAFKA)) == MetaProperties(
        version=1,
        cluster_id="FSKWEREpS6eN8Ud_GkZlFw",
        node_id=1,
        directory_id=DIRECTORY_ID,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            b"version=0\nbroker.id=7\ncluster.id=a b", (0, "a b", 7, None), id="version 0"
        ),
        pytest.param(b"version=1\nnode.id=0\ncluster.id=c", (1, "c", 0, None), id="no directory"),
        pytest.param(
            b"version=1\nnode.id=2147483647\ncluster.id=c", (1, "c", 2**31 - 1, None), id="largest"
        ),
    ],
)
def test_accepted(text: bytes, expected: tuple[int, str, int, str | None]) -> None:
    found = parse_meta_properties(decode_properties(text))
    assert (found.version, found.cluster_id, found.node_id, found.directory_id) == expected


@pytest.mark.parametrize(
    ("field", "text"),
    [
        pytest.param("version", b"", id="empty file"),
        pytest.param("version", b"node.id=1\ncluster.id=c", id="no version"),
        pytest.param("version", b"version=one\nnode.id=1\ncluster.id=c", id="version in words"),
        pytest.param("cluster.id", b"version=1\nnode.id=1", id="no cluster"),
        pytest.param("cluster.id", b"version=1\nnode.id=1\ncluster.id=", id="empty cluster"),
        pytest.param("node.id", b"version=1\ncluster.id=c", id="no node"),
        pytest.param("node.id", b"version=1\ncluster.id=c\nbroker.id=1", id="broker in 1"),
        pytest.param("broker.id", b"version=0\ncluster.id=c\nnode.id=1", id="node in 0"),
        pytest.param("node.id", b"version=1\ncluster.id=c\nnode.id=-1", id="negative"),
        pytest.param("node.id", b"version=1\ncluster.id=c\nnode.id=2147483648", id="too large"),
        pytest.param("node.id", b"version=1\ncluster.id=c\nnode.id=1_0", id="python's digits"),
        pytest.param(
            "directory.id", b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x", id="no uuid"
        ),
        pytest.param(
            "directory.id",
            b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA",
            id="reserved",
        ),
    ],
)
def test_refused(field: str, text: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_meta_properties(decode_properties(text))
    assert caught.value.facts()["field"] == field


def test_version_2_is_not_known() -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        parse_meta_properties({"version": "2", "cluster.id": "c", "node.id": "1"})
    assert caught.value.facts()["found"] == 2


def test_a_new_directory() -> None:
    properties = new_meta_properties(cluster_id="c", node_id=1, directory_id=DIRECTORY_ID)
    assert encode_properties(properties) == (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=2w0vQbUXTkWXPCWb7I2fpA\n"
    )


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "directory_id"),
    [("", 1, DIRECTORY_ID), ("c", -1, DIRECTORY_ID), ("c", 1, "A" * 22), ("c", 1, "")],
)
def test_new_directories_that_a_broker_would_refuse(
    cluster_id: str, node_id: int, directory_id: str
) -> None:
    with pytest.raises(InvalidArgument):
        new_meta_properties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)


@pytest.mark.parametrize(
    ("random16", "text"),
    [
        (bytes(16), "AAAAAAAAQACAAAAAAAAAAA"),
        (b"\xff" * 16, "________T_-__________w"),
        (b"\xfb" + bytes(15), "ewAAAAAAQACAAAAAAAAAAA"),  # would begin with '-'
    ],
)
def test_new_uuids(random16: bytes, text: str) -> None:
    made = new_uuid_text(random16)
    raw = parse_uuid_text(made, field="x")
    assert raw[6] >> 4 == 4
    assert raw[8] >> 6 == 2
    assert made == text


@given(st.binary(min_size=16, max_size=16))
def test_new_uuids_are_usable(random16: bytes) -> None:
    text = new_uuid_text(random16)
    assert len(text) == 22
    assert not text.startswith("-")
    raw = parse_uuid_text(text, field="x")
    kept = sum((a ^ b).bit_count() for a, b in zip(raw, random16, strict=True))
    assert kept <= 7


@pytest.mark.parametrize("length", [0, 15, 17])
def test_new_uuids_need_16_bytes(length: int) -> None:
    with pytest.raises(InvalidArgument):
        new_uuid_text(bytes(length))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        DIRECTORY_ID[:-1] + "B",  # bits after the 128
        DIRECTORY_ID.replace("v", "+"),
        DIRECTORY_ID[:-2] + "==",
        "AAAAAAAAAAAAAAAAAAAAYw",  # 99, the last reserved id
    ],
)
def test_uuid_texts_refused(text: str) -> None:
    with pytest.raises(Corrupt):
        parse_uuid_text(text, field="x")


def test_the_first_id_that_is_not_reserved() -> None:
    assert parse_uuid_text("AAAAAAAAAAAAAAAAAAAAZA", field="x") == bytes(15) + b"\x64"
