"""The arguments of a conversion: one value, made at the entry point.

Owns that shape; must not know a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage.contract import SPLIT_BYTES, StoreOptions, TaskRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The arguments of a conversion.

    - `topics` empty: all topics except the server's own.
    - `replace`: a target that an earlier conversion of the same source made may be replaced.
    - `run`: does the work in parts of about `split_bytes`; None: the work is done here, record by record.
    """

    source: Path
    target: Path
    to: str
    encode: bool = False
    replace: bool = False
    topics: Sequence[str] = ()
    options: StoreOptions = field(default_factory=StoreOptions)
    target_options: StoreOptions = field(default_factory=StoreOptions)
    run: TaskRunner | None = None
    split_bytes: int = SPLIT_BYTES
