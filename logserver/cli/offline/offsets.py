"""`logserver offsets`: the first and the next offset of partitions, or the first offset at or after a time.

Owns the shapes {topic, partition, earliest, latest} and {topic, partition, offset, timestamp}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from logserver.cli.auth_options import Access, access_options
from logserver.cli.offline.findings import end_with
from logserver.cli.options import (
    opened,
    partition_option,
    place_argument,
    selected,
    set_option,
    time_option,
    topic_option,
)
from logserver.cli.output import (
    TABLE,
    Row,
    output_option,
    write_document,
    write_rows,
)
from logserver.remedies import Inspected
from storage import SupportsInspect, TopicPartition
from storage.errors import UnknownPartition, UnknownTopic


@click.command("offsets")
@place_argument
@topic_option
@partition_option
@time_option("--time", "time_ms", about="Look up this time (ms or ISO 8601).")
@set_option
@access_options
@output_option
def command(
    place: Path | str,
    *,
    topic: str | None,
    partition: int | None,
    time_ms: int | None,
    settings: Mapping[str, str],
    access: Access,
    output: str,
) -> None:
    """Print the first and the next offset of the partitions in PATH, or of a running server at URL.

    With --time, print the first record at or after that time. Without such a record: the next offset, with a null
    timestamp.
    """
    if isinstance(place, str):
        from logserver.cli.online import client_options

        wanted = client_options.Partitions(topic, partition, time_ms)
        client_options.offsets(place, wanted, access=access, output=output)
        return
    with opened(place, settings) as (inspector, _):
        addresses = _chosen(inspector, topic, partition)
        rows = [_row(inspector, address, time_ms) for address in addresses]
        if len(rows) == 1 and output != TABLE:
            write_document(rows[0], output)
        else:
            write_rows([rows], output)
        end_with(inspector.findings(), Inspected(place, settings))


def _chosen(
    inspector: SupportsInspect, topic: str | None, partition: int | None
) -> Sequence[TopicPartition]:
    found = selected(inspector, topic, partition)
    if found or (topic is None and partition is None):
        return found
    of_topic = selected(inspector, topic, None)
    if partition is None or not of_topic:
        raise UnknownTopic(topic or "")
    raise UnknownPartition(topic or "any", partition, len(of_topic))


def _row(inspector: SupportsInspect, address: TopicPartition, time_ms: int | None) -> Row:
    place = {"topic": address.topic or None, "partition": address.partition}
    bounds = inspector.bounds(address)
    if time_ms is None:
        return {**place, "earliest": bounds.start, "latest": bounds.end}
    found = inspector.offset_for_time(address, time_ms)
    if found is None:
        return {**place, "offset": bounds.end, "timestamp": None}
    return {**place, "offset": found.offset, "timestamp": found.timestamp_ms}
