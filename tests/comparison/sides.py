"""The two backends compared: a store of each gets the same workload and answers the same questions.

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
from tests.robustness.crash.power import Power
from tests.robustness.stateful.answers import Outcome, content, found_everywhere

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
SCANNED: Final = 400  # records scanned for a page
ADDED: Final = ("__", "UNIQ_KEY")  # prefixes of the header names that conversion adds


class Side:
    """A backend's store, in a file system of its own in memory."""

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
        """Create the topics of a workload."""
        for topic, count in TOPICS.items():
            self.store.create_topic(topic, count)

    def play(self, steps: Sequence[Step]) -> None:
        """Append step by step, with the clock set for each step."""
        for step in steps:
            self._factories[-1].clock.now_ms = step.now_ms
            self.store.append(step.partition, step.records, compression=step.codec)
            if step.flush:
                self.store.flush()

    def close_and_open(self) -> None:
        """Stop cleanly and start again."""
        self.store = self._factories[-1].reopen(self.store)
        assert self.store.recovery.clean_shutdown

    def kill_and_open(self) -> None:
        """Start another process on the files as they are now."""
        there = Power()
        copy_tree(self.fs, PATH, there, PATH)
        self._begin(there)
        assert not self.store.recovery.clean_shutdown

    def lose_power_and_open(self) -> None:
        """Start another process on the synced data; all other data is lost."""
        self._begin(Power(self.fs.cut()))
        assert not self.store.recovery.clean_shutdown

    def ends(self) -> dict[TopicPartition, int]:
        """Return the next offset of every partition."""
        return {p: self.store.bounds(p).end for p in partitions()}

    def send_what_is_missing(self, steps: Sequence[Step]) -> None:
        """Append the missing records, as a client that knows what it sent: each partition continues at its end, which
        may be in the middle of a step.
        """
        there = self.ends()
        missing: list[Step] = []
        for step in steps:
            kept = min(there[step.partition], len(step.records))
            there[step.partition] -= kept
            if step.records[kept:]:
                missing.append(step._replace(records=step.records[kept:]))
        self.play(missing)

    def answers(self, workload: Workload) -> Answers:
        """Return the store's answers to every question, without the additions of a conversion."""
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
        """Convert the store without any loss and return a side of the other backend. Both sides stay open."""
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
    """Return a record's row without the additions of a conversion: headers for the other fields of a message, and the
    key among the lookup keys.
    """
    *before, key, value, headers, tag, lookup_keys = row
    assert isinstance(headers, list)
    assert isinstance(lookup_keys, list)
    kept = [header for header in headers if not header[0].startswith(ADDED)]
    others = [name for name in lookup_keys if name.encode() != key]
    return (*before, key, value, kept, tag, others)
