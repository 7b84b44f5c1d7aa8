"""An oracle for the pass over the log: each record decoded in full, and its entry and strings made one by one."""

from __future__ import annotations

from collections.abc import Sequence

from storage.rocketmq.format.index_file import key_hash
from storage.rocketmq.format.message import decode_message
from storage.rocketmq.format.queue_entry import UNIT, UNIT_SIZE
from storage.rocketmq.format.suspect_fields import is_folder_name
from storage.rocketmq.index import record_pass
from storage.rocketmq.index.dispatch_request import Dispatch, dispatch_of
from storage.rocketmq.index.record_pass import NO_STRING, STRING, RecordPass

Entries = dict[tuple[str, int], list[tuple[int, bytes]]]
"""By queue: (queue offset, entry) of each record."""


class Nothing:
    """Rules by which no record was deleted, except in a topic below an offset."""

    def __init__(self, topic: str = "", below: int = 0) -> None:
        self._topic = topic
        self._below = below

    def alive_from(self, topic: str, queue_id: int) -> int:
        return self._below if topic == self._topic else 0

    def is_over(self, dispatch: Dispatch) -> bool:
        return dispatch.topic == self._topic and dispatch.physical_offset < self._below

    def code_of(self, dispatch: Dispatch) -> int:
        return dispatch.tags_code


def flat(passed: record_pass.Passed) -> Entries:
    """Return the entries one by one, each with its queue offset."""
    return {
        (group.topic, group.queue_id): [
            (offset + at // UNIT_SIZE, units[at : at + UNIT_SIZE])
            for offset, units in group.runs
            for at in range(0, len(units), UNIT_SIZE)
        ]
        for group in passed.queues
    }


def expected(
    dispatches: Sequence[Dispatch], rules: Nothing
) -> tuple[Entries, bytes, Sequence[Dispatch]]:
    """Return entries, strings, and the records of topics that no folder can have."""
    entries: Entries = {}
    strings: list[bytes] = []
    refused: list[Dispatch] = []
    for one in dispatches:
        if rules.is_over(one):
            continue
        hashes = [key_hash(key) for key in one.keys] or [NO_STRING]
        strings += [STRING.pack(h, one.physical_offset, one.store_timestamp_ms) for h in hashes]
        if one.is_queued:
            unit = UNIT.pack(one.physical_offset, one.size, one.tags_code)
            entries.setdefault((one.topic, one.queue_id), []).append((one.queue_offset, unit))
        elif not is_folder_name(one.topic) and not one.sys_flag & 4:
            refused.append(one._replace(keys=()))
    return entries, b"".join(strings), refused


def check_pass(
    data: bytes, records: Sequence[tuple[int, int]], start: int, rules: Nothing | None = None
) -> None:
    """Check the pass over good records, and each half of it alone, against the oracle: as it runs here, and on the
    path of compiled code.
    """
    rules = rules or Nothing()
    stop = records[-1][0] + records[-1][1] - start if records else 0
    native = record_pass._NATIVE  # the loop for usual records works interpreted too
    for usual in (native, True):
        record_pass._NATIVE = usual  # type: ignore[misc]
        try:
            for with_tags in (True, False):
                _check(data, records, (start, stop), rules, with_tags=with_tags)
        finally:
            record_pass._NATIVE = native  # type: ignore[misc]


def _check(
    data: bytes,
    records: Sequence[tuple[int, int]],
    place: tuple[int, int],
    rules: Nothing,
    *,
    with_tags: bool,
) -> None:
    start, stop = place
    dispatches = [
        dispatch_of(decode_message(data, at - start, check_crc=False), at, with_tags=with_tags)
        for at, _ in records
    ]
    entries, strings, refused = expected(dispatches, rules)
    done = RecordPass(rules, with_tags=with_tags)
    done.take(data, 0, stop, start)
    assert done.records == len(records)
    assert sorted(done.next_offsets()) == sorted(_next_offsets(dispatches))
    if records:
        last = dispatches[-1]
        assert (done.last_offset, done.last_time_ms) == (
            last.physical_offset,
            last.store_timestamp_ms,
        )
        alive = [one for one in dispatches if not rules.is_over(one)]
        assert done.left_out == len(dispatches) - len(alive)
        if alive:
            assert done.last_alive_offset == alive[-1].physical_offset
            assert done.last_alive_time_ms == alive[-1].store_timestamp_ms
            assert done.last_alive_strings == len(alive[-1].keys)
    made = done.taken()
    assert (flat(made), made.strings, made.refused) == (entries, strings, refused)
    only = RecordPass(rules, with_tags=with_tags, strings_from=record_pass.NOTHING)
    only.take(data, 0, stop, start)
    assert (flat(made := only.taken()), made.strings) == (entries, b"")
    only = RecordPass(rules, with_tags=with_tags, queues_from=record_pass.NOTHING)
    only.take(data, 0, stop, start)
    assert (flat(made := only.taken()), made.strings) == ({}, strings)


def _next_offsets(dispatches: Sequence[Dispatch]) -> Sequence[tuple[str, int, int]]:
    """Return (topic, queue id, offset after the last record) of all queues that records name."""
    found = {(d.topic, d.queue_id): d.queue_offset + 1 for d in dispatches if not d.sys_flag & 4}
    return [(*key, following) for key, following in found.items()]
