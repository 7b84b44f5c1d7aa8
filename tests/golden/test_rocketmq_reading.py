"""The library reads from a golden store what the real RocketMQ read: records, bounds, ids, times, keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage import LogStore, detect
from storage.errors import RecordNotFound
from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id


@pytest.fixture(params=stores.all_stores(), ids=by_id)
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    """Each store."""
    found: GoldenStore = request.param
    return found


@pytest.fixture
def store(golden: GoldenStore) -> Iterator[LogStore]:
    """The store, opened in place."""
    with stores.open_golden(golden, read_only=True) as opened:
        yield opened


def test_records_and_bounds(golden: GoldenStore, store: LogStore) -> None:
    checks.check_library(golden, store)


def test_every_record_has_its_id(golden: GoldenStore, store: LogStore) -> None:
    checks.check_ids(golden, store)


def test_an_id_of_another_host_is_not_found(golden: GoldenStore, store: LogStore) -> None:
    real = golden.expected()[0]["msgId"]
    another = ("00" if real[:2] != "00" else "01") + real[2:]
    with pytest.raises(RecordNotFound):
        store.find_by_id(another)


def test_every_lookup_by_time_has_the_real_answer(golden: GoldenStore, store: LogStore) -> None:
    checks.check_times(golden, store)


def test_records_are_found_by_key_unique_id_and_tag(golden: GoldenStore, store: LogStore) -> None:
    checks.check_found_by_the_library(golden, store)


def test_every_offset_can_be_read_by_itself(golden: GoldenStore, store: LogStore) -> None:
    for address, (start, end) in golden.queues.items():
        for offset in range(start, end, 1 + (end - start) // 10):
            page = store.read(address, offset, max_records=1)
            assert [record.offset for record in page.records] == [offset]
            assert page.next_offset == offset + 1


def test_the_backend_is_told(golden: GoldenStore) -> None:
    assert detect(golden.root) == ("rocketmq", False)


def test_topics_of_the_broker_are_there_without_records() -> None:
    golden = stores.golden("broker")
    with stores.open_golden(golden, read_only=True) as store:
        topics = store.topics()
        assert topics["SCHEDULE_TOPIC_XXXX"].internal
        assert list(topics["%RETRY%order-group"].partitions) == [0]
        assert "SELF_TEST_TOPIC" in topics
        assert len(topics["order-live"].partitions) == 3
