"""The two backends side by side: a store of each that takes the same workload and is asked the same questions.

Owns how a side is opened, fed, stopped in every way, and asked; must not know what the answers should be (workload.py).
Files are small, so that segments, commit log, queues and index roll many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage import StoreOptions, TopicPartition, convert_store
from tests.comparison.workload import TOPICS, Answers, Step, Workload, partitions
from tests.contract.flavours import KAFKA, SMALL_ROCKETMQ, Flavour
from tests.contract.harness import StoreFactory, copy_tree
from tests.faults.power import Power
from tests.stateful.answers import Outcome, content, found_everywhere

SMALL_KAFKA: Final = replace(
    KAFKA,
    settings={
        **KAFKA.settings,
        "internal.segment.bytes": str(16 << 10),
        "segment.index.bytes": "240",
        "index.interval.bytes": "300",
    },
)
FLAVOURS: Final = (SMALL_KAFKA, SMALL_ROCKETMQ)
PATH: Final = Path("/store")
CONVERTED: Final = Path("/converted")
FOUND_A_PAGE: Final = 50
SCANNED: Final = 400  # records looked at for a page
ADDED: Final = ("__", "UNIQ_KEY")  # begin the names of headers that conversion adds


class Side:
    """One backend's store, in a file system of its own in memory."""

    def __init__(self, flavour: Flavour, fs: Power | None = None) -> None:
        self.flavour = flavour
        self._factories: list[StoreFactory] = []
        self._begin(fs or Power())

    def _begin(self, fs: Power) -> None:
        self.fs = fs
        self._factories.append(StoreFactory(self.flavour, PATH, fs))
        self.store = self._factories[-1].open()

    @property
    def backend(self) -> str:
        return self.flavour.backend

    def make_topics(self) -> None:
        """Those of a workload."""
        for topic, count in TOPICS.items():
            self.store.create_topic(topic, count)

    def play(self, steps: Sequence[Step]) -> None:
        """Append step by step, the clock turned to each."""
        for step in steps:
            self._factories[-1].clock.now_ms = step.now_ms
            self.store.append(step.partition, step.records, compression=step.codec)
            if step.flush:
                self.store.flush()

    def close_and_open(self) -> None:
        """A clean stop and a start."""
        self.store = self._factories[-1].reopen(self.store)
        assert self.store.recovery.clean_shutdown

    def kill_and_open(self) -> None:
        """Another process starts on the files as they are now."""
        there = Power()
        copy_tree(self.fs, PATH, there, PATH)
        self._begin(there)
        assert not self.store.recovery.clean_shutdown

    def lose_power_and_open(self) -> None:
        """Another process starts on what was synced: of the rest there is nothing."""
        self._begin(Power(self.fs.cut()))
        assert not self.store.recovery.clean_shutdown

    def ends(self) -> dict[TopicPartition, int]:
        """The next offset of every partition."""
        return {p: self.store.bounds(p).end for p in partitions()}

    def send_what_is_missing(self, steps: Sequence[Step]) -> None:
        """As a client does that knows what it sent: each partition goes on at its end, in the middle of a step too."""
        there = self.ends()
        missing: list[Step] = []
        for step in steps:
            kept = min(there[step.partition], len(step.records))
            there[step.partition] -= kept
            if step.records[kept:]:
                missing.append(step._replace(records=step.records[kept:]))
        self.play(missing)

    def answers(self, workload: Workload) -> Answers:
        """What the store says to every question, but for what a conversion adds."""
        store = self.store
        hits = {
            q: store.offset_for_time(q.partition, q.time_ms, bound=q.bound)
            for q in workload.time_questions()
        }
        found = {
            q: found_everywhere(store, limit=FOUND_A_PAGE, max_scanned=SCANNED, **q._asdict())
            for q in workload.key_questions()
        }
        return Answers(
            records={p: [_plain(content(r)) for r in store.scan(p)] for p in partitions()},
            bounds={p: store.bounds(p) for p in partitions()},
            times={q: None if hit is None else hit[:2] for q, hit in hits.items()},
            found={q: list(map(_plain, rows)) for q, rows in found.items()},
        )

    def converted(self, flavour: Flavour) -> Side:
        """A side of the other backend: this one's store, converted, with nothing left out. Both are still open."""
        self.store.flush()
        report = convert_store(
            PATH,
            CONVERTED,
            to=flavour.backend,
            encode=True,
            options=StoreOptions(settings=self.flavour.settings),
            target_options=StoreOptions(settings=flavour.settings),
            fs=self.fs,
        )
        assert (report.left_out, report.moved) == ([], [])
        there = Power()
        copy_tree(self.fs, CONVERTED, there, PATH)
        return Side(flavour, there)

    def end(self) -> None:
        for factory in self._factories:
            factory.close_all()


def _plain(row: Outcome) -> Outcome:
    """A record's row without what a conversion adds: headers for what a message has beside its record, and the key
    among the lookup keys.
    """
    *before, key, value, headers, tag, lookup_keys = row
    assert isinstance(headers, list)
    assert isinstance(lookup_keys, list)
    kept = [header for header in headers if not header[0].startswith(ADDED)]
    others = [name for name in lookup_keys if name.encode() != key]
    return (*before, key, value, kept, tag, others)
