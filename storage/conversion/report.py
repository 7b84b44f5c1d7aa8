"""The report of a conversion, which stands in the new store.

Owns its file, and how the result of an earlier conversion of the same source is recognized by it: a new conversion
moves that result aside. Must not remove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from storage.coding.json_file import decode_json
from storage.conversion.counters import Fates
from storage.conversion.request import KAFKA, ROCKETMQ, Order, Selection
from storage.conversion.sources import KafkaSource, RocketMQSource, Source
from storage.display import encode_json
from storage.errors import DataError, InvalidArgument
from storage.files import FileSystem, write_durably
from storage.findings import finding
from storage.model import ConversionReport, ConvertedTopic, TopicPartition
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


def make_report(
    order: Order,
    selection: Selection,
    fates: Fates,
    counts: Mapping[TopicPartition, int],
    source: Source,
) -> ConversionReport:
    """Return the report; `counts` are the records of each source partition that are in the target."""
    topics = [
        ConvertedTopic(
            topic=topic,
            name=selection.names[topic],
            partitions=len(numbers),
            records=sum(counts.get(TopicPartition(topic, number), 0) for number in numbers),
        )
        for topic, numbers in selection.topics.items()
    ]
    return ConversionReport(
        source=str(order.source),
        target=str(order.target),
        backend=KAFKA if order.to == ROCKETMQ else ROCKETMQ,
        to=order.to,
        records=sum(counts.values()),
        topics=topics,
        left_out=fates.left_out.notes(),
        encoded=fates.encoded.notes(),
        moved=fates.moved.notes(),
        hidden=fates.hidden.notes(),
        findings=source.findings(),
    )


def write_report(fs: FileSystem, root: Path, report: ConversionReport) -> None:
    """Write the report to the new store; durable on return."""
    write_durably(fs, root / REPORT, msgspec.json.format(encode_json(report)))
    fs.sync_dir(root)
