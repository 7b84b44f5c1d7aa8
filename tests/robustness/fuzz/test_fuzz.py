"""Arbitrary bytes as input of every decoder: the result is a value or one of our errors, and comes soon.

The quick run uses the seeds and some hundred changed ones, the same each time. The long run is guided by branches, for
a third of the targets, which the commit selects: a process takes longer to start than it would have time to fuzz. The
soak runs all targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.robustness.fuzz import http_bodies, wire_frames
from tests.robustness.fuzz.campaign import ANY_SEED, MISSING, fuzz, is_possible
from tests.robustness.fuzz.target import Check
from tests.robustness.fuzz.targets import TARGETS

CI_SECONDS = 45  # for all targets together
CI_SEED = 1
THIRDS = 3
SOAK_SECONDS = len(TARGETS) * 3600 // 2
AT_A_TIME = 2
START_S = 5  # time until a process starts fuzzing
CHECKS = [
    pytest.param(check, id=check.name) for target in TARGETS.values() for check in target.checks
]


@pytest.fixture(autouse=True, scope="module")
def fronts() -> Iterator[None]:
    """The services of the HTTP and wire targets, stopped at the end."""
    yield
    http_bodies.close_fronts()
    wire_frames.close_fronts()


@pytest.mark.parametrize("check", CHECKS)
def test_seeds_and_changes_of_them(check: Check) -> None:
    for data in check.mutations():
        try:
            check.run(data)
        except BaseException as broken:
            broken.add_note(f"{check.name} broke at {data.hex()}")
            raise


@pytest.mark.slow
def test_where_branches_lead(
    request: pytest.FixtureRequest,
    figures: Callable[[str], None],
    amount: Callable[[int, int], int],
    seed: int,
) -> None:
    if not is_possible():
        pytest.skip(MISSING)
    largest_first = sorted(TARGETS.values(), key=lambda target: -target.share)
    first_input = ANY_SEED
    if request.config.getoption("--soak") is None:
        largest_first = largest_first[seed % THIRDS :: THIRDS]
        first_input = CI_SEED
    seconds = amount(CI_SECONDS, SOAK_SECONDS) * AT_A_TIME - START_S * len(largest_first)
    shares = sum(target.share for target in largest_first)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        done = pool.map(
            lambda t: fuzz(t.name, seconds * t.share // shares, seed=first_input), largest_first
        )
        outcomes = list(done)
    for outcome in outcomes:
        figures(f"fuzz {outcome}")
    assert "\n".join(outcome.trouble for outcome in outcomes if outcome.trouble) == ""
