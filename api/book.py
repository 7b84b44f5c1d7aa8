"""The documentation of one server, each form of it made when it is first asked for.

Owns that it is made once; its forms are `api.openapi` and `api.page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from api.openapi import document
from api.page import page
from api.route import Route
from logserver.config import Settings


class Book:
    """What the routes take and give, under these settings."""

    def __init__(self, routes: Sequence[Route], settings: Settings) -> None:
        self._routes = routes
        self._settings = settings

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document."""
        return msgspec.json.encode(document(self._routes, self._settings))

    @cached_property
    def page(self) -> bytes:
        """The page to read."""
        return page(self._routes, self._settings).encode()
