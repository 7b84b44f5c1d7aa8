"""Descriptions of the calls for documentation. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import TEXT, Answer, Doc, Example
from api.http.errors import JSON

PART: Final = "Documentation"

OPENAPI: Final = Doc(
    id="openapi",
    tag=PART,
    summary="This API as an OpenAPI 3.1 document",
    needs_store=False,
    answers=(Answer(200, "The document.", {JSON: dict[str, object]}),),
    examples=(Example(),),
)
DOCS: Final = Doc(
    id="docs",
    tag=PART,
    summary="This API as a page to read",
    needs_store=False,
    answers=(Answer(200, "The page.", {"text/html": TEXT}),),
    examples=(Example(),),
)
