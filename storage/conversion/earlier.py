"""A target that an earlier conversion of the same source made: it is moved aside for a new conversion.

Owns the report's name, and how such a target is recognized; must not remove it, only move it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from storage.coding.json_file import decode_json
from storage.conversion.request import Order
from storage.conversion.sources import KafkaSource, RocketMQSource
from storage.errors import DataError, InvalidArgument
from storage.files import FileSystem
from storage.findings import finding
from storage.model import ConversionReport
from storage.shared.own_files import CONVERSION_REPORT

REPORT: Final = CONVERSION_REPORT


@contextmanager
def replaced(
    order: Order, source: KafkaSource | RocketMQSource, *, fs: FileSystem, now_ms: int
) -> Iterator[None]:
    """Move an earlier result at the target aside while a new one is made; after an error it is moved back.

    Raises InvalidArgument if `order` does not allow it.
    """
    target = order.target.resolve()
    if not is_earlier(fs, target, order):
        yield
        return
    if not order.replace:
        raise InvalidArgument(
            f"{target} is the result of an earlier conversion of {order.source}: give --replace to "
            "convert again, which keeps the earlier result under another name, or name a new directory",
            field="to",
        )
    kept = target.with_name(f"{target.name}.replaced-{now_ms}")
    fs.rename(target, kept)
    fs.sync_dir(target.parent)
    source.note([finding("kept-aside", kept, message="the earlier result of this conversion")])
    try:
        yield
    except BaseException:
        fs.rename(kept, target)
        fs.sync_dir(target.parent)
        raise


def is_earlier(fs: FileSystem, target: Path, order: Order) -> bool:
    """Return whether a conversion of the same source to the same format made the store at `target`."""
    path = target / REPORT
    if not fs.exists(target) or not fs.is_dir(target, follow=True) or not fs.exists(path):
        return False
    try:
        report = decode_json(fs.read_bytes(path), ConversionReport)
    except DataError:
        return False
    return report.to == order.to and Path(report.source).resolve() == order.source.resolve()
