"""A record with a damaged queue id is the only record of a queue that was empty: it is not served without a finding."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

import storage.rocketmq.recovery.queue_proof as strayed_module
from storage.model import Finding, TopicPartition
from storage.rocketmq.format.message import Message as StoredMessage
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from tests.unit.rocketmq.recovery.foreign_log import Message, inspector, write_log
from tests.unit.rocketmq.test_dump_gaps import patch, places
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value, values

QUEUE_ID = 12


def fill(shop: Workshop, counts: Sequence[int]) -> None:
    with closing(shop.open_with_topic(partitions=len(counts))) as store:
        for number in range(max(counts)):
            for queue, count in enumerate(counts):
                if number < count:
                    put_value(store, b"q%d-%d" % (queue, number), TopicPartition("t", queue))


def stray(shop: Workshop, record: tuple[int, int], queue_id: int) -> int:
    """Write another queue id into a record; return its physical offset."""
    at, _ = places(shop)[record]
    patch(shop, at + QUEUE_ID, struct.pack(">i", queue_id))
    return at


def suspects(found: Sequence[Finding]) -> list[tuple[int | None, int | None, str | None]]:
    return [(f.partition, f.offset, f.expected) for f in found if f.code == "suspect-header"]


def told_at_start(shop: Workshop) -> list[tuple[int | None, int | None, str | None]]:
    with closing(shop.open(read_only=True)) as store:
        return suspects(store.recovery.findings)


CASES = [
    ((8, 6, 0), (0, 3), 2),
    ((8, 6, 0), (0, 1), 2),
    ((8, 6, 0), (0, 7), 2),
    ((8, 6, 0), (0, 0), 2),
    ((8, 6, 0), (1, 5), 2),
    ((8, 6, 0), (1, 4), 2),
    ((8, 6), (0, 4), 5),
    ((8,), (0, 4), 1 << 16),
]
every_case = pytest.mark.parametrize(("counts", "record", "queue_id"), CASES)


@every_case
@pytest.mark.parametrize("clean", [True, False])
def test_queues_that_are_built_from_the_log_do_not_hide_it(
    counts: Sequence[int], record: tuple[int, int], queue_id: int, clean: bool, shop: Workshop
) -> None:
    fill(shop, counts)
    stray(shop, record, queue_id)
    shop.fs.remove_tree(ROOT / "consumequeue")
    if not clean:
        put_file(shop.fs, ROOT / "abort", b"")
    wanted = [(queue_id, record[1], f"t-{record[0]}")]
    assert told_at_start(shop) == wanted
    for _ in range(2):  # at each start while the record exists
        with closing(shop.open()) as store:
            assert suspects(store.recovery.findings) == wanted
    with inspector(shop) as tools:
        assert wanted[0] in suspects(list(tools.verify()))
    with inspector(shop) as tools:
        for _ in tools.dump("records"):
            pass
        assert suspects(tools.findings()) == wanted


@every_case
def test_a_salvage_without_queues_names_it(
    counts: Sequence[int], record: tuple[int, int], queue_id: int, shop: Workshop
) -> None:
    fill(shop, counts)
    stray(shop, record, queue_id)
    shop.fs.remove_tree(ROOT / "consumequeue")
    with inspector(shop) as tools:
        report = tools.salvage(Path("/w/new"))
    assert (queue_id, record[1], f"t-{record[0]}") in suspects(report.findings)
    paths = [Path(f.path) for f in report.findings if f.code == "suspect-header"]
    assert all(shop.fs.exists(path) for path in paths)  # under the final name of the new store


@every_case
def test_entries_contradict_it(
    counts: Sequence[int], record: tuple[int, int], queue_id: int, shop: Workshop
) -> None:
    fill(shop, counts)
    stray(shop, record, queue_id)
    with inspector(shop) as tools:
        verified = [f for f in tools.verify() if f.code == "suspect-header"]
    assert [(f.partition, f.offset, f.found) for f in verified] == [(*record, f"t-{queue_id}")]
    with closing(shop.open()) as store:
        found = TopicPartition("t", queue_id)
        assert found.partition not in store.topics()["t"].partitions or values(store, found) == []


@pytest.mark.parametrize("counts", [(1, 6, 0), (6, 1, 0), (1, 1, 0)])
def test_the_only_record_of_a_queue(counts: Sequence[int], shop: Workshop) -> None:
    """Both queues keep the offset, and each start reports the record."""
    fill(shop, counts)
    queue = counts.index(1)
    stray(shop, (queue, 0), 2)
    for _ in range(3):
        with closing(shop.open()) as store:
            assert (2, 0, f"t-{queue}") in suspects(store.recovery.findings)


# ---- cases without a finding ----


@pytest.mark.parametrize("counts", [(5, 5, 5), (1, 1, 1), (1, 0, 8), (3, 1, 2), (2, 1)])
@pytest.mark.parametrize("with_queues", [True, False])
def test_whole_queues_are_none(counts: Sequence[int], with_queues: bool, shop: Workshop) -> None:
    fill(shop, counts)
    if not with_queues:
        shop.fs.remove_tree(ROOT / "consumequeue")
    assert told_at_start(shop) == []
    with inspector(shop) as tools:
        assert suspects(list(tools.verify())) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [([7], [3, 4, 5, 8, 9]), ([7, 8], [5, 6, 8]), ([7], range(7, 12)), ([40], range(7))],
)
def test_queues_that_begin_anywhere_are_none(
    one: Sequence[int], other: Sequence[int], shop: Workshop
) -> None:
    """A conversion leaves such queues: their offsets come from another store."""
    write_log(
        shop,
        [
            *(Message("t", n, b"a%d" % n) for n in other),
            *(Message("t", n, b"b%d" % n, queue_id=1) for n in one),
        ],
    )
    assert told_at_start(shop) == []


def test_one_record_that_retention_left_is_none(shop: Workshop) -> None:
    """The log has lost its head, so a queue that ends below the record's offset proves nothing."""
    fill(shop, (20, 12, 12))
    bases = shop.log_bases()
    for base in bases[:-1]:
        shop.fs.remove(shop.log_path(base))
    with closing(shop.open(accept_loss=True)) as store:
        assert suspects(store.recovery.findings) == []


@pytest.mark.parametrize("size_bytes", [0, 20, 99])
@pytest.mark.parametrize(("queue", "number"), [(0, 0), (0, 1), (2, 0), (1, 0)])
def test_a_short_file_of_a_queue_ends_no_command(
    queue: int, number: int, size_bytes: int, shop: Workshop
) -> None:
    fill(shop, (12, 1, 7))
    stray(shop, (0, 3), 5)
    folder = ROOT / "consumequeue" / "t" / str(queue)
    path = folder / shop.fs.list_dir(folder)[number]
    put_file(shop.fs, path, shop.fs.read_bytes(path)[:size_bytes])
    with inspector(shop) as tools:
        assert list(tools.verify())
    with inspector(shop) as tools:
        assert tools.salvage(Path("/w/new")).kept_records == 20
    shop.open(read_only=True).close()


# ---- topics of many queues ----


def shape(name: str, queues: int) -> list[Message]:
    """Return the records of a topic in which many queues have a single record."""
    if name == "one each":
        return [Message("t", 0, b"x", queue_id=q) for q in range(queues)]
    if name == "other offsets":  # as a conversion leaves them
        return [Message("t", q, b"x", queue_id=q) for q in range(queues)]
    if name == "strayed from the ends":
        return [
            *(Message("t", 0, b"x", queue_id=q) for q in range(0, queues, 2)),
            *(Message("t", 1, b"x", queue_id=q) for q in range(1, queues, 2)),
        ]
    longer = [Message("t", n, b"x", queue_id=q) for n in range(9) for q in range(0, queues, 2)]
    return longer + [Message("t", q % 7, b"x", queue_id=q) for q in range(1, queues, 2)]


@pytest.mark.parametrize("name", ["one each", "other offsets", "strayed from the ends", "half"])
@pytest.mark.parametrize("queues", [50, 200])
def test_a_start_and_a_verify_read_few_records_of_each_queue(
    name: str, queues: int, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(shop, shape(name, queues))
    shop.open().close()
    reads: list[int] = []

    def counted(run: FileSequence, physical_offset: int) -> StoredMessage | None:
        reads.append(physical_offset)
        return record_at(run, physical_offset)

    monkeypatch.setattr(strayed_module, "record_at", counted)
    shop.open().close()
    assert 0 < len(reads) <= 4 * queues
    reads.clear()
    with inspector(shop) as tools:
        list(tools.verify())
    assert 0 < len(reads) <= 4 * queues


def test_the_first_queue_that_lacks_the_offset_there_is_expected(shop: Workshop) -> None:
    """The offset may be missing after a queue's last or before its first record: the position in the log decides."""
    write_log(
        shop,
        [
            *(Message("t", 1, b"x", queue_id=q) for q in (4, 5)),
            *(Message("t", 0, b"x", queue_id=q) for q in (0, 1)),
            Message("t", 1, b"x", queue_id=2),
            Message("t", 0, b"x", queue_id=3),
        ],
    )
    assert told_at_start(shop) == [(0, 0, "t-2"), (1, 0, "t-2"), (2, 1, "t-0")]
