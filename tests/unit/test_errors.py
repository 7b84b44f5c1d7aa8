"""Errors cross process boundaries: a caller raises the same error that a worker raised."""

from __future__ import annotations

import pickle

import pytest

from storage.errors import Corrupt, InvalidArgument, StorageError, UnknownPartition, UnknownTopic


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopic("t"),
        UnknownPartition("t", 7, 3),
        InvalidArgument("limit must be at least 1", field="limit"),
        Corrupt("a bad batch", kind="batch", path="/x", position=7, expected="a", found="b"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickled(error: StorageError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.message == error.message
    assert copy.facts() == error.facts()
    assert copy.code == error.code
