"""Whole records with a correct CRC that this program cannot decode are no torn tail.

A start after a crash keeps them, and all later records, as the real store does: CommitLog.checkMessageAndReturnSize
does not check the content of body and properties.
"""

from __future__ import annotations

from typing import Any

import pytest

from storage import RawMessage
from storage.rocketmq.format.message import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_file, put_value

PLAIN = RawMessage(
    body=b"body",
    properties=b"",
    flag=0,
    sys_flag=0,
    born_timestamp_ms=1,
    born_host=bytes(8),
    reconsume_times=0,
    prepared_transaction_offset=0,
)
ODD: dict[str, dict[str, Any]] = {
    "an unknown codec": {"sys_flag": COMPRESSED | 0x700},
    "a body that is not compressed as it says": {"sys_flag": COMPRESSED | 0x300},
    "flags of later versions": {"sys_flag": 0x7FFF0000},
    "a batch in the log": {"sys_flag": INNER_BATCH | NEED_UNWRAP},
    "properties without separators": {"properties": b"no separator at all"},
    "properties that end early": {"properties": b"A\x01b\x02CUT"},
    "properties that are no text": {"properties": b"\xff\xfe\x01\xff\x02"},
    "an empty body, whose CRC is 0": {"body": b""},
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("ours", [False, True])
def test_an_odd_record_is_kept(what: str, followed: bool, ours: bool) -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.append_messages(T0, [PLAIN._replace(**ODD[what])])
    count = 2
    if followed:
        put_value(store, b"after")
        count = 3
    store.flush()
    end = store.log.end
    after = shop.after_kill()
    if not ours:
        put_file(after.fs, ROOT / "abort", b"7")
    again = after.open()
    assert again.log.end == end
    assert (again.recovery.losses, again.bounds(T0).end) == ([], count)
    assert after.cut_dirs() == []
    assert put_value(again, b"new").base_offset == count
