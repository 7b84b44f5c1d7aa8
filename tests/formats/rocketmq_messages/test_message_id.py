"""Hosts and message ids: real values both ways, invalid values, and unique ids as the real client makes them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidArgument
from storage.rocketmq.format.message_id import (
    UniqueIds,
    decode_offset_id,
    encode_host,
    host_text,
    offset_id,
)

HOSTS = {
    ("10.1.2.7", 40002): ("0a01020700009c42", "10.1.2.7:40002"),
    ("0.0.0.0", 0): ("0000000000000000", "0.0.0.0:0"),
    ("fd00:4::1:ffff", 10911): (
        "fd00000400000000000000000001ffff00002a9f",
        "[fd00:4:0:0:0:0:1:ffff]:10911",
    ),
    ("2001:DB8:4::17", 65535): (
        "20010db80004000000000000000000170000ffff",
        "[2001:db8:4:0:0:0:0:17]:65535",
    ),
    ("::", 1): ("0000000000000000000000000000000000000001", "[0:0:0:0:0:0:0:0]:1"),
    ("::ffff:10.1.2.7", 1): ("00000000000000000000ffff0a01020700000001", "10.1.2.7:1"),
}

IDS = {
    "C0A804C800002A9F000000000003A3D3": ("c0a804c800002a9f", 238547),
    "7F00000100004B0A00000000000154D4": ("7f00000100004b0a", 87252),
    "FD00000400000000000000000001FFFF00002A9F0000000000039F2A": (
        "fd00000400000000000000000001ffff00002a9f",
        237354,
    ),
    "00000000000000007FFFFFFFFFFFFFFF": ("0000000000000000", (1 << 63) - 1),
}

NOVEMBER_MS = 1_793_491_200_000  # 2026-11-01 in UTC


@pytest.fixture
def utc() -> Iterator[None]:
    yield from local_time("UTC")


@pytest.fixture
def vienna() -> Iterator[None]:
    yield from local_time("CET-1CEST,M3.5.0,M10.5.0/3")


def local_time(zone: str) -> Iterator[None]:
    """Set the local time zone of this process, and restore it afterwards."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    yield
    del os.environ["TZ"]
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize("address", HOSTS, ids=str)
def test_hosts(address: tuple[str, int]) -> None:
    stored, text = HOSTS[address]
    assert encode_host(*address).hex() == stored
    assert host_text(bytes.fromhex(stored)) == text


@pytest.mark.parametrize("port", [-1, 65536, 1 << 40])
def test_ports_that_are_none(port: int) -> None:
    with pytest.raises(InvalidArgument, match=f"port {port}") as caught:
        encode_host("10.1.2.7", port)
    assert caught.value.facts() == {"field": "host"}


@pytest.mark.parametrize(
    "address", ["", "localhost", "10.1.2", "10.1.2.256", "1:2", "fe80::1%eth0", "10.1.2.7:1"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_host(address, 1)
    assert caught.value.facts() == {"field": "host"}


def test_a_stored_port_is_a_signed_number() -> None:
    assert host_text(bytes([1, 2, 3, 4]) + b"\xff" * 4) == "1.2.3.4:-1"


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 24])
def test_bytes_that_are_no_host(size: int) -> None:
    host = bytes(size)
    with pytest.raises(InvalidArgument, match=f"has {size} bytes"):
        host_text(host)
    with pytest.raises(InvalidArgument, match=f"has {size} bytes"):
        offset_id(host, 0)
    with pytest.raises(InvalidArgument, match=f"has {size} bytes"):
        UniqueIds(host, pid=1, loader_hash=1, clock=lambda: 0)


@pytest.mark.parametrize("text", IDS)
def test_offset_ids(text: str) -> None:
    host, physical_offset = IDS[text]
    assert offset_id(bytes.fromhex(host), physical_offset) == text
    assert decode_offset_id(text) == (bytes.fromhex(host), physical_offset)
    assert decode_offset_id(text.lower()) == (bytes.fromhex(host), physical_offset)


@given(st.sampled_from([8, 20]).flatmap(lambda n: st.binary(min_size=n, max_size=n)), st.data())
def test_any_offset_id_comes_back(host: bytes, data: st.DataObject) -> None:
    physical_offset = data.draw(st.integers(0, (1 << 63) - 1))
    assert decode_offset_id(offset_id(host, physical_offset)) == (host, physical_offset)


@pytest.mark.parametrize("physical_offset", [-1, 1 << 63])
def test_offsets_that_no_log_has(physical_offset: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        offset_id(bytes(8), physical_offset)
    assert caught.value.facts() == {"field": "id"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "0" * 31,
        "0" * 30,
        "0" * 33,
        "0" * 34,
        "0" * 54,
        "0" * 58,
        "G" + "0" * 31,
        "0" * 16 + "8" + "0" * 15,
        " " * 2 + "0" * 32,
        "00 " * 16,
        "0" * 31 + "\u0663",
        "orders-0-17",
        "0x" + "0" * 30,
        "é" * 32,
    ],
)
def test_texts_that_are_no_offset_id(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a message id") as caught:
        decode_offset_id(text)
    assert caught.value.facts() == {"field": "id"}


@pytest.mark.usefixtures("utc")
def test_unique_ids_are_the_real_client_s() -> None:
    """The twelfth id equals the id of a real client on a machine with an IPv6 address (golden store `broker`)."""
    now_ms = NOVEMBER_MS + 0x677A049A
    ids = UniqueIds(
        encode_host("fd00::2", 0), pid=0x53979, loader_hash=0x4E0E2F2A, clock=lambda: now_ms
    )
    made = ids.take(12)
    assert made[11] == "FD00000000000000000000000000000239794E0E2F2A677A049A000B"
    assert made[0][-4:] == "0000"
    assert len(set(made)) == 12


@pytest.mark.usefixtures("utc")
def test_the_month_turns() -> None:
    times = iter([NOVEMBER_MS - 1, NOVEMBER_MS - 1, NOVEMBER_MS, NOVEMBER_MS + 5, NOVEMBER_MS - 9])
    ids = UniqueIds(bytes(8), pid=1, loader_hash=-1, clock=lambda: next(times))
    october_ms = 31 * 86_400_000
    assert [ids.take(1)[0][20:28] for _ in range(4)] == [
        f"{october_ms - 1:08X}",
        "00000000",
        "00000005",
        "00000000",  # the clock was set back: the time is never below 0
    ]


@pytest.mark.usefixtures("utc")
def test_the_time_that_was_just_read_is_that_of_the_first_run() -> None:
    """Later runs of a large append read the clock: so many ids are unique in one millisecond only."""
    times = iter([NOVEMBER_MS, NOVEMBER_MS + 7])
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: next(times))
    runs = ids.runs(257, NOVEMBER_MS + 5)
    assert [(head[20:28], head[-2:], first, count) for head, first, count in runs] == [
        ("00000005", "00", 0, 256),
        ("00000007", "01", 0, 1),
    ]
    assert ids.runs(1, NOVEMBER_MS + 7)[0][0][20:] == "0000000701"


@pytest.mark.usefixtures("utc")
def test_a_clock_set_back_by_far_wraps_as_in_java() -> None:
    times = iter([NOVEMBER_MS, NOVEMBER_MS - 1_000_000])
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: next(times))
    assert ids.take(1)[0][20:28] == f"{(1 << 32) - 1_000_000:08X}"


@pytest.mark.usefixtures("utc")
def test_the_year_turns() -> None:
    new_year_ms = 1_798_761_600_000
    times = iter([new_year_ms - 1, new_year_ms - 1, new_year_ms])
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: next(times))
    assert [ids.take(1)[0][20:28] for _ in range(2)] == [f"{31 * 86_400_000 - 1:08X}", "00000000"]


@pytest.mark.usefixtures("vienna")
def test_the_month_is_that_of_local_time() -> None:
    """The month begins in local time.

    October 2026 began in summer time, 2 hours before UTC midnight; the clock is read after summer time ended.
    """
    october_ms = NOVEMBER_MS - 31 * 86_400_000 - 2 * 3_600_000
    asked_ms = NOVEMBER_MS - 3_600_000 - 1
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: asked_ms)
    assert ids.take(1)[0][20:28] == f"{asked_ms - october_ms:08X}"


def test_the_counter_wraps() -> None:
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: NOVEMBER_MS)
    made = [one[-4:] for one in ids.take((1 << 16) + 1)]
    assert (made[0], made[1], made[-2], made[-1]) == ("0000", "0001", "FFFF", "0000")


def test_threads_share_a_maker() -> None:
    ids = UniqueIds(bytes(8), pid=1, loader_hash=1, clock=lambda: NOVEMBER_MS)
    with ThreadPoolExecutor(4) as pool:
        made = [*pool.map(lambda _: ids.take(2000), range(8))]
    assert len({one for some in made for one in some}) == 16_000
