"""The documentation of one server; each form is created at its first use.

Owns the cache of the forms; must not know their content: `api.openapi` and `api.docs_page` create them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from api.docs_page import page
from api.openapi import document
from api.route import Route
from logserver.config import Settings


class Book:
    """The documentation of the routes, under these settings."""

    def __init__(self, routes: Sequence[Route], settings: Settings) -> None:
        self._routes = routes
        self._settings = settings

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document."""
        return msgspec.json.encode(document(self._routes, self._settings))

    @cached_property
    def page(self) -> bytes:
        """The HTML page."""
        return page(self._routes, self._settings).encode()
