"""The guarantee for any damage: no record is invented, and every missing record is named by some report.

Owns the comparison of a damaged store with its undamaged original: verify, dump, salvage, a read-only and a writable
start. A case returns one sentence for each violation; none if the guarantee holds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storage import Finding, LogStore, Loss, TopicPartition
from storage.errors import (
    InvalidArgument,
    InvalidConfig,
    IoFailure,
    StorageError,
    StoreFenced,
    UnsupportedFormat,
)
from storage.files.fs import FileSystem
from storage.findings import catalogue
from tests.damage import sources
from tests.damage.harm import Damage
from tests.damage.sources import ROOT, SALVAGED, Rows, Source, Truth, served
from tests.workers import worker_processes

# Findings about files that are derived from the log: they do not mean that a record is missing.
DERIVED = frozenset({"indexes", "rocketmq-index"})
TORN_TAIL = "torn-tail"
BEHIND_END = "log-file-behind-end"
BEGINS_LATE = "log-begins-late"
NO_GOOD_RECORD = re.compile(
    r"no good record at physical offset (\d+), and a good one follows at (\d+)"
)
SHOWN = 3


class Case(NamedTuple):
    """One damaged store."""

    number: int
    source: Source
    truth: Truth
    damage: Damage

    def __str__(self) -> str:
        return f"case {self.number}: {self.source.backend} {self.source.name}: {'; '.join(self.damage.story)}"


def case(backend: str, seed: str, number: int) -> Case:
    """Return the damaged store of this seed and number."""
    rng = random.Random(f"{seed} {backend} {number}")
    weights = sources.WEIGHTS[backend]
    (name,) = rng.choices(list(weights), list(weights.values()))
    clean = rng.random() < 0.5
    source = sources.source(backend, name, clean=clean)
    damage = Damage(source.disk.copy(), rng)
    damage.strike()
    return Case(number, source, sources.truth(backend, name, clean=clean), damage)


class Reports:
    """All reports about a store, with a lookup of the records that they name."""

    def __init__(self, case: Case) -> None:
        self._files = case.truth.files
        self._absent = absent_partitions(case)
        self._unknown = unknown_partitions(case, self._absent)
        self._emptied = emptied_tails(case)
        self.findings: list[Finding] = []
        self.losses: list[Loss] = []
        self.refusals: list[tuple[TopicPartition, StorageError]] = []
        self.whole = False  # the store as a whole was refused

    def add(self, findings: Iterable[Finding], losses: Iterable[Loss] = ()) -> Reports:
        """Add the reports of a tool or a start."""
        self.findings += findings
        self.losses += losses
        return self

    def name(self, key: tuple[TopicPartition, int]) -> bool:
        """Return whether some report names this record: by its partition, its file or a range of offsets."""
        address, offset = key
        return (
            self.whole
            or address in self._unknown
            or offset >= self._emptied.get(address, offset + 1)
            or any(self._names(finding, key) for finding in self.findings)
            or any(refused == address for refused, _ in self.refusals)
            or any(
                (loss.topic, loss.partition) == (address.topic, address.partition)
                and loss.first_offset <= offset
                and (loss.next_offset is None or offset < loss.next_offset)
                for loss in self.losses
            )
        )

    def _names(self, finding: Finding, key: tuple[TopicPartition, int]) -> bool:
        address, _ = key
        named = finding.topic == address.topic and finding.partition in (None, address.partition)
        if finding.severity == "info":
            # A partition of which no other trace exists, as of a deleted topic; or a queue that retention may have cut.
            return named and (finding.partition is not None or address in self._absent)
        if Path(finding.path).parent == ROOT and address in self._absent:
            return True  # the file that may have named it is damaged too
        if catalogue()[finding.code].group in DERIVED:
            return False
        path, place = self._files.get(key), Path(finding.path)
        if path is None or named:
            return named
        # If a log ends early, all its later files are lost too.
        ends_before = finding.code == TORN_TAIL and place.parent == path.parent and place < path
        # A log file that no record leads to: it is a copy, or the files before it are missing.
        after_gap = finding.code == BEHIND_END and place.parent == path.parent
        # The files before the first one are missing, together with their records.
        begins_late = finding.code == BEGINS_LATE and place.parent == path.parent and path < place
        if ends_before or after_gap or begins_late or place == path or place in path.parents:
            return True
        return place.parent == path.parent and _is_between(finding, path)


def _is_between(finding: Finding, path: Path) -> bool:
    """Return whether a finding names physical offsets without a good record, and the file begins between them."""
    named = NO_GOOD_RECORD.match(finding.message)
    return named is not None and int(named[1]) <= int(path.name) < int(named[2])


def absent_partitions(case: Case) -> Set[TopicPartition]:
    """Return the partitions of Kafka's format with a removed or renamed folder."""
    if case.source.backend != "kafka":
        return frozenset()
    disk = case.damage.disk
    known = {address for address, _ in case.truth.dumped}
    return {one for one in known if not disk.is_dir(ROOT / f"{one.topic}-{one.partition}")}


def unknown_partitions(case: Case, absent: Set[TopicPartition]) -> Set[TopicPartition]:
    """Return the absent partitions that no file names, so that they look as if they had never existed.

    For such a partition none of these exists:

    - a line in a checkpoint;
    - a later partition of the topic;
    - a configuration of the topic, if the topic is absent as a whole.
    """
    files = case.damage.disk.files()
    text = _text_of_root({Path(path): data for path, data in files})
    there = {address for address, _ in case.truth.dumped} - absent

    def is_known(one: TopicPartition) -> bool:
        numbers = [other.partition for other in there if other.topic == one.topic]
        name = re.escape(one.topic.encode())
        return (
            re.search(rb"(?m)^%s %d " % (name, one.partition), text) is not None
            or any(number > one.partition for number in numbers)
            or (not numbers and b'"%s"' % one.topic.encode() in text)
        )

    return {one for one in absent if not is_known(one)}


def _text_of_root(files: Mapping[Path, bytes]) -> bytes:
    """Return the text of the checkpoints and configurations. No server reads a file with another name."""
    return b"\n".join(
        data
        for path, data in files.items()
        if path.parent == ROOT and not path.name.startswith("old-")
    )


def emptied_tails(case: Case) -> Mapping[TopicPartition, int]:
    """Return where partitions of a killed store of Kafka's format end if their last segment is empty and nothing names
    its records: its indexes hold zeros, and no checkpoint a higher offset. A segment that was just begun looks so too.
    """
    disk = case.damage.disk
    if case.source.backend != "kafka" or disk.exists(ROOT / ".kafka_cleanshutdown"):
        return {}
    files = {Path(path): data for path, data in disk.files()}
    text = _text_of_root(files)
    found = {}
    for one in {address for address, _ in case.truth.dumped}:
        folder = ROOT / f"{one.topic}-{one.partition}"
        last = max((p for p in files if p.parent == folder and p.suffix == ".log"), default=None)
        if last is None or files[last]:
            continue
        indexes = (files.get(last.with_suffix(suffix), b"") for suffix in (".index", ".timeindex"))
        line = rb"(?m)^%s %d (\d+)" % (re.escape(one.topic.encode()), one.partition)
        named = [int(number) for number in re.findall(line, text)]
        if not any(map(any, indexes)) and max(named, default=0) <= int(last.stem):
            found[one] = int(last.stem)
    return found


class _Check:
    """The checks of one case; each works on a copy of the damaged disk."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._source = case.source
        self._verified = Reports(case)
        self._found: list[str] = []
        self.refused = False

    def broken(self) -> Sequence[str]:
        """Return the violations of the guarantee."""
        return [f"{self._case}: {problem}" for problem in self._problems()]

    def _problems(self) -> Iterator[str]:
        """Run every check and yield its violations."""
        for look in (self._verify, self._dump, self._read_only, self._salvage, self._writable):
            name = look.__name__.strip("_")
            try:
                look()
            except StorageError as error:
                if self._may_refuse(error):
                    self._verified.whole = self._verified.whole or look == self._verify
                else:
                    yield f"{name} ended with {type(error).__name__}: {error}"
            except Exception as error:  # noqa: BLE001  # any other exception is a violation
                yield f"{name} broke with {type(error).__name__}: {error}"
            yield from self._found
            self._found.clear()

    def _may_refuse(self, error: StorageError) -> bool:
        """Return whether the store may be refused: its root, or the files that make it a store, cannot be read."""
        if isinstance(error, (UnsupportedFormat, InvalidArgument, InvalidConfig)):
            return (
                True  # also a setting that the only log file contradicts: the error names the file
            )
        return isinstance(error, IoFailure) and error.facts().get("path") == str(ROOT)

    def _view(self) -> FileSystem:
        return self._case.damage.view()

    def _verify(self) -> None:
        inspector = self._source.inspector(self._view())
        try:
            self._verified.add(inspector.verify())
        finally:
            inspector.close()

    def _dump(self) -> None:
        rows, findings = self._source.dumped(self._view())
        self._compare("dump", self._case.truth.dumped, rows, self._reports().add(findings))

    def _read_only(self) -> None:
        with self._source.open(self._view(), read_only=True) as store:
            got = served(store)
            reports = self._reports().add(store.recovery.findings, store.recovery.losses)
        reports.refusals += got.refusals
        self._compare("read-only", self._case.truth.served, got.rows, reports)

    def _salvage(self) -> None:
        view = self._view()
        inspector = self._source.inspector(view)
        try:
            report = inspector.salvage(SALVAGED)
        finally:
            inspector.close()
        rows, _ = self._source.dumped(view, SALVAGED)
        reports = self._reports().add(report.findings, report.losses)
        self._compare("salvage", self._case.truth.salvaged, rows, reports)
        if len(rows) > report.kept_records:
            self._found.append(
                f"salvage: {report.kept_records} kept by the report, {len(rows)} found"
            )

    def _writable(self) -> None:
        """Check a writable start.

        It may refuse and name the reason; otherwise it must name every record that it lost.
        """
        view = self._view()
        store = self._opened(view) or self._opened(view, accept_loss=True)
        if store is None:
            self.refused = True
            return
        try:
            got = served(store)
            reports = self._reports().add(store.recovery.findings, store.recovery.losses)
        finally:
            with suppress(StoreFenced):  # a file that it reads before writing may be unreadable
                store.close()
        reports.refusals += got.refusals
        self._compare("writable", self._case.truth.served, got.rows, reports)

    def _opened(self, view: FileSystem, *, accept_loss: bool = False) -> LogStore | None:
        try:
            return self._source.open(view, accept_loss=accept_loss)
        except StorageError:
            return None

    def _reports(self) -> Reports:
        reports = Reports(self._case)
        reports.add(self._verified.findings)
        reports.whole = self._verified.whole
        return reports

    def _compare(self, look: str, wanted: Rows, got: Rows, reports: Reports) -> None:
        invented = [key for key, payload in got.items() if wanted.get(key) != payload]
        payloads = {repr(row) for row in (*wanted.values(), *self._case.truth.logged)}
        strange = [key for key in invented if repr(got[key]) not in payloads]
        self._tell(f"{look}: records that were never written", strange)
        # A logged record that was not served before is not moved: a log start that is wrong by one restores it.
        present = {repr(row) for row in wanted.values()}
        moved = [key for key in invented if repr(got[key]) in present]
        # The folder may have been renamed: then the report names the partition that lost its folder.
        homes: dict[str, list[tuple[TopicPartition, int]]] = {}
        for key, row in wanted.items():
            homes.setdefault(repr(row), []).append(key)
        moved = [
            key for key in moved if not any(map(reports.name, homes.get(repr(got[key]), [key])))
        ]
        self._tell(f"{look}: records at another place, unreported", _unnamed(moved, reports))
        missing = [key for key in wanted if key not in got]
        self._tell(f"{look}: missing, unreported", _unnamed(missing, reports))

    def _tell(self, what: str, keys: Sequence[tuple[TopicPartition, int]]) -> None:
        if keys:
            shown = ", ".join(f"{at.topic}-{at.partition}@{offset}" for at, offset in keys[:SHOWN])
            self._found.append(f"{what}: {len(keys)}: {shown}")


def _unnamed(
    keys: Sequence[tuple[TopicPartition, int]], reports: Reports
) -> Sequence[tuple[TopicPartition, int]]:
    return [key for key in keys if not reports.name(key)]


@dataclass
class Tally:
    """The results of some cases."""

    cases: int = 0
    refused: int = 0  # writable starts, also with `accept_loss`
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally."""
        self.cases += other.cases
        self.refused += other.refused
        self.broken += other.broken


def run(backend: str, seed: str, numbers: Iterable[int]) -> Tally:
    """Check these cases."""
    tally = Tally()
    for number in numbers:
        check = _Check(case(backend, seed, number))
        tally.broken += check.broken()
        tally.cases += 1
        tally.refused += check.refused
    return tally


def run_in_processes(backend: str, seed: str, first: int, count: int, *, workers: int) -> Tally:
    """Check `count` cases from number `first` on, in several processes."""
    total = Tally()
    shares = [range(first + worker, first + count, workers) for worker in range(workers)]
    with worker_processes(workers) as pool:
        for tally in pool.map(run, [backend] * workers, [seed] * workers, shares):
            total.add(tally)
    return total
