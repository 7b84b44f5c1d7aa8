"""A limited `find` returns the newest records, as the real store's `result` does, in log order."""

from __future__ import annotations

import pytest

from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_the_newest_are_given(golden: GoldenStore) -> None:
    checks.check_limited_answers(golden)
