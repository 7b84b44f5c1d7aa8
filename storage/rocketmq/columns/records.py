"""The fields of many records at once, whether the records are good, and their suspect parts.

Owns a fast copy of the checks of `format.message.decode_message`, done for all records of a piece of the log in a few
steps (a test compares the two), a quick check for suspect parts, and the columns of the fields up to the body; must not
read files, nor explain why a record is bad. `format.message` has the whole layout. These are the fields used
here, at their positions in every record (b and s: 12 where the born host or the store host is IPv6):

    position      bytes  field              note
    0             4      total size         must be the entry's
    4             4      magic              v1 or v2
    8             4      body CRC
    12            4      queue id           must be the queue's
    16            4      flag
    36            4      sys flag
    40            8      born timestamp
    48            8, 20  born host
    56 + b        8      store timestamp
    64 + b        8, 20  store host
    72 + b + s    4      reconsume times
    84 + b + s    4      body length
    88 + b + s    n      body
    .             1, 2   topic length       must be the queue's topic's
    .             n      topic
    .             2      properties length  the record ends after them
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from storage.columns import Slices
from storage.model import TopicPartition
from storage.rocketmq.columns.properties import Properties
from storage.rocketmq.columns.slices import LogSlice, by_size, bytes_at, cut
from storage.rocketmq.format.message import (
    BODY_POSITION,
    BORN_HOST_V6,
    COMPRESSED,
    CRC_MASK,
    HOST_SIZE_V4,
    HOST_SIZE_V6,
    MAGIC_V1,
    MAGIC_V2,
    MAX_SIGNED_SHORT,
    MAX_TOPIC_V1,
    STORE_HOST_V6,
    SYS_FLAG_POSITION,
    TRANSACTION_MASK,
    V6_EXTRA_BYTES,
    decode_message,
)
from storage.rocketmq.format.message_id import host_text
from storage.rocketmq.format.suspect_fields import (
    END_OF_TIME_MS,
    KNOWN_FLAGS,
    MAX_PORT,
    MAX_TIMES,
    suspect_parts,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from storage.columns import Numbers

    Flags: TypeAlias = NDArray[np.bool_]

MAGIC: Final = 4
BODY_CRC: Final = 8
QUEUE_ID: Final = 12
FLAG: Final = 16
BORN_TIMESTAMP: Final = 40
BORN_HOST: Final = 48
STORE_TIMESTAMP: Final = 56
STORE_HOST: Final = 64
RECONSUME_TIMES: Final = 72
PREPARED_OFFSET: Final = 76
PORT_BYTES: Final = 4
BODY_LENGTH: Final = 84
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), "<u2")


class Addresses:
    """The queues of a split as records name them."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        topics = [partition.topic.encode() for partition in partitions]
        self.queue_ids = np.array([partition.partition for partition in partitions], np.int64)
        self.topics = np.array(topics)
        self.topic_bytes = np.array([len(topic) for topic in topics], np.int64)


class Records:
    """The records of a piece of the log, as arrays with an item for each record.

    The items of a record that is not `good` mean nothing.
    """

    def __init__(self, piece: LogSlice, addresses: Addresses, *, check_crcs: bool) -> None:
        self.units = piece.units
        self.data = piece.data
        self.starts = piece.starts
        self.sys_flags = self.number(SYS_FLAG_POSITION)
        self._born_extra = np.where(self.sys_flags & BORN_HOST_V6, V6_EXTRA_BYTES, 0)
        self._store_extra = np.where(self.sys_flags & STORE_HOST_V6, V6_EXTRA_BYTES, 0)
        self.good = self._measure()
        self.good &= self.number(QUEUE_ID) == addresses.queue_ids[self.units.codes]
        self.good &= self._of_topics(addresses)
        if check_crcs:
            self.good &= self._right_crcs()

    def part(self, rows: NDArray[np.intp]) -> Records:
        """Return some of the records."""
        part = copy(self)
        part.units = self.units.where(rows)
        for name in (
            *("starts", "sys_flags", "good", "bodies", "body_ends"),
            *("_born_extra", "_store_extra", "_topics", "_topic_bytes", "_properties"),
        ):
            setattr(part, name, getattr(self, name)[rows])
        return part

    # ---- finding the parts ----

    def _at(self, places: Numbers, dtype: str) -> Numbers:
        """Return the numbers at these places; any number for a place after the end of the data."""
        last = len(self.data) - np.dtype(dtype).itemsize
        every: NDArray[np.int64] = np.ndarray((last + 1,), dtype, self.data, strides=(1,))
        return every[np.minimum(places, last)].astype(np.int64)

    def number(self, position: int, dtype: str = ">i4") -> Numbers:
        """Return the numbers at a position before the hosts."""
        return self._at(self.starts + position, dtype)

    def _measure(self) -> Flags:
        """Find body, topic and properties. Return whether their lengths add up to the size in the entry."""
        ends = self.starts + self.units.sizes
        magics = self.number(MAGIC)
        is_v2 = magics == MAGIC_V2
        extra = self._born_extra + self._store_extra
        body_bytes = self._at(self.starts + extra + BODY_LENGTH, ">i4")
        self.bodies = self.starts + extra + BODY_POSITION
        good: Flags = (self.number(0) == self.units.sizes) & (is_v2 | (magics == MAGIC_V1))
        good &= (body_bytes >= 0) & (self.bodies + body_bytes < ends - 2)
        self.body_ends = np.where(good, self.bodies + body_bytes, self.bodies)
        long, short = self._at(self.body_ends, ">u2"), self._at(self.body_ends, "u1")
        self._topic_bytes = np.where(is_v2, long, short)
        self._topics = self.body_ends + 1 + is_v2
        good &= self._topics + self._topic_bytes + 2 <= ends
        good &= is_v2 | (self._topic_bytes <= MAX_TOPIC_V1)
        sizes = self._at(np.where(good, self._topics + self._topic_bytes, 0), ">u2")
        self._properties = self._topics + self._topic_bytes + 2
        good &= (self._properties + sizes == ends) & (sizes <= MAX_SIGNED_SHORT)
        return good

    def _of_topics(self, addresses: Addresses) -> Flags:
        """Return whether the topics of records and queues agree."""
        wanted = addresses.topic_bytes[self.units.codes]
        right: Flags = self.good & (wanted == self._topic_bytes)
        for size in np.unique(wanted[right]).tolist():
            rows = np.flatnonzero(right & (wanted == size))
            found = bytes_at(self.data, self._topics[rows], size)
            right[rows] = found == addresses.topics[self.units.codes[rows]]
        return right

    def _right_crcs(self) -> Flags:
        """Return whether the bodies match their CRCs. The CRC of an empty body is not checked."""
        ends = np.where(self.good, self.body_ends, self.bodies)
        found = _crcs(self.data, self.bodies, ends)
        right: Flags = (found & CRC_MASK == self.number(BODY_CRC)) | (self.bodies == ends)
        return right

    # ---- columns ----

    def stored_bodies(self) -> list[bytes]:
        """Return the bodies as they are stored."""
        return cut(self.data, self.bodies, self.body_ends)

    @property
    def are_compressed(self) -> Flags:
        """A flag for each record: its body is stored compressed."""
        compressed: Flags = (self.sys_flags & COMPRESSED) != 0
        return compressed

    def body_slices(self) -> Slices:
        """Return the stored bodies as slices of the piece."""
        return Slices(self.data, self.bodies, self.body_ends - self.bodies)

    def property_bounds(self) -> tuple[Numbers, Numbers]:
        """Return where the properties begin and end in the piece."""
        return self._properties, self.starts + self.units.sizes

    def properties(self) -> Properties:
        """Return the properties."""
        return Properties(self.data, self._properties, self.starts + self.units.sizes)

    def store_timestamps(self) -> Numbers:
        """Return the store times."""
        return self._at(self.starts + self._born_extra + STORE_TIMESTAMP, ">i8")

    def prepared_offsets(self) -> Numbers:
        """Return the physical offsets of the first halves of transactions; 0 for none."""
        places = self.starts + self._born_extra + self._store_extra + PREPARED_OFFSET
        return self._at(places, ">i8")

    def ports(self) -> tuple[Numbers, Numbers]:
        """Return the ports of the born host and the store host, as they are stored."""
        born = self.starts + BORN_HOST + HOST_SIZE_V4 - PORT_BYTES + self._born_extra
        extra = self._born_extra + self._store_extra
        stored = self.starts + STORE_HOST + HOST_SIZE_V4 - PORT_BYTES + extra
        return self._at(born, ">u4"), self._at(stored, ">u4")

    def reconsume_times(self) -> Numbers:
        """Return how often the records were delivered again."""
        places = self.starts + self._born_extra + self._store_extra + RECONSUME_TIMES
        return self._at(places, ">i4")

    def born_hosts(self) -> Slices:
        """Return the hosts of the clients as text."""
        return self._host_texts(self.starts + BORN_HOST, self._born_extra)

    def store_hosts(self) -> Slices:
        """Return the hosts of the brokers as text."""
        return self._host_texts(self.starts + self._born_extra + STORE_HOST, self._store_extra)

    def _host_texts(self, places: Numbers, extra: Numbers) -> Slices:
        """Return hosts as text. Each different host is written once, and the rows share it."""
        texts: list[bytes] = []
        numbers = np.zeros(len(places), np.int64)
        for extra_bytes, size in ((0, HOST_SIZE_V4), (V6_EXTRA_BYTES, HOST_SIZE_V6)):
            rows = np.flatnonzero(extra == extra_bytes)
            found, which = np.unique(bytes_at(self.data, places[rows], size), return_inverse=True)
            numbers[rows] = which + len(texts)
            raw = found.tobytes()
            hosts = (raw[at : at + size] for at in range(0, len(raw), size))
            texts += [host_text(host).encode() for host in hosts]
        lengths = np.array([len(text) for text in texts], np.int64)
        begins = lengths.cumsum() - lengths
        return Slices(b"".join(texts), begins[numbers], lengths[numbers])

    def message_ids(self) -> Slices:
        """Return the offset ids: store host and physical offset as hexadecimal digits."""
        places = self.starts + self._born_extra + STORE_HOST
        starts, lengths = np.zeros_like(places), np.zeros_like(places)
        texts: list[bytes] = []
        begin = 0
        for extra, host_bytes in ((0, HOST_SIZE_V4), (V6_EXTRA_BYTES, HOST_SIZE_V6)):
            rows = np.flatnonzero(self._store_extra == extra)
            raw = np.empty((len(rows), host_bytes + 8), np.uint8)
            hosts = bytes_at(self.data, places[rows], host_bytes)
            raw[:, :host_bytes] = hosts.view(np.uint8).reshape(len(rows), host_bytes)
            offsets = self.units.positions[rows].astype(">i8")
            raw[:, host_bytes:] = offsets.view(np.uint8).reshape(len(rows), 8)
            digits = 2 * raw.shape[1]
            starts[rows] = begin + np.arange(len(rows)) * digits
            lengths[rows] = digits
            texts.append(_HEX[raw].tobytes())
            begin += len(texts[-1])
        return Slices(b"".join(texts), starts, lengths)


def _crcs(data: bytes, starts: Numbers, ends: Numbers) -> Numbers:
    """Return the CRC-32 of each data[starts[i] : ends[i]]."""
    groups = by_size(ends - starts)
    if groups is None:
        return np.fromiter(map(crc32, cut(data, starts, ends)), np.int64, len(starts))
    found = np.zeros(len(starts), np.int64)
    for size, rows in groups:
        if size:
            pieces = bytes_at(data, starts[rows], size).view(f"V{size}").tolist()
            found[rows] = np.fromiter(map(crc32, pieces), np.int64, len(rows))
    return found


# ---- suspect parts: format.suspect decides about the records that this quick check stops at ----


PHYSICAL_OFFSET: Final = 28
QUEUE_OFFSET: Final = 20


def suspects(records: Records) -> Slices:
    """Return the suspect parts of each record, with spaces between them; empty for nearly all records."""
    starts = np.zeros(len(records.starts), np.int64)
    lengths = np.zeros_like(starts)
    text = b""
    for row in np.flatnonzero(_doubtful_headers(records) | _doubtful_properties(records)).tolist():
        message = decode_message(records.data, int(records.starts[row]), check_crc=False)
        parts = " ".join(suspect_parts(message, int(records.units.positions[row]))).encode()
        starts[row], lengths[row] = len(text), len(parts)
        text += parts
    return Slices(text, starts, lengths)


def _doubtful_headers(records: Records) -> Flags:
    """Return which records have a number that needs a closer check. Their topics and queue ids match their queues."""
    flags, positions = records.sys_flags, records.units.positions
    doubtful: Flags = records.number(PHYSICAL_OFFSET, ">i8") != positions
    doubtful |= records.number(QUEUE_OFFSET, ">i8") < 0
    doubtful |= (flags < 0) | (flags > KNOWN_FLAGS)
    doubtful |= (flags & ~TRANSACTION_MASK) > 0xFF  # a compression type
    born, stored = records.number(BORN_TIMESTAMP, ">i8"), records.store_timestamps()
    doubtful |= (born < -1) | (born >= END_OF_TIME_MS) | (stored < 0) | (stored >= END_OF_TIME_MS)
    for ports in records.ports():
        doubtful |= ports > MAX_PORT
    times = records.reconsume_times()
    doubtful |= (times < 0) | (times > MAX_TIMES) | (records.prepared_offsets() != 0)
    return doubtful


def _doubtful_properties(records: Records) -> Flags:
    """Return which records have properties that need a closer check.

    In good properties 01 and 02 alternate, with a name before each 01.
    """
    starts, ends = records.property_bounds()
    raw = np.frombuffer(b"".join(cut(records.data, starts, ends)), np.uint8)
    edges = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=edges[1:])

    def row_of(places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the records that these bytes belong to."""
        return np.searchsorted(edges, places, side="right") - 1

    doubtful = np.zeros(len(starts), np.bool_)
    doubtful[row_of(np.flatnonzero((raw == 0) | (raw > 0x7F)))] = True
    marks = np.flatnonzero((raw == 1) | (raw == 2))
    rows, kinds = row_of(marks), raw[marks]
    before = np.append(np.uint8(2), kinds[:-1])  # a record begins as after an 02
    is_first = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
    before = np.where(is_first, 2, before[: len(rows)])
    is_nameless = (kinds == 1) & ((marks == edges[rows]) | (raw[marks - 1] == 2))
    doubtful[rows[(kinds == before) | is_nameless]] = True
    last_kinds = np.full(len(starts), 2)
    last_kinds[rows] = kinds  # of several marks the last one stays
    is_open = (ends > starts) & (np.append(raw, np.uint8(2))[edges[1:] - 1] != 2)
    doubtful |= is_open & (last_kinds == 2)
    return doubtful
