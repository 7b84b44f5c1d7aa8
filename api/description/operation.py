"""Descriptions of the calls for operation. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import TEXT, Answer, Doc, Example, plain
from api.handlers.operation import Alive, Ready, StoreAnswer
from logserver.metrics import CONTENT_TYPE

PART: Final = "Operation"

LIVEZ: Final = Doc(
    id="live",
    needs_store=False,
    tag=PART,
    summary="Report that the process runs",
    scope=None,
    answers=(Answer(200, "It runs.", plain(Alive)),),
    examples=(Example(answer={"state": "alive"}),),
)
READYZ: Final = Doc(
    id="ready",
    tag=PART,
    summary="Report whether the server accepts requests",
    about="503 while the store is being opened, with the progress of a recovery; on a full disk; after a failed write.",
    scope=None,
    answers=(Answer(200, "It accepts requests.", plain(Ready)),),
    examples=(
        Example(answer={"state": "ready", "read_only": False, "disk_full": False, "fenced": None}),
    ),
)
METRICS: Final = Doc(
    id="metrics",
    needs_store=False,
    tag=PART,
    summary="Metrics for Prometheus",
    answers=(Answer(200, "The text format.", {CONTENT_TYPE.partition(";")[0]: TEXT}),),
    examples=(Example(),),
)
STORE: Final = Doc(
    id="store",
    tag=PART,
    summary="Description of the store",
    about="Backend, capabilities, findings of the last recovery, sizes.",
    answers=(Answer(200, "The store.", plain(StoreAnswer)),),
    examples=(Example(),),
)
