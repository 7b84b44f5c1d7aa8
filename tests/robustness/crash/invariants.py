"""The invariants of a store after any crash: one checker for the explorer, the state machine and process tests.

Owns what must hold of records and stores, by the numbers of the reliability page; must not make crashes. It reports a
violation as a `Broken` with that number. The functions on plain records also serve tests that see a store over HTTP.

    I1  an acknowledged record is at its offset      I8   a served record never vanishes
    I2  offsets are dense                            I9   no record with a bad CRC is served
    I3  only sent records, none of them twice        I10  a committed offset is not after the end
    I4  order kept, a batch stays together           I11  checkpoints claim no more than exists
    I5  next offset = end of the log                 I12  the store starts
    I6  recovering twice changes nothing             I13  a clean stop needs no scan
    I7  indexes equal a scan                         I14  the real servers read the same (tests/interop)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage import (
    AnyStoredGroup,
    LogStore,
    OffsetBounds,
    StoredGroup,
    StoredRecord,
    SupportsGroupMembers,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage.files import FileSystem
from storage.kafka.format.checkpoints import decode_offsets
from storage.rocketmq.format.checkpoint import decode_checkpoint
from tests.robustness.crash.history import History, modern_group, origin_of

NEVER_HALF = {
    "bad-root-file",
    "bad-topics-file",
    "bad-config-file",
}  # of files that are rewritten atomically: old or new at every moment
MISSING = object()


class Broken(AssertionError):
    """A violated invariant."""

    def __init__(self, invariant: str, problem: str) -> None:
        super().__init__(f"{invariant}: {problem}")
        self.invariant = invariant


def require(holds: bool, invariant: str, problem: str) -> None:
    """Raise `Broken` unless `holds`. Too slow for each record: `problem` is formatted either way."""
    if not holds:
        raise Broken(invariant, problem)


def check_records(
    history: History,
    partition: TopicPartition,
    records: Sequence[StoredRecord],
    bounds: OffsetBounds,
    *,
    killed: bool,
    whole_batches: bool,
) -> None:
    """Check I1-I5, I8 and I9 of one partition, read from its start to its end.

    `killed`: the process died, but the disk did not lose its power. `whole_batches`: of a request all records exist or
    none.
    """
    at = f"{partition} "
    offsets = [record.offset for record in records]
    require(
        offsets == list(range(bounds.start, bounds.start + len(offsets))), "I2", f"{at}{offsets}"
    )
    end = bounds.start + len(records)
    require(bounds.end == end, "I5", f"{at}ends at {bounds.end}, its records at {end}")
    values = {record.offset: record.value for record in records}
    for offset, value in history.promised(partition, killed=killed).items():
        if values.get(offset, MISSING) != value:
            number = "I1" if origin_of(value)[0] in history.acked else "I8"
            require(offset in values, number, f"{at}lacks {value!r} at {offset}, has {bounds}")
            raise Broken(number, f"{at}{offset}: {values[offset]!r}, not {value!r}")
    _check_origins(history, partition, records)
    _check_order(history, records, bounds.start, whole_batches=whole_batches)


def _check_origins(
    history: History, partition: TopicPartition, records: Sequence[StoredRecord]
) -> None:
    """Check I3 and I9: every record was sent to this partition, is unchanged and occurs once."""
    seen = set()
    for record in records:
        request, index = origin = origin_of(record.value)
        sent = history.sent.get(request)
        if sent is None or sent.partition != partition or index >= len(sent.records):
            raise Broken("I3", f"{partition} {record.offset}: {record.value!r} was not sent there")
        was = sent.records[index]
        if (was.key, was.value) != (record.key, record.value):
            raise Broken("I9", f"{partition} {record.offset}: {record}, sent was {was}")
        if origin in seen:
            raise Broken("I3", f"{partition} holds {record.value!r} twice")
        seen.add(origin)


def _check_order(
    history: History, records: Sequence[StoredRecord], start: int, *, whole_batches: bool
) -> None:
    """Check I4: each producer's requests are in order; each request is one run from its first record on."""
    newest: dict[int, int] = {}
    previous = (-1, -1)
    for record in records:
        request, index = origin_of(record.value)
        follows = (request, index - 1) == previous
        begins = index == 0 or (record.offset == start and start > 0)
        if not (follows or begins):
            raise Broken("I4", f"{record.offset}: {record.value!r} after {previous}")
        if previous[0] not in (-1, request) and whole_batches:
            _check_whole(history, previous)
        producer = history.sent[request].producer
        if producer is not None:
            before = newest.get(producer.producer_id, -1)
            if request < before:
                raise Broken("I4", f"{record.value!r} came before {before}")
            newest[producer.producer_id] = request
        previous = (request, index)
    if records and whole_batches:
        _check_whole(history, previous)


def _check_whole(history: History, last: tuple[int, int]) -> None:
    count = len(history.sent[last[0]].records)
    require(last[1] == count - 1, "I4", f"request {last[0]} ends with {last[1] + 1} of {count}")


def check_store(history: History, store: LogStore, *, killed: bool, whole_batches: bool) -> None:
    """Check topics, committed offsets, and I1-I5, I8, I9 of every partition of an open store that clients write to."""
    topics = store.topics()
    for name, count in history.topics.items():
        if name not in history.going:
            found = len(topics[name].partitions) if name in topics else 0
            there = count <= found <= history.growing[name]
            require(
                there, "I1", f"topic {name} with {count} partitions has {found}: {list(topics)}"
            )
    for name, info in topics.items():
        require(name not in history.gone, "I3", f"topic {name} was deleted and is there")
        for number in () if info.internal else info.partitions:
            partition = TopicPartition(name, number)
            start, head = store.bounds(partition).start, history.heads.get(partition, 0)
            require(
                start >= head, "I3", f"{partition}: {start} to {head} were deleted, and are back"
            )
            check_records(
                history,
                partition,
                list(store.scan(partition)),
                store.bounds(partition),
                killed=killed,
                whole_batches=whole_batches,
            )

    check_offsets(history, store, killed=killed)
    if isinstance(store, SupportsGroupMembers):
        check_members(history, store, killed=killed)


def check_offsets(history: History, store: LogStore, *, killed: bool) -> None:
    """Check committed offsets by these invariants.

    - I1 and I8: an answered commit exists and never goes back.
    - I3: no offset exists that no client committed.
    - I10: no offset is after the end of its log.
    """
    assert isinstance(store, SupportsGroupOffsets)
    found = {
        (group, partition): committed.offset
        for group in store.groups()
        for partition, committed in store.committed(group).items()
        if partition.topic not in history.going
    }
    allowed = history.offsets_allowed(killed=killed)
    for key in found.keys() | allowed.keys():
        offset = found.get(key)
        commits = [commit for commit in allowed.get(key, []) if commit.offset == offset]
        require(bool(commits), "I1", f"{key} is at {offset}, committed was {allowed.get(key)}")
        if offset is not None:
            end = store.bounds(key[1]).end
            require(offset <= end, "I10", f"{key} is at {offset}, the log ends at {end}")


def check_members(history: History, store: SupportsGroupMembers, *, killed: bool) -> None:
    """Check I1 and I3 of the members of groups: an answered write is there, and whole, or a later one is."""
    found = {group.name: group for group in store.stored_groups()}
    allowed = history.members_allowed(killed=killed)
    for name in found.keys() | allowed.keys():
        group = found.get(name)
        generation = None if group is None else _generation(group)
        generations = allowed.get(name, [None])
        require(generation in generations, "I1", f"{name} is at {generation}, not {generations}")
        if isinstance(group, StoredGroup):
            whole = all(row.assignment == b"%d" % group.generation for row in group.members)
            require(whole, "I3", f"the members of {name} are of several generations: {group}")
        elif group is not None:
            whole = group == modern_group(name, group.epoch)
            require(whole, "I3", f"the members of {name} are of several epochs: {group}")


def _generation(group: AnyStoredGroup) -> int:
    return group.generation if isinstance(group, StoredGroup) else group.epoch


def check_lookups(store: LogStore) -> None:
    """Check I7: lookups by time, by key and by id return the same records as a scan."""
    for name, info in store.topics().items():
        for number in info.partitions:
            partition = TopicPartition(name, number)
            _check_times(store, partition, list(store.scan(partition)))
        keys = {r.key for n in info.partitions for r in store.scan(TopicPartition(name, n))}
        for key in filter(None, keys):
            asked = store.find(name, key=key, limit=10_000).records
            scanned = store.find(name, key=key, limit=10_000, scan=True).records
            if asked != scanned:
                raise Broken("I7", f"{name} {key!r}: {asked} by index, {scanned} by scan")


def _check_times(
    store: LogStore, partition: TopicPartition, records: Sequence[StoredRecord]
) -> None:
    times = [_time_of(store, record) for record in records]
    for record, time_ms in zip(records, times, strict=True):
        found = store.offset_for_time(partition, time_ms)
        first = next(r.offset for r, t in zip(records, times, strict=True) if t >= time_ms)
        answer = None if found is None else found.offset
        require(answer == first, "I7", f"{partition} at {time_ms}: {answer}, by scan {first}")
        where, same = store.find_by_id(store.record_id(partition, record.locator))
        require((where, same.value) == (partition, record.value), "I7", f"id of {record.offset}")


def _time_of(store: LogStore, record: StoredRecord) -> int:
    on_append = store.capabilities.time_axis == "store_timestamp"
    time_ms = record.store_timestamp_ms if on_append else record.timestamp_ms
    assert time_ms is not None
    return time_ms


def check_recovery(store: LogStore) -> None:
    """Check I12: recovery reports no damage. At most an unfinished end was cut, and small files are whole."""
    findings = store.recovery.findings
    errors = [f for f in findings if f.severity == "error" or f.code in NEVER_HALF]
    require(not errors, "I12", f"found {errors}")


def positions(fs: FileSystem, path: Path, backend: str) -> dict[str, int]:
    """Return the log positions in a store's checkpoints before a start reads them; empty if the file is missing."""
    name = {"kafka": "recovery-point-offset-checkpoint", "rocketmq": "checkpoint"}[backend]
    if not fs.exists(path / name):
        return {}
    data = fs.read_bytes(path / name)
    if backend == "kafka":
        return {str(partition): offset for partition, offset in decode_offsets(data).items()}
    return {"log": decode_checkpoint(data).logics_physical_offset} if data else {}


def check_positions(reported: dict[str, int], store: LogStore) -> None:
    """Check I11: no checkpoint claimed more than the log held (see `positions`)."""
    ends = {"log": store.stats().details.get("max_physical_offset", 0)}
    for name, info in store.topics().items():
        for number in info.partitions:
            partition = TopicPartition(name, number)
            ends[str(partition)] = store.bounds(partition).end
    for name, position in reported.items():
        end = ends.get(name)
        if isinstance(end, int):
            require(
                position <= end,
                "I11",
                f"the checkpoint tells {position} of {name}, it ends at {end}",
            )
