"""Random half messages, ends, checks, stops, kills and power losses, against a plain dictionary."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from storage import HalfEnd, HalfOutcome, Prepared, RawMessage, Record, TopicPartition
from storage.files import OverlayFileSystem
from storage.rocketmq.format import half_message
from storage.rocketmq.format.properties import encode_properties
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.transactions import HALF, MAX_TIME
from tests.contract.harness import ManualClock
from tests.robustness.crash.explorer import choices
from tests.robustness.crash.recorder import Recorder
from tests.unit.rocketmq.workshop import ROOT, Workshop

CHECKS = 3
TIMEOUT_MS = 10_000
SETTINGS = {"transactionCheckMax": str(CHECKS), "transactionTimeOut": str(TIMEOUT_MS)}
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
NAMES = st.sampled_from(["a", "b", "c"])


class Model:
    """One transaction: its values by partition, when each was prepared, and how often it was checked."""

    def __init__(self) -> None:
        self.values: list[tuple[TopicPartition, bytes]] = []
        self.prepared_ms: list[int] = []
        self.checks: list[int] = []
        self.outcome: HalfOutcome | None = None


class HalfMessageMachine(RuleBasedStateMachine):
    """One store, and the dictionary of its transactions. An id is used once: a name gets a number."""

    store: RocketMQStore

    @initialize()
    def begin(self) -> None:
        """Create the store."""
        self.clock = ManualClock()
        fs = Recorder(OverlayFileSystem(clock=self.clock))
        fs.make_dir(ROOT.parent)
        fs.sync_dir(ROOT.parent.parent)
        self.open_on(fs)
        self.store.create_topic("t", len(PARTITIONS))
        self.store.flush()
        self.model: dict[str, Model] = {}
        self.round = dict.fromkeys("abc", 0)
        self.count = 0

    def open_on(self, fs: Recorder) -> None:
        self.fs = fs
        self.store = Workshop(fs, self.clock).open(SETTINGS)

    def of(self, name: str) -> tuple[str, Model]:
        """Return the transaction with this name, a new one if the last has ended."""
        known = self.model.get(f"{name}{self.round[name]}")
        if known is not None and known.outcome is not None:
            self.round[name] += 1
        one = f"{name}{self.round[name]}"
        return one, self.model.setdefault(one, Model())

    # ---- producers ----

    @rule(name=NAMES, at=st.sampled_from(PARTITIONS), size=st.integers(1, 300))
    def put(self, name: str, at: TopicPartition, size: int) -> None:
        """Append our half message, durably."""
        one, model = self.of(name)
        value = b"%d " % self.count + b"x" * size
        prepared = Prepared(one, "g", TIMEOUT_MS)
        target, half = self.store.half_messages.prepared(Record(None, value), at, prepared)
        self.store.append(target, [half], publish=False)
        self.note(model, at, value)

    @rule(at=st.sampled_from(PARTITIONS), has_id=st.booleans())
    def put_client(self, at: TopicPartition, has_id: bool) -> None:
        """Append the half message of a RocketMQ client: a transaction of its own."""
        value = b"%d" % self.count
        properties = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": at.topic}
        properties["REAL_QID"] = str(at.partition)
        one = f"half-0-{self.store.bounds(HALF).end if HALF.topic in self.store.topics() else 0}"
        if has_id:
            one = properties["UNIQ_KEY"] = f"U{self.count}"
        raw = RawMessage(value, encode_properties(properties), 0, 0, self.clock.now_ms)
        self.store.append_messages(HALF, [raw], publish=False)
        self.note(self.model.setdefault(one, Model()), at, value)

    def note(self, model: Model, at: TopicPartition, value: bytes) -> None:
        self.store.flush([HALF])
        model.values.append((at, value))
        model.prepared_ms.append(self.clock.now_ms)
        model.checks.append(0)
        self.count += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        """End one or two transactions; an ended one keeps its outcome."""
        names = st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=2, unique=True)
        chosen = data.draw(names)
        results = self.store.half_messages.end([HalfEnd(one, commit) for one in chosen])
        for one, ended in zip(chosen, results, strict=True):
            model = self.model[one]
            assert ended.error is None
            if model.outcome is None:
                model.outcome = HalfOutcome.COMMITTED if commit else HalfOutcome.ROLLED_BACK
            assert ended.outcome is model.outcome

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def broker_is_killed_in_a_commit(self, data: st.DataObject) -> None:
        """Deliver a client's message without an op record, as the broker does, and restart: the commit is completed."""
        waiting = [one for one, model in self.model.items() if model.outcome is None]
        clients = [
            one for one in waiting if one.startswith("U") and not any(self.model[one].checks)
        ]
        if not clients:
            return
        one = data.draw(st.sampled_from(clients))
        for record in self.store.read(HALF, self.store.bounds(HALF).start).records:
            found = self.store.message_by_id(self.store.record_id(HALF, record.locator))
            fields = half_message.half_fields(found.message, 0, record.offset)
            if fields.transaction_id == one:
                place = found.physical_offset
                target, raw = half_message.committed(found.message, fields, place, 18)
                self.store.append_messages(target, [raw])
                break
        self.restart()
        self.model[one].outcome = HalfOutcome.COMMITTED

    # ---- the server ----

    @rule(after_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def check(self, after_ms: int) -> None:
        """Let time pass, and check: what waits too long is counted, and discarded in the end."""
        self.clock.now_ms += after_ms
        checked = self.store.half_messages.check(self.clock.now_ms)
        written = 0
        for one, model in self.model.items():
            if model.outcome is not None:
                continue
            if any(times >= CHECKS for times in model.checks):
                model.outcome = HalfOutcome.DISCARDED
                assert one in checked.ended
                continue
            for index, prepared_ms in enumerate(model.prepared_ms):
                if self.clock.now_ms - prepared_ms > TIMEOUT_MS:
                    model.checks[index] += 1
                    written += 1
        assert checked.checked == written

    @rule()
    def restart(self) -> None:
        """Stop cleanly and start."""
        self.store.close()
        self.open_on(self.fs)

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        """Be killed, or lose the power: of the unsynced changes some are kept. Then start."""
        dice = Random(seed)
        _, choice = dice.choice(list(choices(dice)))
        self.open_on(Recorder(OverlayFileSystem(self.fs.now().left(choice), clock=self.clock)))

    # ---- the dictionary ----

    @invariant()
    def says_the_same(self) -> None:
        """Compare the open transactions, the delivered and the discarded messages, and the outcomes."""
        if not hasattr(self, "store"):
            return
        found = self.store.half_messages.transactions()
        is_open = {
            one for one, model in self.model.items() if model.outcome is None and model.values
        }
        assert {one.id for one in found} - self.late() == is_open - self.late()
        for one in found:
            if one.id in is_open:
                model = self.model[one.id]
                assert (one.messages, one.checks) == (len(model.values), max(model.checks))
        for at in PARTITIONS:
            assert self.values(at) == self.wanted(HalfOutcome.COMMITTED, at)
        first, second = (self.wanted(HalfOutcome.DISCARDED, at) for at in PARTITIONS)
        assert self.values(MAX_TIME) == sorted(first + second)

    def late(self) -> set[str]:
        """Return the transactions whose outcome is fixed, but not written: the next check or end does it."""
        return {one for one, model in self.model.items() if model.outcome is HalfOutcome.COMMITTED}

    def values(self, at: TopicPartition) -> list[bytes]:
        if at.topic not in self.store.topics():
            return []
        return sorted(record.value or b"" for record in self.store.scan(at))

    def wanted(self, outcome: HalfOutcome, at: TopicPartition) -> list[bytes]:
        return sorted(
            value
            for model in self.model.values()
            if model.outcome is outcome
            for place, value in model.values
            if place == at
        )


HalfMessageMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None
)
TestHalfMessages = HalfMessageMachine.TestCase
