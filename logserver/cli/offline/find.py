"""`logserver find`: find records by key, id, tag, text or time.

Owns the options; must not search, which is storage's job. Prints rows as `dump` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from logserver.cli.auth_options import Access, access_options
from logserver.cli.offline.dump import short_messages
from logserver.cli.offline.findings import all_option, end_with
from logserver.cli.options import (
    opened,
    place_argument,
    set_option,
    time_option,
    topic_option,
)
from logserver.cli.output import TABLE, output_option, within_limit, write_rows
from logserver.remedies import Inspected
from storage import FindQuery


@click.command("find", epilog="Example: logserver find data --topic orders --key ann")
@place_argument
@topic_option
@click.option("--key", metavar="K", help="The record's key, or one of its lookup keys.")
@click.option(
    "--id", "record_id", metavar="ID", help="TOPIC:PARTITION:OFFSET; of RocketMQ the offset id."
)
@click.option("--unique-id", metavar="U", help="The producer's own id (not in Kafka).")
@click.option("--tag", metavar="G", help="The record's tag (Kafka: header TAGS).")
@click.option("--grep", metavar="TEXT", help="Text in the value or key.")
@time_option("--from", "from_ms", about="Only at or after this time (ms or ISO 8601).")
@time_option("--to", "to_ms", about="Only at or before this time.")
@click.option(
    "--limit", type=int, default=32, show_default=True, help="At most this number of records."
)
@click.option(
    "--raw", is_flag=True, help="Print the key index's entries, not the records (not in Kafka)."
)
@all_option
@set_option
@access_options
@output_option
def command(
    place: Path | str,
    *,
    shows_all: bool,
    settings: Mapping[str, str],
    access: Access,
    output: str,
    **wanted: str | int | None,
) -> None:
    """Find records in PATH (a store, a directory in it or a log file), or in a running server at URL.

    Give one of --key, --id, --unique-id, --tag and --grep, or only times.

    The search continues after damage, and reports it on standard error. It reports also that it stopped at --limit.
    --from and --to compare a record's timestamp; with RocketMQ, the time at which the message was stored.
    """
    query = FindQuery(**wanted)  # type: ignore[arg-type]  # the options above have its fields' types
    query.check()
    if isinstance(place, str):
        from logserver.cli.online import client_options

        client_options.find(place, query, access=access, output=output)
        return
    with opened(place, settings) as (inspector, _):
        runs = within_limit(([row] for row in inspector.find(query)), query.limit, output)
        write_rows(short_messages(runs) if output == TABLE else runs, output)
        end_with(inspector.findings(), Inspected(place, settings), shows_all=shows_all)
