"""Checksums and hashes that clients and brokers must agree on: published values, and other implementations."""

from __future__ import annotations

import sys

import aiokafka.partitioner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.checksum import crc32c
from storage.coding.hashes import java_hash, murmur2, partition_for_key
from storage.errors import InvalidArgument
from tests.formats.kafka_batches.oracles import kafka_python_murmur2

# From the tests of Kafka's clients (UtilsTest.testMurmur2).
MURMUR2 = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
# Results of the Java virtual machine.
JAVA_HASH = [
    ("", 0),
    ("a", 97),
    ("hello", 99162322),
    ("polygenelubricants", -(2**31)),
    ("é", 233),
    ("消息", 893927),
    ("🚀", 1773027),
    ("\ud83d", 55357),
]


def test_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogues
    assert crc32c(b"") == 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_crc32c_goes_on_from_an_earlier_part(data: bytes, cut: int) -> None:
    assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == crc32c(data)


@pytest.mark.parametrize(("data", "value"), MURMUR2)
def test_murmur2(data: bytes, value: int) -> None:
    assert murmur2(data) == value


@given(st.binary(max_size=70))
def test_murmur2_like_the_other_clients(data: bytes) -> None:
    unsigned = murmur2(data) % 2**32
    assert unsigned == aiokafka.partitioner.murmur2(data) % 2**32
    assert unsigned == kafka_python_murmur2(data) % 2**32


@given(st.binary(max_size=70), st.integers(1, 64))
def test_keys_go_where_the_other_clients_send_them(key: bytes, partitions: int) -> None:
    numbers = list(range(partitions))
    expected = aiokafka.partitioner.DefaultPartitioner()(key, numbers, numbers)
    assert partition_for_key(key, partitions) == expected


@pytest.mark.parametrize("partitions", [0, -1])
def test_no_partition_to_choose(partitions: int) -> None:
    with pytest.raises(InvalidArgument):
        partition_for_key(b"k", partitions)


@pytest.mark.parametrize(("text", "value"), JAVA_HASH)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text(), st.text())
def test_java_hash_of_two_parts(left: str, right: str) -> None:
    """The parts combine: hash(a + b) = hash(a) * 31^units(b) + hash(b), modulo 2^32."""
    units = len(right.encode("utf-16-be", "surrogatepass")) // 2
    joined = java_hash(left) * 31**units + java_hash(right)
    assert (java_hash(left + right) - joined) % 2**32 == 0


@given(st.text(st.characters(max_codepoint=0xFF), max_size=80))
@pytest.mark.parametrize("pad", [0, 600, 640, 5_000])
def test_java_hash_is_horner_s_rule(pad: int, text: str) -> None:
    """This holds also around the length from which the interpreter may refuse to read a number."""
    text = "\xff" * pad + text
    hashed = 0
    for character in text:
        hashed = (hashed * 31 + ord(character)) % 2**32
    assert java_hash(text) % 2**32 == hashed
    assert -(2**31) <= java_hash(text) < 2**31


def test_java_hash_where_the_interpreter_reads_short_numbers_only() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(sys.int_info.str_digits_check_threshold)
    try:
        found = [java_hash("a" * size) for size in (640, 641, 5_000)]
    finally:
        sys.set_int_max_str_digits(before)
    assert found == [java_hash("a" * size) for size in (640, 641, 5_000)]
