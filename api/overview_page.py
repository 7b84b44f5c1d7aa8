"""The overview of the server as one HTML page, which loads no other resource and runs no script.

Owns its form, with `templates/overview.html.j2`: links and the grouping of findings. Must not ask the store: it
shows one `Overview`. This module loads Jinja2, so it is imported when the page is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from api.html import render
from logserver.config import Settings
from logserver.remedies import Inspected, help_command, place_of
from logserver.service.overview import Overview, TopicOverview
from storage import Finding, LogStore
from storage.display import one_line
from storage.errors import MissingPartitions
from storage.findings import catalogue

STYLE: Final = "page.css"
LISTED: Final = 32  # partitions of a topic or group that are shown with their offsets
KINDS: Final = 20  # kinds of findings
CASES: Final = 3  # findings of a kind
NEWEST: Final = 100  # records that a link shows
_SEVERITIES: Final = ("error", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsOfKind:
    """Findings of one code and severity: the first of them, and the advice for all."""

    severity: str
    code: str
    meaning: str
    remedy: str
    command: str | None
    shown: Sequence[tuple[str, str]]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """The facts of a server that do not change while it runs."""

    settings: Settings
    store: LogStore
    started_ms: int
    uptime_ms: int


def page_of(overview: Overview, facts: PageFacts) -> bytes:
    """Return the whole page as HTML. Takes a while for many partitions: call it in a thread."""
    kinds = kinds_of(facts.store.recovery.findings, facts.settings)
    return render(
        "overview.html.j2",
        STYLE,
        look=overview,
        facts=facts,
        store=facts.store,
        settings=facts.settings,
        recovery=facts.store.recovery,
        compiled=overview.stats.details.get("compiled"),
        kinds=kinds[:KINDS],
        kinds_left_out=max(len(kinds) - KINDS, 0),
        links=facts.settings.token_file is None,
        listed=LISTED,
        records_path=records_path,
        topic_path=topic_path,
        segment=segment,
        missing=missing_text,
        cursor=lambda text: urlencode({"cursor": text}),
    )


def kinds_of(findings: Sequence[Finding], settings: Settings) -> Sequence[FindingsOfKind]:
    """Return the findings by severity and code, errors first."""
    inspected = Inspected(settings.data, settings.set)
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: _SEVERITIES.index(one.severity)):
        grouped.setdefault((finding.severity, finding.code), []).append(finding)
    kinds = []
    for (severity, code), alike in grouped.items():
        kind = catalogue().get(code)
        kinds.append(
            FindingsOfKind(
                severity=severity,
                code=code,
                meaning="" if kind is None else kind.meaning,
                remedy="" if kind is None else kind.remedy,
                command=help_command(alike[0], inspected),
                shown=[(one_line(one.message), one_line(place_of(one))) for one in alike[:CASES]],
                count=len(alike),
            )
        )
    return kinds


# -- links: relative to the page, so that they work under the prefix of a proxy


def segment(name: str) -> str | None:
    """Return a name as a segment of a path; None if no URL can contain it."""
    if name in {"", ".", ".."}:
        return None
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        return None


def topic_path(topic: str) -> str | None:
    """Return the path of a topic."""
    name = segment(topic)
    return None if name is None else f"topics/{name}"


def records_path(topic: str, partition: int, offset: str) -> str | None:
    """Return the path of some records of a partition, as text in JSON."""
    path = topic_path(topic)
    query = urlencode({"offset": offset, "max_records": NEWEST, "format": "text"})
    return None if path is None else f"{path}/partitions/{partition}/records?{query}"


def missing_text(topic: TopicOverview) -> str | None:
    """Return the reason why some partitions of a topic are not served."""
    if not topic.info.missing:
        return None
    return one_line(MissingPartitions(topic.info.name, topic.info.missing).message)
