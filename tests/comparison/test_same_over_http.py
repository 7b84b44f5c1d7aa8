"""A generated workload over HTTP, to a server of each backend: its answers equal the answers of the stores."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

import storage
from storage import LogStore, StoreOptions
from tests.comparison.over_http import Client
from tests.comparison.sides import FLAVOURS
from tests.comparison.workload import Answers, Workload
from tests.contract.flavours import Flavour
from tests.contract.harness import ManualClock
from tests.http.harness import serving, settings
from tests.http.running import Running


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: flavour.backend)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


def over_http(answers: Answers) -> Answers:
    """Return the answers that HTTP can give: only lower bounds of times."""
    times = {q: hit for q, hit in answers.times.items() if q.bound is storage.Bound.LOWER}
    return answers._replace(times=times)


async def test_by_a_server_that_is_started_again(flavour: Flavour, tmp_path: Path) -> None:
    workload, clock = Workload.of(3), ManualClock()
    chosen = settings(tmp_path / "store")

    def open_it(progress: storage.Progress) -> LogStore:
        options = StoreOptions(settings=flavour.settings, progress=progress)
        return storage.open_store(flavour.backend, chosen.data, options, clock=clock)

    half = len(workload.steps) // 2
    async with serving(chosen, open_it, clock=clock) as api:
        client = Client(api.session, api.url)
        await client.make_topics()
        await client.play(workload.steps[:half], clock)
    async with serving(chosen, open_it, clock=clock) as api:
        client = Client(api.session, api.url)
        await client.play(workload.steps[half:], clock)
        assert await client.answers(workload) == over_http(workload.answers())


@pytest.fixture
def start(flavour: Flavour, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    """A function that starts a server on the same directory; all servers end with the test."""
    running: list[Running] = []
    given = [part for pair in flavour.settings.items() for part in ("--set", "=".join(pair))]

    def started() -> Running:
        running.append(Running("--data", tmp_path / "store", "--backend", flavour.backend, *given))
        return running[-1]

    yield started
    for one in running:
        if one.process.poll() is None:
            one.stop(signal.SIGKILL)


@pytest.mark.slow
async def test_by_a_server_that_is_killed(start: Callable[[], Running]) -> None:
    """Acknowledged records survive kill -9. The server uses the machine's clock, so no question is by time."""
    workload = Workload.of(4)
    expected = workload.answers()
    half = len(workload.steps) // 2
    async with aiohttp.ClientSession() as session:
        for begin in (0, half):
            running = start()
            client = Client(session, running.facts["url"])
            if begin == 0:
                await client.make_topics()
            await client.play(workload.steps[begin : begin + half], ManualClock())
            running.stop(signal.SIGKILL)
        client = Client(session, start().facts["url"])
        found = await client.answers(workload)
    assert (found.records, found.bounds) == (expected.records, expected.bounds)
    timeless = [q for q in workload.key_questions() if (q.from_ms, q.to_ms) == (None, None)]
    assert [found.found[q] for q in timeless] == [expected.found[q] for q in timeless]
