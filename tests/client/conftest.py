"""Fixtures of the client suite: the same tests over every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from logserver.client import LogClient, Retry
from tests.http.conftest import api, backend
from tests.http.harness import Api

__all__ = ["api", "backend"]


@pytest.fixture
async def client(api: Api) -> AsyncIterator[LogClient]:
    """A client of the running server."""
    async with LogClient(api.url, retry=Retry(attempts=3, first_s=0.001)) as one:
        yield one
