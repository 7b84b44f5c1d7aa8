"""Committed offsets as evidence of lost records: which count, and which a client may have chosen freely."""

from __future__ import annotations

import pytest

from storage import CommittedOffset, GroupCommit
from storage.errors import MissingPartitions
from storage.kafka.format import names
from storage.kafka.format.checkpoints import encode_clean_shutdown
from storage.kafka.store import KafkaStore
from storage.model import ProducerEpoch
from tests.unit.kafka.recovery.test_missing import SETTINGS, a_store, found_in, remove
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value

LOST = ("log-ends-below-named", "error", 0)
END = 6


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def commit(store: KafkaStore, offset: int, leader_epoch: int = -1) -> None:
    store.commit_offsets([GroupCommit("g", {T0: CommittedOffset(offset, leader_epoch)})])


def without_last_segment(shop: Workshop) -> Workshop:
    """Return the store after a kill, with its last segment and all other names of its end lost."""
    found = shop.after_kill()
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS):
        if found.fs.exists(ROOT / name):
            found.fs.remove(ROOT / name)
    last = found.bases()[-1]
    remove(found, T0, bases=lambda base: base >= last)
    return found


def left_by_broker(shop: Workshop) -> None:
    """Give the store the folder that a running broker keeps next to the partitions."""
    shop.fs.make_dir(ROOT / f"{names.CLUSTER_METADATA_TOPIC}-0")


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("beyond", [1, 1000])
def test_an_offset_beyond_the_end_proves_nothing(shop: Workshop, beyond: int, epoch: int) -> None:
    store = a_store(shop, partitions=1)
    commit(store, END + beyond, epoch)
    killed = shop.after_kill()
    assert LOST not in found_in(killed)
    with killed.open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == END
        assert again.committed("g")[T0].offset == END + beyond
    put_value(store, b"y")  # also if the log has grown since
    with shop.after_kill().open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == END + 1


@pytest.mark.parametrize("offset", [END - 1, END])
def test_an_offset_within_the_log_proves_its_records(shop: Workshop, offset: int) -> None:
    store = a_store(shop, partitions=1)
    commit(store, END + 1000)
    commit(store, offset)  # the newest record counts
    killed = without_last_segment(shop)
    last = killed.bases()[-1]
    is_lost = offset > last + 1
    assert (LOST in found_in(killed)) == is_lost
    if is_lost:
        with killed.open(SETTINGS) as again, pytest.raises(MissingPartitions):
            put_value(again, b"x")


def test_an_offset_of_a_transaction_beyond_the_end(shop: Workshop) -> None:
    store = a_store(shop, partitions=1)
    store.create_offsets_topic()
    transaction = ProducerEpoch(store.new_producer_id(), 0)
    store.commit_offsets([GroupCommit("g", {T0: CommittedOffset(END + 9)}, transaction)])
    assert not store.committed("g")
    killed = shop.after_kill()
    assert LOST not in found_in(killed)
    with killed.open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == END


@pytest.mark.parametrize("sign", ["metadata log", "marker", "adopted"])
def test_where_a_broker_has_run_only_the_epoch_of_a_read_record_proves(
    shop: Workshop, sign: str
) -> None:
    """A broker does not mark what was beyond the end: the same record, without the mark, stands for its record."""
    store = a_store(shop, partitions=1)
    commit(store, END)
    store.close()
    if sign == "metadata log":
        left_by_broker(shop)
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    elif sign == "marker":
        shop.put(ROOT / names.CLEAN_SHUTDOWN, encode_clean_shutdown(7))
    else:
        shop.fs.remove(ROOT / ".logserver.store.json")
    killed = without_last_segment(shop)
    assert LOST not in found_in(killed)
    with killed.open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset < END


def test_where_a_broker_has_run_a_read_record_proves(shop: Workshop) -> None:
    store = a_store(shop, partitions=1)
    commit(store, END, leader_epoch=0)
    left_by_broker(shop)
    killed = without_last_segment(shop)
    assert LOST in found_in(killed)
    with killed.open(SETTINGS) as again, pytest.raises(MissingPartitions):
        put_value(again, b"x")
