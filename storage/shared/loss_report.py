"""The report of lost data: written by a start that cuts a log, and by a salvage.

Owns the report's file and its path, the folder for the data that a start cuts, and the order of steps: both are on disk
before any byte is cut; must not know which data is lost.

    DIR.cut-TIME/report.json       next to the store, with the data that the start cut
    DIR/.logserver.salvage.json    in the new store that a salvage made
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from storage.coding.json_file import decode_json
from storage.display import encode_json
from storage.errors import Corrupt, IoFailure
from storage.files import FileSystem, write_durably
from storage.model import Loss, LossReport, TopicPartition

CUT_REPORT: Final = "report.json"
SALVAGE_REPORT: Final = ".logserver.salvage.json"


def keep_losses(
    fs: FileSystem, root: Path, now_ms: int, keep_aside: Callable[[Path], Sequence[Loss]]
) -> None:
    """Create `root`.cut-`now_ms` next to the store at `root`; durable on return.

    `keep_aside` copies the data to be cut durably into this folder, and returns the losses for the report.
    """
    kept_dir = root.parent / f"{root.name}.cut-{now_ms}"
    fs.make_dir(kept_dir)
    losses = keep_aside(kept_dir)
    report = LossReport(store=str(root), losses=losses, lost_bytes=lost_bytes(losses))
    write_report(fs, kept_dir / CUT_REPORT, report)
    fs.sync_dir(root.parent)


def lost_bytes(losses: Sequence[Loss]) -> int:
    """Return the number of bytes of all positions that the losses name, each position counted once."""
    return sum({(loss.path, loss.position): loss.size_bytes for loss in losses}.values())


def write_report(fs: FileSystem, path: Path, report: LossReport) -> None:
    """Write the report as JSON; durable on return."""
    write_durably(fs, path, msgspec.json.format(encode_json(report)))
    fs.sync_dir(path.parent)


def salvage_report(fs: FileSystem, root: Path) -> LossReport | None:
    """Return the report of the salvage that made the store at `root`; None if it is missing or cannot be read."""
    return _read_report(fs, root / SALVAGE_REPORT)


def known_losses(fs: FileSystem, *roots: Path) -> Mapping[TopicPartition, Sequence[Loss]]:
    """Return the losses of each partition, from the reports of the salvage that made the store and of the store's
    starts.
    """
    paths = [root / SALVAGE_REPORT for root in roots]
    for root in roots:
        if fs.exists(root.parent):
            entries = fs.list_dir(root.parent)
            kept = [name for name in entries if name.startswith(f"{root.name}.cut-")]
            paths += [root.parent / name / CUT_REPORT for name in kept]
    reports = (_read_report(fs, path) for path in paths)
    return by_partition(loss for report in reports if report is not None for loss in report.losses)


def by_partition(losses: Iterable[Loss]) -> Mapping[TopicPartition, Sequence[Loss]]:
    """Return the losses by partition, in their order."""
    found: defaultdict[TopicPartition, list[Loss]] = defaultdict(list)
    for loss in losses:
        found[TopicPartition(loss.topic, loss.partition)].append(loss)
    return found


def reported_ranges(losses: Sequence[Loss]) -> Sequence[range]:
    """Return the offset ranges that the losses of one partition name, in order; adjacent ranges are merged."""
    ranges: list[range] = []
    for loss in sorted(losses, key=lambda loss: loss.first_offset):
        if loss.next_offset is None:
            continue
        if ranges and loss.first_offset <= ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, max(ranges[-1].stop, loss.next_offset))
        else:
            ranges.append(range(loss.first_offset, loss.next_offset))
    return ranges


def is_reported(ranges: Sequence[range], first_offset: int, next_offset: int) -> bool:
    """Return whether a report names all of these offsets as lost; `ranges` come from reported_ranges."""
    at = bisect_right(ranges, first_offset, key=lambda r: r.start) - 1
    return at >= 0 and next_offset <= ranges[at].stop


def _read_report(fs: FileSystem, path: Path) -> LossReport | None:
    try:
        return decode_json(fs.read_bytes(path), LossReport) if fs.exists(path) else None
    except (Corrupt, IoFailure):
        return None
