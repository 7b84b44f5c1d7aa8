"""Hosts as a record stores them, and the two ids of a message: its position (offset id), and the sender's unique id.

Owns the bytes and the text of hosts and ids; must not look up a message. Sources: MessageDecoder.createMessageId and
MessageClientIDSetter of RocketMQ. A host is stored as

    position  bytes  field            note
    0         4, 16  address          IPv4 or IPv6
    4, 16     4      port

The offset id ("msgId") is the hex of these bytes, in upper case:

    position  bytes  field            note
    0         8, 20  store host       as above
    8, 20     8      physical offset

The unique id (property UNIQ_KEY, created by the client before it sends) is the hex of these bytes:

    position  bytes  field            note
    0         4, 16  address          of the client
    4, 16     2      process id       its low half
    6, 18     4      class loader     hash of the client's class loader: distinguishes two clients of a process
    10, 22    4      milliseconds     since the month began in local time
    14, 26    2      counter          wraps
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final

from storage.coding.varint import INT64_MAX
from storage.errors import InvalidArgument

PORT_SIZE: Final = 4
HOST_SIZES: Final = (8, 20)
MAX_PORT: Final = 65535
IPV4_SIZE: Final = 4
NTP_SLACK_MS: Final = 1_000_000
"""A clock set back by less than this counts as the month's first millisecond, as in the client."""

COUNTED: Final = 1 << 16
"""The counter of a unique id wraps here."""
RUN_IDS: Final = 256
"""The last two digits of a unique id count so many ids."""
_PAIRS: Final = [f"{number:02X}" for number in range(RUN_IDS)]

_PHYSICAL_OFFSET: Final = Struct(">q")
assert _PHYSICAL_OFFSET.size == 8


def encode_host(address: str, port: int) -> bytes:
    """Return the stored bytes of an IPv4 or IPv6 address and a port.

    Raises InvalidArgument for a host name, an address with a zone, or an invalid port.
    """
    try:
        packed = ip_address(address).packed
    except ValueError as cause:
        raise InvalidArgument(f"{address!r} is not an IP address", field="host") from cause
    if "%" in address or not 0 <= port <= MAX_PORT:
        raise InvalidArgument(
            f"host {address!r}, port {port}: need an address without a zone and a port up to {MAX_PORT}",
            field="host",
        )
    return packed + port.to_bytes(PORT_SIZE)


def host_text(host: bytes) -> str:
    """Return a host as text: `10.1.2.7:40002`, or IPv6 as Java writes it: `[fd00:4:0:0:0:0:1:ffff]:10911`, no zeros
    left out.

    Raises InvalidArgument for bytes of another length.
    """
    _check_host(host)
    packed = host[:-PORT_SIZE]
    port = int.from_bytes(host[-PORT_SIZE:], signed=True)
    if len(packed) == IPV4_SIZE:
        return f"{IPv4Address(packed)}:{port}"
    mapped = IPv6Address(packed).ipv4_mapped
    if mapped is not None:  # Java converts it to an IPv4 address
        return f"{mapped}:{port}"
    groups = ":".join(packed[at : at + 2].hex().lstrip("0") or "0" for at in range(0, 16, 2))
    return f"[{groups}]:{port}"


def _check_host(host: bytes) -> None:
    if len(host) not in HOST_SIZES:
        raise InvalidArgument(
            f"a host has {len(host)} bytes: need {HOST_SIZES[0]} or {HOST_SIZES[1]}", field="host"
        )


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id of the message at a physical offset of a host's log: 32 characters, with IPv6 56.

    Raises InvalidArgument for host bytes of another length or an offset outside [0, 2^63).
    """
    _check_host(store_host)
    if not 0 <= physical_offset <= INT64_MAX:
        raise InvalidArgument(
            f"physical offset {physical_offset}: need 0 to {INT64_MAX}", field="id"
        )
    return (store_host + _PHYSICAL_OFFSET.pack(physical_offset)).hex().upper()


def decode_offset_id(text: str) -> tuple[bytes, int]:
    """Return (store host, physical offset) of an offset id in either case. Raises InvalidArgument for other text."""
    try:
        decoded = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        decoded = b""
    host, at = decoded[: -_PHYSICAL_OFFSET.size], decoded[-_PHYSICAL_OFFSET.size :]
    if len(host) not in HOST_SIZES or at[0] >> 7:
        raise InvalidArgument(
            f"{text!r} is not a message id: need 32 or 56 hexadecimal digits", field="id"
        )
    return host, int.from_bytes(at)


class UniqueIds:
    """A generator of unique ids in the form of RocketMQ's clients; thread-safe.

    `host`: stored bytes, whose port is left out. `loader_hash`: any number that differs between generators of a
    process. `clock`: milliseconds since the epoch. Ids are unique if fewer than 65,536 are made in a millisecond.
    """

    def __init__(
        self, host: bytes, *, pid: int, loader_hash: int, clock: Callable[[], int]
    ) -> None:
        """Create a generator. Raises InvalidArgument for host bytes of another length."""
        _check_host(host)
        maker = (pid & 0xFFFF).to_bytes(2) + (loader_hash & 0xFFFFFFFF).to_bytes(4)
        self._prefix = (host[:-PORT_SIZE] + maker).hex().upper()
        self._clock = clock
        self._lock = threading.Lock()  # guards the counter
        self._counter = 0
        self._month = _month(clock())  # replaced as a whole by the first thread after its end
        # The last stem and its millisecond, likewise.
        self._made: tuple[int | None, str] = (None, "")

    def take(self, count: int) -> list[str]:
        """Return `count` new ids of 32 characters, with IPv6 56. The clock is read for each run of up to 256 ids."""
        return [
            head + pair
            for head, first, taken in self.runs(count)
            for pair in _PAIRS[first : first + taken]
        ]

    def runs(self, count: int, now_ms: int | None = None) -> list[tuple[str, int, int]]:
        """Return `count` new ids as runs of ids that differ only in the last two digits: (digits before those, number
        in the last two digits of the first id, ids in the run). The clock is read for each run, or for each but the
        first: `now_ms` is the time just read.
        """
        with self._lock:
            number = self._counter
            self._counter = (number + count) % COUNTED
        runs: list[tuple[str, int, int]] = []
        while count > 0:
            high, first = number // RUN_IDS, number % RUN_IDS
            taken = min(RUN_IDS - first, count)
            stem = self._stem(self._clock() if now_ms is None else now_ms)
            runs.append((stem + _PAIRS[high], first, taken))
            number, count, now_ms = (number + taken) % COUNTED, count - taken, None
        return runs

    def _stem(self, now_ms: int) -> str:
        """Return an id without the counter, for a millisecond."""
        made_ms, stem = self._made
        if made_ms != now_ms:
            stem = self._new_stem(now_ms)
            self._made = now_ms, stem
        return stem

    def _new_stem(self, now_ms: int) -> str:
        start_ms, end_ms = self._month
        if now_ms >= end_ms:
            start_ms, end_ms = self._month = _month(now_ms)
        elapsed_ms = now_ms - start_ms
        if -NTP_SLACK_MS < elapsed_ms < 0:
            elapsed_ms = 0
        return f"{self._prefix}{elapsed_ms & 0xFFFFFFFF:08X}"


def _month(now_ms: int) -> tuple[int, int]:
    """Return (start, end) of the local month that contains a time, in milliseconds."""
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone()
    start = datetime(now.year, now.month, 1)  # noqa: DTZ001  # the client counts in local time
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)  # noqa: DTZ001  # as above
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000
