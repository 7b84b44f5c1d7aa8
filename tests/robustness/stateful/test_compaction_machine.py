"""Random appends, transactions, cleanings, stops and crashes of a compacted topic, against a plain dictionary."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.files import OverlayFileSystem
from storage.kafka.store import KafkaStore
from tests.robustness.crash.compacted import DELETE_RETENTION_MS, CompactedTopic
from tests.robustness.crash.explorer import choices
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.workload import PATH

KEYS = st.sampled_from([b"", b"k1", b"k2", b"k3"])
VALUES = st.binary(min_size=1, max_size=150)
ITEMS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)


class CompactionMachine(RuleBasedStateMachine):
    """One store with a compacted topic, and the dictionary of what it says."""

    store: KafkaStore

    @initialize()
    def begin(self) -> None:
        """Create the store."""
        self.topic = CompactedTopic()
        self.fs = Recorder(OverlayFileSystem(clock=self.topic.clock))
        self.fs.make_dir(PATH.parent)
        self.fs.sync_dir(PATH.parent.parent)
        self.store = self.topic.open(self.fs)
        self.store.flush()

    @rule(items=st.dictionaries(KEYS, st.none() | VALUES, min_size=1, max_size=3))
    def put(self, items: dict[bytes, bytes | None]) -> None:
        """Append records and tombstones."""
        self.topic.put(self.store, items)

    @rule(items=ITEMS, producer_id=st.sampled_from([5, 6]))
    def put_in_sequence(self, items: dict[bytes, bytes], producer_id: int) -> None:
        """Append as an idempotent producer."""
        self.topic.put_in_sequence(self.store, producer_id, items)

    @rule(items=ITEMS, producer_id=st.sampled_from([8, 9]), commit=st.booleans())
    def transact(self, items: dict[bytes, bytes], producer_id: int, commit: bool) -> None:
        """Append a transaction."""
        self.topic.transact(self.store, producer_id, items, commit=commit)

    @rule(after_ms=st.sampled_from([1, 1000, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS]))
    def wait(self, after_ms: int) -> None:
        """Let time pass: tombstones and markers reach their horizon."""
        self.topic.clock.now_ms += after_ms

    @rule()
    def clean(self) -> None:
        """Compact all that is due."""
        self.topic.clean(self.store)

    @rule(max_bytes=st.integers(1, 2000))
    def clean_a_part(self, max_bytes: int) -> None:
        """Go on with a cleaning."""
        self.store.compact(self.topic.clock.now_ms, max_bytes=max_bytes)

    @rule()
    def restart(self) -> None:
        """Stop cleanly and start."""
        self.store.close()
        self.store = self.topic.open(self.fs)

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        """Lose the power: of the unsynced changes some are kept. Then start."""
        dice = Random(seed)
        _, choice = dice.choice(list(choices(dice)))
        self.fs = Recorder(OverlayFileSystem(self.fs.now().left(choice), clock=self.topic.clock))
        self.store = self.topic.open(self.fs)

    @invariant()
    def says_the_same(self) -> None:
        """Compare the topic with the dictionary."""
        if hasattr(self, "store"):
            assert self.topic.problem(self.store) is None


CompactionMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None
)
TestCompaction = CompactionMachine.TestCase
