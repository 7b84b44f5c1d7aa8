"""Salvaging a store in a test, and checks that hold for every report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from storage import Finding, Loss, LossReport, StoreOptions, open_inspector
from storage.contract import Clock, no_progress
from storage.files import FileSystem, RealFileSystem

REPORT = ".logserver.salvage.json"


def salvage(
    path: Path,
    target: Path,
    settings: Mapping[str, str],
    *,
    fs: FileSystem | None = None,
    clock: Clock = lambda: 1_000,
) -> LossReport:
    """Salvage a store; return the report, which must equal the report kept in the new store."""
    fs = fs or RealFileSystem()
    inspector = open_inspector(path, StoreOptions(settings=settings), fs=fs, clock=clock)
    try:
        report = inspector.salvage(target, progress=no_progress)
    finally:
        inspector.close()
    kept = json.loads(fs.read_bytes(target / REPORT))
    assert [kept["store"], kept["target"]] == [report.store, report.target]
    assert len(kept["losses"]) == len(report.losses)
    check_sums(report)
    return report


def check_sums(report: LossReport) -> None:
    """Check that every byte of the log is counted once."""
    places = {(loss.path, loss.position): loss.size_bytes for loss in report.losses}
    assert report.lost_bytes == sum(places.values())
    assert report.log_bytes == report.kept_bytes + report.blank_bytes + report.lost_bytes
    assert report.kept_bytes >= sum(kept.size_bytes for kept in report.kept)


def lost_offsets(losses: list[Loss] | tuple[Loss, ...], topic: str, partition: int) -> set[int]:
    """Return the offsets of a partition that are reported lost."""
    return {
        offset
        for loss in losses
        if (loss.topic, loss.partition) == (topic, partition) and loss.next_offset is not None
        for offset in range(loss.first_offset, loss.next_offset)
    }


def verified(
    path: Path, settings: Mapping[str, str], *, fs: FileSystem | None = None
) -> list[Finding]:
    """Return the findings of `verify` for a store."""
    options = StoreOptions(settings=settings)
    inspector = open_inspector(path, options, fs=fs or RealFileSystem(), clock=lambda: 2_000)
    try:
        return list(inspector.verify())
    finally:
        inspector.close()
