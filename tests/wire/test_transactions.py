"""Transactions over the wire protocol: every version of each request, and what clients and readers see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.errors import ErrorCode as E
from api.kafka.protocol.messages import APIS
from api.kafka.protocol.messages.cluster import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.topics import DeleteTopicsRequest
from api.kafka.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from storage import (
    ProducerSequence,
    Record,
    SupportsTransactions,
    TopicPartition,
    TransactionStatus,
    open_store,
)
from tests.http.harness import opener, serving, settings
from tests.wire import group_requests as groups
from tests.wire.group_requests import alone, fetched
from tests.wire.harness import FREE, Broker, Connection, fetch, frame, values
from tests.wire.harness import broker as running_broker
from tests.wire.harness import produce as plain_produce
from tests.wire.transaction_requests import (
    ID,
    Owner,
    add,
    add_offsets,
    batch,
    begun,
    commit_offsets,
    end,
    init,
    marker,
    markers,
    producers,
    send,
)

NEWEST_PRODUCE = 12  # of those that name topics
LAST = {22: 5, 24: 3, 25: 4, 26: 5, 27: 2, 28: 5}


@pytest.fixture
async def topic(kafka: Broker) -> str:
    """The topic t with two partitions."""
    await kafka.service.topics.create("t", 2, None)
    return "t"


def produced(answer: Any) -> list[int]:
    """Return the error numbers of a produce response, by partition."""
    return [row.error_code for one in answer.responses for row in one.partition_responses]


def added(answer: Any) -> list[int]:
    """Return the error numbers of an AddPartitionsToTxn response."""
    return [
        row.partition_error_code
        for one in answer.results_by_topic_v3_and_below
        for row in one.results_by_partition
    ]


def committed(answer: Any) -> list[int]:
    """Return the error numbers of a TxnOffsetCommit response."""
    return [row.error_code for one in answer.topics for row in one.partitions]


async def seen(
    connection: Connection, number: int = 0, *, all_records: bool = False
) -> list[bytes]:
    """Return the records of a partition that a reader of committed records sees."""
    isolation = 0 if all_records else 1
    answer = await connection.call(fetch("t", (number, 0), isolation_level=isolation), 12)
    (row,) = answer.responses[0].partitions
    assert row.error_code == 0
    aborted = {one.producer_id: one.first_offset for one in row.aborted_transactions or ()}
    assert all_records or not aborted, "the test looks at transactions that are committed only"
    return [value for value in values(row.records) if value is not None]


def test_versions_of_the_table() -> None:
    assert {key: APIS[key].last for key in (25, 26, 65, 66, 61)} == {
        25: 4,
        26: 5,
        65: 0,
        66: 2,
        61: 0,
    }


@pytest.mark.parametrize("version", [3, 4])
async def test_feature_is_finalised(connection: Connection, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await connection.call(request, version)
    supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    assert supported == ([("transaction.version", 0, 2)] if version == 4 else [])
    (finalised,) = answer.finalized_features
    assert (finalised.name, finalised.max_version_level) == ("transaction.version", 2)
    assert answer.finalized_features_epoch == 0
    offered = {row.api_key: row.max_version for row in answer.api_keys}
    assert {key: offered[key] for key in LAST} == LAST
    assert offered[0] == 13


@pytest.mark.parametrize("version", range(1, 7))
async def test_coordinator_of_a_transactional_id(
    kafka: Broker, connection: Connection, version: int
) -> None:
    request = FindCoordinatorRequest(key=ID, key_type=1, coordinator_keys=[ID, "other"])
    answer = await connection.call(request, version)
    found = [answer] if version < 4 else answer.coordinators
    port = int(kafka.address.rsplit(":", 1)[1])
    assert {(one.error_code, one.node_id, one.port) for one in found} == {(0, 1, port)}
    if version >= 4:
        assert [one.key for one in found] == [ID, "other"]


@pytest.mark.parametrize("version", range(6))
async def test_init_in_every_version(connection: Connection, version: int) -> None:
    first = await connection.call(init(), version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    second = await connection.call(init(), version)
    assert second.error_code == 0
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    plain = await connection.call(init(None), version)
    assert (plain.error_code, plain.producer_epoch) == (0, 0)
    assert plain.producer_id != first.producer_id


@pytest.mark.parametrize("version", range(3, 6))
async def test_init_of_a_known_producer(connection: Connection, version: int) -> None:
    owner = await begun(connection)
    second = await connection.call(init(known=owner), version)
    assert (second.error_code, second.producer_epoch) == (0, 1)
    again = await connection.call(init(known=owner), version)  # the answer was lost
    assert (again.error_code, again.producer_epoch) == (0, 1)
    assert (await begun(connection)).epoch == 2
    fenced = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
    for older in (owner, Owner(owner.producer_id, 1), Owner(owner.producer_id + 9, 2)):
        refused = await connection.call(init(known=older), version)
        assert (refused.error_code, refused.producer_id) == (fenced, -1)
    half = await connection.call(init(known=Owner(owner.producer_id, -1)), version)
    assert half.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transactional_id": "logserver.unnamed.1"}, E.INVALID_REQUEST),
        ({"transactional_id": "x" * 256}, E.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_init_is_refused(connection: Connection, changed: Any, code: E) -> None:
    answer = await connection.call(init(**changed), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_transaction_in_every_version(
    connection: Connection, topic: str, version: int, commit: bool
) -> None:
    """A whole transaction with records and offsets, with the requests of each generation of clients."""
    owner = await begun(connection, version=min(version, 4))
    older = min(version, 3)
    assert added(await connection.call(add(owner, {topic: [0, 1]}), older)) == [0, 0]
    sent = send((0, batch(owner, 0, b"a", b"b")), (1, batch(owner, 0, b"c")))
    assert produced(await connection.call(sent, 3 + version)) == [0, 0]
    assert (await connection.call(add_offsets(owner), min(version, 4))).error_code == 0
    assert committed(await connection.call(commit_offsets(owner, 7), version)) == [0]
    assert await seen(connection) == []
    assert await seen(connection, all_records=True) == [b"a", b"b"]
    ended = await connection.call(end(owner, commit=commit), version)
    assert ended.error_code == 0
    if version >= 5:
        assert (ended.producer_id, ended.producer_epoch) == (owner.producer_id, 1)
    if commit:
        assert await seen(connection) == [b"a", b"b"]
        assert await seen(connection, 1) == [b"c"]
    assert await offset(connection) == (7 if commit else -1)


async def offset(connection: Connection, group: str = "g") -> int:
    """Return the committed offset of t-0."""
    return (await fetched(connection, 8, {"t": [0]}, group=group))["t", 0][0]


async def test_version_2_adds_by_itself(kafka: Broker, connection: Connection, topic: str) -> None:
    """Produce 12 and TxnOffsetCommit 5 add partitions and offsets; each end returns the next epoch."""
    owner = await begun(connection)
    for turn, commit in enumerate((True, False, True)):
        data = batch(owner, 0, b"%d" % turn)
        assert produced(await connection.call(send((0, data)), NEWEST_PRODUCE)) == [0]
        assert committed(await connection.call(commit_offsets(owner, turn), 5)) == [0]
        state = await kafka.service.transactions.state(ID)
        assert state is not None
        assert {at.topic for at in state.partitions} == {"t", "__consumer_offsets"}
        ended = await connection.call(end(owner, commit=commit), 5)
        assert (ended.error_code, ended.producer_epoch) == (0, owner.epoch + 1)
        again = await connection.call(end(owner, commit=commit), 5)
        assert (again.error_code, again.producer_epoch) == (0, owner.epoch + 1)
        other = await connection.call(end(owner, commit=not commit), 5)
        assert (other.error_code, other.producer_id) == (E.INVALID_TXN_STATE, -1)
        owner = Owner(ended.producer_id, ended.producer_epoch)
    assert await offset(connection) == 2
    row = (
        (await connection.call(fetch("t", (0, 0), isolation_level=1), 12))
        .responses[0]
        .partitions[0]
    )
    assert [(one.producer_id, one.first_offset) for one in row.aborted_transactions] == [
        (owner.producer_id, 2)
    ]


@pytest.mark.parametrize("version", range(3, 12))
async def test_records_outside_of_a_transaction(
    connection: Connection, topic: str, version: int
) -> None:
    """A partition that was not added, in the versions whose clients add by a request."""
    owner = await begun(connection)
    request = send((0, batch(owner, 0, b"a")))
    code = E.TRANSACTION_ABORTABLE if version >= 11 else E.INVALID_TXN_STATE
    assert produced(await connection.call(request, version)) == [code]
    assert added(await connection.call(add(owner, {"t": [1]}), 3)) == [0]
    assert produced(await connection.call(request, version)) == [code]
    assert (await connection.call(end(owner, commit=True), 4)).error_code == 0
    assert produced(await connection.call(send((1, batch(owner, 0, b"a"))), version)) == [code]
    assert await seen(connection, all_records=True) == []


@pytest.mark.parametrize("version", range(6))
async def test_offsets_outside_of_a_transaction(
    connection: Connection, topic: str, version: int
) -> None:
    owner = await begun(connection)
    code = {4: E.TRANSACTION_ABORTABLE, 5: E.NONE}.get(version, E.INVALID_TXN_STATE)
    assert committed(await connection.call(commit_offsets(owner), version)) == [code]


async def test_fenced_producer(connection: Connection, topic: str) -> None:
    old = await begun(connection)
    assert produced(await connection.call(send((0, batch(old, 0, b"a"))), 12)) == [0]
    new = await begun(connection)
    assert new.epoch > old.epoch
    for version in range(3, 14):
        request = send((0, batch(old, 1, b"b")))
        await connection.name_by_id(*request.topic_data)
        assert produced(await connection.call(request, version)) == [E.INVALID_PRODUCER_EPOCH]
    for version in range(6):
        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        assert (await connection.call(end(old, commit=True), version)).error_code == fenced
        if version <= 4:
            assert (await connection.call(add_offsets(old), version)).error_code == fenced
        if version <= 3:
            assert added(await connection.call(add(old, {"t": [0]}), version)) == [fenced]
        refused = committed(await connection.call(commit_offsets(old), version))
        assert refused == [E.INVALID_PRODUCER_EPOCH]
    assert produced(await connection.call(send((0, batch(new, 0, b"c"))), 12)) == [0]
    assert (await connection.call(end(new, commit=True), 5)).error_code == 0


async def test_a_transaction_with_topics_by_id(connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    request = send((0, batch(owner, 0, b"a")))
    request.topic_data += send((0, batch(owner, 0, b"a"))).topic_data
    request.topic_data[1].topic_id = b"\7" * 16
    await connection.name_by_id(*request.topic_data[:1])
    answer = await connection.call(request, 13)
    assert {row.topic_id: row.partition_responses[0].error_code for row in answer.responses} == {
        request.topic_data[0].topic_id: E.NONE,
        request.topic_data[1].topic_id: E.UNKNOWN_TOPIC_ID,
    }
    assert (await connection.call(end(owner, commit=True), 5)).error_code == 0


async def test_other_producers_and_ids(connection: Connection, topic: str) -> None:
    owner, other = await begun(connection), await begun(connection, "other")
    wrong = E.INVALID_PRODUCER_ID_MAPPING
    unknown = Owner(owner.producer_id + 77, 0)
    for name, who in (("other", owner), ("none", owner), (ID, unknown), (ID, other)):
        assert added(await connection.call(add(who, {"t": [0]}, name), 3)) == [wrong]
        assert (await connection.call(add_offsets(who, name=name), 4)).error_code == wrong
        assert committed(await connection.call(commit_offsets(who, name=name), 5)) == [wrong]
        assert (await connection.call(end(who, commit=True, name=name), 5)).error_code == wrong
        request = send((0, batch(who, 0, b"a")), name=name)
        assert produced(await connection.call(request, 12)) == [wrong]
    both = send((0, batch(owner, 0, b"a")), (1, batch(other, 0, b"b")))
    assert produced(await connection.call(both, 12)) == [wrong, wrong]
    for name in ("",):
        assert added(await connection.call(add(owner, {"t": [0]}, name), 3)) == [E.INVALID_REQUEST]
        assert (await connection.call(end(owner, commit=True, name=name), 5)).error_code == 42
        assert (await connection.call(add_offsets(owner, name=name), 4)).error_code == 42


async def test_partitions_that_do_not_exist(connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    answer = await connection.call(add(owner, {"t": [0, 9], "none": [0]}), 3)
    assert added(answer) == [E.OPERATION_NOT_ATTEMPTED, 3, 3]
    sent = send((0, batch(owner, 0, b"a")), (9, batch(owner, 0, b"a")))
    assert produced(await connection.call(sent, 12)) == [0, 3]
    assert committed(await connection.call(commit_offsets(owner, topic="none"), 5)) == [3]
    assert (await connection.call(end(owner, commit=True), 5)).error_code == 0
    assert await seen(connection) == [b"a"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_topics_of_the_server(connection: Connection, topic: str, name: str) -> None:
    """A client cannot write to them in a transaction, nor make the server write a marker to them."""
    owner = await begun(connection)
    await connection.call(add_offsets(owner), 4)  # both topics exist now
    answer = await connection.call(add(owner, {"t": [0], name: [0]}), 3)
    assert added(answer) == [E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED]
    sent = send((0, batch(owner, 0, b"a")), topic=name)
    assert produced(await connection.call(sent, 12)) == [E.INVALID_TOPIC_EXCEPTION]
    described = DescribeTransactionsRequest(transactional_ids=[ID])
    (state,) = (await connection.call(described, 0)).transaction_states
    assert [one.topic for one in state.topics] == ["__consumer_offsets"]


async def test_batches_that_do_not_fit(connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    anonymous = send((0, batch(owner, 0, b"a")), name=None)
    assert produced(await connection.call(anonymous, 12)) == [
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ]
    assert produced(await connection.call(send((0, batch(owner, 0, b"a"))), 12)) == [0]
    gap = send((0, batch(owner, 5, b"a")))
    assert produced(await connection.call(gap, 12)) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    plain = plain_produce("t", (0, batch(owner, 1, b"p", transactional=False)))
    assert produced(await connection.call(plain, 12)) == [E.INVALID_TXN_STATE]
    mixed = send((1, batch(owner, 0, b"a") + batch(owner, 1, b"b", transactional=False)))
    assert produced(await connection.call(mixed, 12)) == [E.INVALID_RECORD]
    twice = send((0, batch(owner, 0, b"a")))
    answer = await connection.call(twice, 12)
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert (await connection.call(end(owner, commit=True), 5)).error_code == 0
    assert await seen(connection) == [b"a"]


@pytest.mark.parametrize("version", range(3, 6))
async def test_offsets_of_members(connection: Connection, topic: str, version: int) -> None:
    """Member and generation of the group are checked as for a plain commit."""
    joined = await alone(connection)
    owner = await begun(connection)
    assert (await connection.call(add_offsets(owner), 4)).error_code == 0

    async def commit(**changed: Any) -> list[int]:
        return committed(await connection.call(commit_offsets(owner, 3, **changed), version))

    member, generation = joined.member_id, joined.generation_id
    assert await commit(member_id="other", generation_id=generation) == [E.UNKNOWN_MEMBER_ID]
    assert await commit(member_id=member, generation_id=generation + 1) == [E.ILLEGAL_GENERATION]
    assert await commit(member_id=member, generation_id=generation, group_instance_id="static") == [
        E.UNKNOWN_MEMBER_ID
    ]
    outside = {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE, 5: E.ILLEGAL_GENERATION}
    none = await commit(group="none", member_id=member, generation_id=1)
    assert none == [outside[version]]  # the transaction is looked at before the group
    assert await commit(member_id=member, generation_id=generation) == [0]
    assert await commit() == [0]  # an older client does not say who it is
    unstable = await fetched(connection, 8, {"t": [0]}, stable=True)
    assert unstable["t", 0][-1] == E.UNSTABLE_OFFSET_COMMIT
    assert await fetched(connection, 8, None, stable=True) == {}  # none is committed yet
    assert (await connection.call(end(owner, commit=True), 5)).error_code == 0
    assert await offset(connection) == 3


async def test_ends_without_partitions(connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    for version in range(6):
        answer = await connection.call(end(owner, commit=True), version)
        assert answer.error_code == E.INVALID_TXN_STATE
    assert (await connection.call(end(owner, commit=False), 4)).error_code == E.INVALID_TXN_STATE
    answer = await connection.call(end(owner, commit=False), 5)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)


async def test_list_and_describe(connection: Connection, topic: str) -> None:
    one, two = await begun(connection, "one"), await begun(connection, "two")
    await connection.call(send((0, batch(two, 0, b"a")), name="two"), 12)

    async def listed(version: int = 2, **filters: Any) -> dict[str, tuple[int, str]]:
        answer = await connection.call(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {
            row.transactional_id: (row.producer_id, row.transaction_state)
            for row in answer.transaction_states
        }

    both = {"one": (one.producer_id, "Empty"), "two": (two.producer_id, "Ongoing")}
    for version in range(3):
        assert await listed(version) == both
        assert list(await listed(version, state_filters=["Ongoing", "Odd"])) == ["two"]
        assert list(await listed(version, producer_id_filters=[one.producer_id])) == ["one"]
    assert await listed(state_filters=["Odd"]) == {}
    odd = await connection.call(ListTransactionsRequest(state_filters=["Odd", "Dead"]), 2)
    assert odd.unknown_state_filters == ["Odd"]
    assert list(await listed(transactional_id_pattern="t.o")) == ["two"]
    assert "two" not in await listed(duration_filter=3_600_000)
    await asyncio.sleep(0.005)
    assert "two" in await listed(duration_filter=1)
    wrong = await connection.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert wrong.error_code == E.INVALID_REGULAR_EXPRESSION

    asked = DescribeTransactionsRequest(transactional_ids=["two", "none", ""])
    described, missing, empty = (await connection.call(asked, 0)).transaction_states
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (two.producer_id, 0)
    assert described.transaction_timeout_ms == 60_000
    assert described.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0])]
    assert missing.error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == E.INVALID_REQUEST


async def test_describe_producers(connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    await connection.call(
        plain_produce("t", (0, batch(Owner(-1, -1), -1, b"x", transactional=False))), 12
    )
    await connection.call(send((0, batch(owner, 0, b"a", b"b"))), 12)

    async def known() -> Any:
        answer = await connection.call(producers("t", 0), 0)
        (row,) = answer.topics[0].partitions
        assert row.error_code == 0
        return row.active_producers

    (active,) = await known()
    assert (active.producer_id, active.producer_epoch) == (owner.producer_id, owner.epoch)
    assert (active.last_sequence, active.current_txn_start_offset) == (1, 1)
    assert active.last_timestamp == 1_700_000_000_000
    await connection.call(end(owner, commit=True), 5)
    (active,) = await known()
    assert (active.producer_epoch, active.current_txn_start_offset) == (1, -1)
    assert active.coordinator_epoch == 0
    missing = await connection.call(producers("none", 0), 0)
    assert missing.topics[0].partitions[0].error_code == 3
    beyond = await connection.call(producers("t", 9), 0)
    assert beyond.topics[0].partitions[0].error_code == 3


def many_offsets(rows: int) -> Any:
    """Return a request that commits so many offsets of a partition that does not exist."""
    request = commit_offsets(Owner(7, 0), topic="none")
    request.topics[0].partitions *= rows
    return request


@pytest.mark.parametrize(
    ("asking", "version"),
    [
        pytest.param(lambda rows: producers("t", *[9] * rows), 0, id="DescribeProducers"),
        pytest.param(lambda rows: add(Owner(7, 0), {"t": [9] * rows}), 3, id="AddPartitionsToTxn"),
        pytest.param(lambda rows: many_offsets(rows), 5, id="TxnOffsetCommit"),
    ],
)
async def test_a_long_request_lets_others_take_turns(
    connection: Connection,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    asking: Callable[[int], Any],
    version: int,
) -> None:
    """A frame of 1 MB may name a quarter of a million partitions."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(others())
    for rows in (1, 1000):
        before = turns
        with monkeypatch.context() as patch:
            patch.setattr("api.kafka.call.perf_counter", partial(next, count(0.0, 0.001)))
            await connection.call(asking(rows), version)
        taken = turns - before
        assert (taken >= 100) is (rows > 1), taken
    counting.cancel()


async def test_http_shows_them(kafka: Broker, connection: Connection, topic: str) -> None:
    owner = await begun(connection)
    await connection.call(send((0, batch(owner, 0, b"a"))), 12)
    answer = await kafka.api.get("/transactions")
    (row,) = answer.json
    assert (row["transactional_id"], row["state"]) == (ID, "Ongoing")
    assert row["producer_id"] == owner.producer_id


async def test_restart_in_the_middle(tmp_path: Path) -> None:
    """A transaction that is open when the server stops goes on afterwards."""
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 2, None)
        owner = await begun(connection)
        assert produced(await connection.call(send((0, batch(owner, 0, b"a"))), 12)) == [0]
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        assert await seen(connection) == []
        assert produced(await connection.call(send((0, batch(owner, 1, b"b"))), 12)) == [0]
        assert (await connection.call(end(owner, commit=True), 5)).error_code == 0
        assert await seen(connection) == [b"a", b"b"]
        state = await kafka.service.transactions.state(ID)
        assert state is not None
        assert state.status is TransactionStatus.COMPLETE_COMMIT


STATES, OFFSETS = "__transaction_state", "__consumer_offsets"


async def deleted(connection: Connection, *names: str) -> list[int]:
    """Delete topics; return the number of each answer."""
    answer = await connection.call(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000), 5)
    return [row.error_code for row in answer.responses]


async def test_topics_that_open_transactions_need(tmp_path: Path) -> None:
    """They cannot be deleted until these end, so a kill loses no outcome; others can, as from the real server."""
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 2, None)
        plain = await begun(connection, "plain")
        sent = send((0, batch(plain, 0, b"a")), name="plain")
        assert produced(await connection.call(sent, 12)) == [0]
        assert await deleted(connection, STATES) == [E.POLICY_VIOLATION]
        await connection.call(groups.commit({("t", 0): 1}, group="other"), 9)
        assert await deleted(connection, OFFSETS) == [0]
        assert await fetched(connection, 9, None, group="other") == {}
        owner = await begun(connection)
        assert committed(await connection.call(commit_offsets(owner, 3), 5)) == [0]
        assert await deleted(connection, OFFSETS, STATES) == [E.POLICY_VIOLATION] * 2
        refused = await kafka.api.call("DELETE", f"/topics/{OFFSETS}")
        assert (refused.status, refused.json["error_code"]) == (409, 40903)
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        assert await deleted(connection, OFFSETS, STATES) == [E.POLICY_VIOLATION] * 2
        for name, one in ((ID, owner), ("plain", plain)):
            ending = end(one, commit=True, name=name)
            assert (await connection.call(ending, 5)).error_code == 0
        assert await seen(connection) == [b"a"]
        assert (await fetched(connection, 9, None))["t", 0][0] == 3
        assert await deleted(connection, OFFSETS, STATES) == [0, 0]
        assert await fetched(connection, 9, None) == {}
        again = await begun(connection, "plain")
        sent = send((0, batch(again, 0, b"b")), name="plain")
        assert produced(await connection.call(sent, 12)) == [0]
        ending = end(again, commit=True, name="plain")
        assert (await connection.call(ending, 5)).error_code == 0
        assert await seen(connection) == [b"a", b"b"]


async def test_no_state_is_written_while_its_topic_is_deleted(
    kafka: Broker, connection: Connection, topic: str
) -> None:
    """The first record of a transaction waits for the deletion, and its state is in the new topic."""
    owner = await begun(connection)
    async with kafka.service.transactions.deleting(STATES):
        first = asyncio.create_task(connection.call(send((0, batch(owner, 0, b"a"))), 12))
        await asyncio.sleep(0.05)
        assert not first.done()
        await asyncio.to_thread(kafka.service.store.delete_topic, STATES)
    assert produced(await first) == [0]
    store = kafka.service.store
    assert isinstance(store, SupportsTransactions)
    (stored,) = await asyncio.to_thread(store.transactions)
    assert stored.status is TransactionStatus.ONGOING


async def test_lost_connections_hold_up_no_end(
    kafka: Broker, connection: Connection, topic: str
) -> None:
    """A client that goes away in the middle of a request leaves its transaction: the end does not wait for it."""
    owner = await begun(connection)
    for turn in range(20):
        async with kafka.connect() as lost:
            for sequence in range(3):
                request = send((0, batch(owner, sequence, b"%d" % turn)))
                lost.writer.write(frame(request, NEWEST_PRODUCE))
            lost.writer.write(frame(commit_offsets(owner, turn), 5))
            await asyncio.sleep(0.0005 * turn)
        ended = await asyncio.wait_for(connection.call(end(owner, commit=False), 5), 20)
        assert ended.error_code == 0
        owner = Owner(ended.producer_id, ended.producer_epoch)
    bounds = kafka.service.store.bounds(TopicPartition("t", 0))
    assert bounds.stable == bounds.end


async def test_time_out(tmp_path: Path) -> None:
    """A transaction over its time-out is rolled back, and its producer fenced."""
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 2, None)
        answer = await connection.call(init(transaction_timeout_ms=1), 5)
        owner = Owner(answer.producer_id, answer.producer_epoch)
        assert produced(await connection.call(send((0, batch(owner, 0, b"a"))), 12)) == [0]
        await asyncio.sleep(0.005)
        late = send((0, batch(owner, 1, b"b")))
        assert produced(await connection.call(late, 12)) == [E.INVALID_PRODUCER_EPOCH]
        ended = await connection.call(end(owner, commit=True), 5)
        assert ended.error_code == E.INVALID_TXN_STATE
        rolled_back = await connection.call(end(owner, commit=False), 5)
        assert (rolled_back.error_code, rolled_back.producer_epoch) == (0, owner.epoch + 1)
        state = await kafka.service.transactions.state(ID)
        assert state is not None
        assert state.status is TransactionStatus.COMPLETE_ABORT
        row = (await connection.call(fetch("t", (0, 0), isolation_level=1), 12)).responses[0]
        assert [one.first_offset for one in row.partitions[0].aborted_transactions] == [0]


async def test_read_only_store(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 2, None)
        owner = await begun(connection)
    chosen = settings(tmp_path / "store", listen_kafka=FREE)
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        await api.server.listen_kafka()
        async with Broker(api).connect() as connection:
            refused = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert (await connection.call(init(), 5)).error_code == refused
            assert (await connection.call(end(owner, commit=True), 5)).error_code == refused
            assert added(await connection.call(add(owner, {"t": [0]}), 3)) == [refused]
            unmarked = await connection.call(markers(marker(owner, {"t": [0]})), 2)
            assert marked(unmarked) == [E.CLUSTER_AUTHORIZATION_FAILED]
            listed = await connection.call(ListTransactionsRequest(), 2)
            assert [row.transactional_id for row in listed.transaction_states] == [ID]


# -- transactions that no coordinator knows


def marked(answer: Any) -> list[int]:
    """Return the error numbers of a WriteTxnMarkers response."""
    return [
        row.error_code for one in answer.markers for topic in one.topics for row in topic.partitions
    ]


async def test_a_hanging_transaction_is_aborted(tmp_path: Path) -> None:
    """A reader that waits at it goes on at once; a restart and the next transaction of the producer know its end."""
    with open_store("kafka", tmp_path / "store") as store:
        store.create_topic("t", 1)
        at = TopicPartition("t", 0)
        store.append(at, [Record(None, b"hangs")], producer=ProducerSequence(7, 3, 0, True))
        store.append(at, [Record(None, b"after")])
    async with (
        running_broker(tmp_path / "store") as kafka,
        kafka.connect() as connection,
        kafka.connect() as reader,
    ):
        assert await seen(connection) == []
        waiting = asyncio.create_task(
            reader.call(fetch("t", (0, 0), isolation_level=1, max_wait_ms=20_000, min_bytes=1), 12)
        )
        await asyncio.sleep(0.05)
        late = await connection.call(markers(marker(Owner(7, 2), {"t": [0]})), 1)
        assert marked(late) == [E.INVALID_PRODUCER_EPOCH]
        assert not waiting.done()
        done = await connection.call(markers(marker(Owner(7, 3), {"t": [0]})), 1)
        assert marked(done) == [E.NONE]
        answer = await asyncio.wait_for(waiting, 5)
        (row,) = answer.responses[0].partitions
        assert [one.first_offset for one in row.aborted_transactions] == [0]
        assert values(row.records)[:2] == [b"hangs", b"after"]
    async with running_broker(tmp_path / "store") as kafka, kafka.connect() as connection:
        answer = await connection.call(producers("t", 0), 0)
        (known,) = answer.topics[0].partitions[0].active_producers
        assert (known.producer_epoch, known.current_txn_start_offset) == (3, -1)
