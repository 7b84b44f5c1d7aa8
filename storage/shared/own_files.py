"""Our own notes and reports at a store's root: checks that each file can be read.

Owns the meaning of a damaged file; must not know the files of a backend, which reports them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from storage.coding.json_file import decode_json
from storage.errors import Corrupt, IoFailure
from storage.files import FileSystem
from storage.findings import finding
from storage.model import ConversionReport, Finding, LossReport
from storage.shared.loss_report import SALVAGE_REPORT
from storage.shared.staged_append import NOTE, Note

CONVERSION_REPORT: Final = ".logserver.convert.json"

_FILES: Final[Mapping[str, tuple[type[Any], str]]] = {
    NOTE: (Note, "damaged-append-note"),
    SALVAGE_REPORT: (LossReport, "damaged-report"),
    CONVERSION_REPORT: (ConversionReport, "damaged-report"),
}


def own_file_findings(fs: FileSystem, *roots: Path) -> Iterator[Finding]:
    """Yield a finding for each note or report that cannot be read."""
    for path in (root / name for root in roots for name in _FILES):
        kind, code = _FILES[path.name]
        if not fs.exists(path):
            continue
        try:
            decode_json(fs.read_bytes(path), kind)
        except (Corrupt, IoFailure) as error:
            yield finding(code, path, message=f"the file cannot be read: {error.message}")
