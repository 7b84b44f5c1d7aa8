"""The same requests of transactional producers for the real broker and for this server.

Owns the requests; must not know the answers. `python -m tests.wire.transaction_exchanges HOST:PORT` prints the
answers of a running broker with an empty store as JSON: recorded_transactions.json holds the real one's (Kafka 4.3.1),
started with `offsets.topic.num.partitions=1` and `transaction.state.log.num.partitions=1`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from api.kafka.apis import SERVED
from api.kafka.protocol.messages import APIS
from api.kafka.protocol.messages.cluster import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
)
from api.kafka.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from tests.wire.exchanges import comparable
from tests.wire.harness import Connection
from tests.wire.harness import produce as plain_produce
from tests.wire.transaction_requests import (
    Owner,
    add,
    add_offsets,
    batch,
    commit_offsets,
    end,
    init,
    marker,
    markers,
    producers,
    send,
)

WAITS: Final = frozenset({14, 15, 16, 51})
"""Numbers of the real coordinator that ask a client to come again; ours waits instead."""
NOT_COMPARED: Final = frozenset({"last_timestamp", "log_start_offset", "transaction_start_time_ms"})
"""Times; and the log start, which the real broker gives with some errors too."""
ATTEMPTS: Final = 60


class Player:
    """Plays requests, and notes the comparable answers by name."""

    def __init__(self, connection: Connection) -> None:
        self.found: dict[str, Any] = {}
        self._connection = connection

    async def call(self, name: str, message: Any, version: int) -> Any:
        """Send a request until the coordinator does not ask for another attempt."""
        assert name not in self.found
        for _ in range(ATTEMPTS):
            answer = await self._connection.call(message, version)
            self.found[name] = _shown(comparable(answer))
            if not _codes(self.found[name]) & WAITS:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: the coordinator asks for more than {ATTEMPTS} attempts")

    async def begin(self, name: str, transactional_id: str, known: Owner | None = None) -> Owner:
        """Initialise a transactional id."""
        answer = await self.call(name, init(transactional_id, known), 5)
        return Owner(answer.producer_id, answer.producer_epoch)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(inner) for key, inner in value.items() if key not in NOT_COMPARED}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def _codes(value: Any) -> set[int]:
    """Return all error numbers in an answer."""
    if isinstance(value, list):
        return set().union(*map(_codes, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    own = {inner for key, inner in value.items() if key.endswith("error_code")}
    return own.union(*map(_codes, value.values())) if value else own


async def answers(connection: Connection) -> dict[str, Any]:
    """Play all requests, and return the answers by name."""
    player = Player(connection)
    topic = CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
    for key, key_type in (("g", 0), ("tx", 1)):  # the real broker creates its topics then
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        await player.call(f"coordinator {key_type}", request, 3)
    await _of_old_clients(player)
    await _of_new_clients(player)
    await _refused(player)
    await _shown_to_tools(player)
    await _markers(player)
    features = await connection.call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
    )
    player.found["level"] = [
        one.max_version_level
        for one in features.finalized_features
        if one.name == "transaction.version"
    ]
    player.found["versions"] = {
        APIS[row.api_key].name: [row.min_version, row.max_version]
        for row in features.api_keys
        if row.api_key in SERVED
    }
    player.found["versions"]["AddPartitionsToTxn"][1] = 3  # later ones are for brokers
    return player.found


async def _of_old_clients(player: Player) -> None:
    for version in range(5):
        name = f"old {version}"
        owner = await player.begin(f"{name}: init", name)
        outside = send((0, batch(owner, 0, b"a")), name=name)
        await player.call(f"{name}: not added", outside, version + 7)
        await player.call(f"{name}: add", add(owner, {"t": [0]}, name), min(version, 3))
        await player.call(
            f"{name}: not all exist", add(owner, {"t": [1, 9]}, name), min(version, 3)
        )
        await player.call(f"{name}: produce", outside, version + 7)
        await player.call(f"{name}: add offsets", add_offsets(owner, name=name), version)
        await player.call(f"{name}: offsets", commit_offsets(owner, 3, name=name), version)
        commit = version % 2 == 0
        await player.call(f"{name}: end", end(owner, commit=commit, name=name), version)
        await player.call(f"{name}: end again", end(owner, commit=commit, name=name), version)
        await player.call(f"{name}: other end", end(owner, commit=not commit, name=name), version)
        await player.call(f"{name}: late", send((0, batch(owner, 1, b"b")), name=name), version + 7)


async def _of_new_clients(player: Player) -> None:
    owner = await player.begin("new: init", "new")
    for turn, commit in enumerate((True, False, True)):
        data = batch(owner, 0, b"%d" % turn)
        await player.call(f"new: produce {turn}", send((1, data), name="new"), 12)
        await player.call(f"new: offsets {turn}", commit_offsets(owner, turn, name="new"), 5)
        ended = await player.call(f"new: end {turn}", end(owner, commit=commit, name="new"), 5)
        again = end(owner, commit=commit, name="new")
        await player.call(f"new: end again {turn}", again, 5)
        other = end(owner, commit=not commit, name="new")
        await player.call(f"new: other end {turn}", other, 5)
        await player.call(f"new: late {turn}", send((1, batch(owner, 1, b"z")), name="new"), 12)
        owner = Owner(ended.producer_id, ended.producer_epoch)
    await player.call("new: nothing to commit", end(owner, commit=True, name="new"), 5)
    ended = await player.call("new: nothing to abort", end(owner, commit=False, name="new"), 5)
    owner = Owner(ended.producer_id, ended.producer_epoch)
    known = await player.begin("new: known", "new", owner)
    await player.call("new: known again", init("new", owner), 5)
    await player.call("new: fenced", init("new", Owner(owner.producer_id, 0)), 5)
    await player.call("new: fenced, version 3", init("new", Owner(owner.producer_id, 0)), 3)
    await player.call("new: fenced producer", send((1, batch(owner, 0, b"f")), name="new"), 12)
    for version in range(6):
        fenced = end(owner, commit=True, name="new")
        await player.call(f"new: fenced end {version}", fenced, version)
    await player.call("new: fenced offsets", commit_offsets(owner, name="new"), 5)
    gap = send((1, batch(known, 4, b"g")), name="new")
    await player.call("new: first sequence", gap, 12)
    await player.call("new: rollback", end(known, commit=False, name="new"), 5)


async def _refused(player: Player) -> None:
    owner = await player.begin("refused: init", "refused")
    other = Owner(owner.producer_id + 1_000_000, 0)
    for name, who in (("refused", other), ("no id", owner)):
        await player.call(f"{name}: add", add(who, {"t": [0]}, name), 3)
        await player.call(f"{name}: add offsets", add_offsets(who, name=name), 4)
        await player.call(f"{name}: end", end(who, commit=True, name=name), 5)
        await player.call(f"{name}: produce", send((0, batch(who, 0, b"a")), name=name), 12)
        await player.call(f"{name}: produce 9", send((0, batch(who, 0, b"a")), name=name), 9)
        await player.call(f"{name}: offsets", commit_offsets(who, name=name), 5)
    await player.call("empty id", init(""), 5)
    await player.call("no id: add to nothing", add(owner, {"t": [0]}, ""), 3)
    await player.call("time-out of 0", init("x", transaction_timeout_ms=0), 5)
    await player.call("time-out too long", init("x", transaction_timeout_ms=900_001), 5)
    half = init("x", Owner(5, -1))
    await player.call("half of a producer", half, 5)
    anonymous = send((0, batch(owner, 0, b"a")), name=None)
    await player.call("no id at all", anonymous, 12)
    await player.call(
        "topic of offsets unknown", commit_offsets(owner, name="refused", topic="u"), 5
    )
    member = commit_offsets(owner, group="none", name="refused", member_id="m", generation_id=1)
    await player.call("unknown group", member, 5)
    await player.call("unknown group: rollback", end(owner, commit=False, name="refused"), 5)
    member = commit_offsets(other, group="none", name="refused", member_id="m", generation_id=1)
    for version in (3, 4, 5):
        await player.call(f"unknown group, other producer {version}", member, version)
        name = f"members {version}"
        mine = await player.begin(f"{name}: init", name)
        outside = commit_offsets(mine, group="none", name=name, member_id="m", generation_id=1)
        await player.call(f"{name}: unknown group", outside, version)
        await player.call(f"{name}: commit", end(mine, commit=True, name=name), version)
    owner = await player.begin("refused: init again", "refused")
    await player.call(
        "refused: produce first", send((0, batch(owner, 0, b"r")), name="refused"), 12
    )
    plain = plain_produce("t", (0, batch(owner, 1, b"p", transactional=False)))
    await player.call("outside of the open transaction", plain, 12)


async def _shown_to_tools(player: Player) -> None:
    for version in range(3):
        ongoing = ListTransactionsRequest(state_filters=["Ongoing", "Odd"])
        await player.call(f"list {version}", ongoing, version)
    await player.call("list all", ListTransactionsRequest(), 2)
    await player.call("pattern", ListTransactionsRequest(transactional_id_pattern="old [12]"), 2)
    await player.call("bad pattern", ListTransactionsRequest(transactional_id_pattern="("), 2)
    asked = DescribeTransactionsRequest(transactional_ids=["refused", "none", "", "old 1"])
    await player.call("describe", asked, 0)
    await player.call("producers", producers("t", 0, 1, 9), 0)
    await player.call("producers of no topic", producers("u", 0), 0)


async def _markers(player: Player) -> None:
    """End transactions without their coordinator, as `kafka-transactions abort` does."""
    for version in (1, 2):
        name = f"marked {version}"
        owner = await player.begin(f"{name}: init", name)
        older = Owner(owner.producer_id, owner.epoch)
        owner = await player.begin(f"{name}: init again", name)
        await player.call(f"{name}: add", add(owner, {"t": [0, 1]}, name), 3)
        both = send((0, batch(owner, 0, b"m")), (1, batch(owner, 0, b"m")), name=name)
        await player.call(f"{name}: produce", both, 11)
        await player.call(f"{name}: open", producers("t", 0, 1), 0)
        for at, (what, wanted) in enumerate(
            {
                "older epoch": marker(older, {"t": [0]}, coordinator_epoch=7),
                "unknown partitions": marker(owner, {"t": [9], "u": [0]}),
                "abort": marker(owner, {"t": [0]}, coordinator_epoch=7),
                "abort again": marker(owner, {"t": [0]}, coordinator_epoch=7),
                "older coordinator": marker(owner, {"t": [0]}, coordinator_epoch=6),
                "older coordinator, other partition": marker(
                    owner, {"t": [1]}, coordinator_epoch=6
                ),
                "unknown producer": marker(Owner(999_999, 3), {"t": [1]}),
                "newer epoch": marker(Owner(owner.producer_id, owner.epoch + 1), {"t": [1]}),
                "offsets": marker(owner, {"__consumer_offsets": [0]}),
                "state": marker(owner, {"__transaction_state": [0]}),
                "negative coordinator": marker(owner, {"t": [0]}, coordinator_epoch=-1),
                "negative epoch": marker(Owner(owner.producer_id, -1), {"t": [0]}),
                "negative producer": marker(Owner(-1, 0), {"t": [0]}),
                "nothing": marker(owner, {}),
            }.items()
        ):
            await player.call(f"{name}: {at} {what}", markers(wanted), version)
        twice = marker(owner, {"t": [0, 1]}, commit=True, coordinator_epoch=8)
        await player.call(f"{name}: two", markers(twice, twice), version)
        new = marker(owner, {"t": [0]}, coordinator_epoch=8, transaction_version=2)
        await player.call(f"{name}: transactions of version 2", markers(new), version)
        await player.call(f"{name}: no markers", markers(), version)
        await player.call(f"{name}: ended", producers("t", 0, 1), 0)


async def _print(address: str) -> None:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    found = await answers(Connection(reader, writer))
    writer.close()
    rows = (
        f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found)
    )
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    asyncio.run(_print(sys.argv[1]))
