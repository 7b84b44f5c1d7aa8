"""The golden checks on new stores of the real RocketMQ, from other seeds: no code fits only the golden stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore
from tests.golden.trees import picture
from tests.interop.rocketmq import rocketmq_peers as peers

pytestmark = pytest.mark.java

SEEDS = {
    "basic": 1002,
    "bodies": 1003,
    "system": 1004,
    "batch": 1005,
    "edges": 1007,
    "times": 1008,
    "unclean": 1009,
    "unclean-late": 1010,
    "deleted-head": 1011,
    "small": 1012,
    "many": 1013,
    "propcrc": 1014,
    "cqext": 1016,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str | None]]:
    """A folder with a new store of each profile, and the errors of the real store while it wrote them."""
    root = tmp_path_factory.mktemp("held-out")
    return root, peers.write_goldens(root, SEEDS)


@pytest.fixture(params=SEEDS)
def golden(
    request: pytest.FixtureRequest, written: tuple[Path, Mapping[str, str | None]]
) -> Iterator[GoldenStore]:
    """One of the new stores; no file of it may change."""
    root, errors = written
    assert errors[request.param] is None
    found = GoldenStore(root / request.param)
    before = picture(found.folder)
    yield found
    assert picture(found.folder) == before


def test_everything_that_holds_for_the_golden_stores(golden: GoldenStore) -> None:
    checks.check_records(golden)
    checks.check_commit_log(golden)
    checks.check_index_files(golden)
    checks.check_raw_answers(golden)
    checks.check_answers(golden)
    with stores.open_golden(golden, read_only=True) as store:
        checks.check_library(golden, store)
        checks.check_ids(golden, store)
        checks.check_times(golden, store)
        checks.check_found_by_the_library(golden, store)
    if golden.name in stores.REWRITTEN:
        checks.check_rewritten(golden)
