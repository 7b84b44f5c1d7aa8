"""kill -9 during transactions: what was committed is whole, what was not is never seen, and the others go on."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.robustness.process.backends import BACKENDS
from tests.robustness.process.server import Answer, Client, Server

CYCLES, SOAKED = 5, 400
CLIENTS = 3
OPTIONS = {
    "kafka": (
        "--set=transaction.state.log.num.partitions=3",
        "--set=internal.segment.bytes=4000",
        "--set=offsets.topic.num.partitions=2",
    ),
    "rocketmq": (*BACKENDS["rocketmq"].options, "--set=transactionCheckInterval=100"),
}


class Known:
    """What the clients know of all transactions, by number."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 0
        self.begun: dict[int, str] = {}
        self.confirmed: dict[int, list[str]] = {}
        self.asked: dict[int, str] = {}
        self.answered: set[int] = set()

    def number(self) -> int:
        """Return a number that no transaction has."""
        with self.lock:
            self.next += 1
            return self.next - 1


def post(client: Client, path: str, body: object = None) -> Answer:
    answer = client.call("POST", path, body)
    assert answer.status < 300, answer
    return answer


def transact(client: Client, known: Known, dice: random.Random) -> None:
    """Run one transaction, in both partitions of the topic."""
    number = known.number()
    name = {"transactional_id": f"n{number}"} if dice.random() < 0.5 else {}
    known.begun[number] = post(client, "/transactions", {**name, "timeout_ms": 600_000}).body["id"]
    known.confirmed[number] = []
    for index in range(dice.choice([1, 2, 4])):
        value = f"{number}.{index}"
        path = f"/topics/t/partitions/{index % 2}?transaction={known.begun[number]}&acks=1"
        assert client.produce(path, [{"value": value}]).status == 200
        known.confirmed[number].append(value)
    how = dice.choice(["commit", "commit", "rollback", "open"])
    if how != "open":
        known.asked[number] = how
        post(client, f"/transactions/{known.begun[number]}/{how}")
        known.answered.add(number)


def work_and_kill(server: Server, known: Known, dice: random.Random) -> None:
    """Let clients work, and kill the server in the middle."""

    def work(seed: int) -> None:
        own = random.Random(seed)
        with suppress(OSError, http.client.HTTPException), server.client() as client:
            while True:
                transact(client, known, own)

    threads = [
        threading.Thread(target=work, args=(dice.randrange(1 << 30),)) for _ in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    threads[0].join(dice.uniform(0.2, 0.8))
    server.kill()
    for thread in threads:
        thread.join()


def check(server: Server, known: Known) -> None:
    """Check every transaction; those that were open are committed now."""
    with server.client() as client:
        for number, transaction in known.begun.items():
            if number in known.answered:
                continue
            how = known.asked.get(number, "commit")
            answer = client.call("POST", f"/transactions/{transaction}/{how}")
            if known.confirmed[number] or how != "commit":  # else it may be unknown after a restart
                assert answer.status in ({200} if known.confirmed[number] else {200, 404, 409}), (
                    answer
                )
            known.asked[number] = how
            known.answered.add(number)
        assert client.call("GET", "/transactions?state=Ongoing").body == []
        seen = [value for partition in range(2) for value in committed(client, partition)]
    assert len(seen) == len(set(seen)), "no record twice"
    expected = {
        value
        for number, how in known.asked.items()
        if how == "commit"
        for value in known.confirmed[number]
    }
    assert expected <= set(seen), expected - set(seen)
    rolled_back = {f"{number}." for number, how in known.asked.items() if how == "rollback"}
    assert not [value for value in seen if value.partition(".")[0] + "." in rolled_back]


def committed(client: Client, partition: int) -> list[str]:
    path = f"/topics/t/partitions/{partition}/records?isolation=read_committed&max_records=5000"
    values: list[str] = []
    offset = "earliest"
    while True:
        answer = client.call("GET", f"{path}&offset={offset}")
        assert answer.status == 200, answer
        values += [row["value"] for row in answer.body]
        if answer.headers["X-Next-Offset"] in (offset, answer.headers["X-End-Offset"]):
            return values
        offset = answer.headers["X-Next-Offset"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", OPTIONS)
def test_transactions_survive_kills(
    tmp_path: Path,
    backend: str,
    figures: Callable[[str], None],
    amount: Callable[[int, int], int],
    seed: int,
) -> None:
    dice, known = random.Random(seed), Known()
    cycles = amount(CYCLES, SOAKED)
    for cycle in range(cycles):
        with Server(tmp_path / "data", *OPTIONS[backend]) as server:
            if cycle == 0:
                with server.client() as client:
                    assert client.call("PUT", "/topics/t", {"partitions": 2}).status == 201
            check(server, known)
            work_and_kill(server, known, dice)
    with Server(tmp_path / "data", *OPTIONS[backend]) as server:
        check(server, known)
        server.stop()
    commits = sum(how == "commit" for how in known.asked.values())
    figures(
        f"kill -9, transactions, {backend}: {cycles} cycles, {len(known.begun)} of them, {commits} committed"
    )
    assert len(known.answered) > 5 * cycles
