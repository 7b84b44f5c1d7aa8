"""The column of suspect parts equals the result of a queue's reader, whichever byte of the records is changed."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from storage import open_splitter
from storage.rocketmq.format.message import decode_message
from tests.unit.rocketmq.columns.split_yard import SMALL, made, open_small, split_rows, stored_rows


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x80, 0xFF])
def test_any_byte_of_header_and_properties(tmp_path: Path, mask: int) -> None:
    """Each of many records has one changed byte, in its header or in its properties."""
    made(tmp_path, (120, 60)).close()
    for path in sorted((tmp_path / "commitlog").iterdir()):
        path.write_bytes(hit(path.read_bytes(), mask))
    with open_small(tmp_path, read_only=True) as store:
        rows = stored_rows(store)
    with closing(open_splitter(tmp_path, SMALL)) as splitter:
        assert split_rows(splitter) == rows
    met = Counter(
        part for found in rows.values() for row in found for part in row["suspect"].split()
    )
    assert met[b"properties"] if mask > 2 else met


def hit(data: bytes, mask: int) -> bytes:
    """Return a log file with one byte changed in every whole record, in a header field or in the properties.

    Unchanged are size, magic, CRC, queue id, physical offset, sys flag, ports, lengths, body and topic.
    """
    changed, at, number = bytearray(data), 0, 0
    while at + 8 <= len(data) and data[at + 4 : at + 6] == b"\xda\xa3":
        message = decode_message(data, at)
        start = message.size - len(message.properties)
        places = [*range(16, 36), *range(40, 52), *range(56, 68), *range(72, 84)]
        places = [place for place in places if not 28 <= place < 36]
        places += range(start, message.size)
        changed[at + places[number * 7 % len(places)]] ^= mask
        at, number = at + message.size, number + 1
    return bytes(changed)
