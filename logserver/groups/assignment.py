"""The assignment of partitions to the members of a group: pure.

Owns the rule; must not know clients, offsets or IO. The same input gives the same answer. The rule guarantees:
- Every partition of a subscribed topic has exactly one owner, and this member subscribes to the topic.
- No single partition could move to a member with at least two partitions fewer. So members with the same
  topics differ by one partition at most.
- A member keeps the partitions that it had, unless balance needs them elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from storage import TopicPartition


def assign(
    wanted: Mapping[str, Collection[str]],
    partitions: Mapping[str, Sequence[int]],
    *,
    previous: Mapping[str, Collection[TopicPartition]],
) -> dict[str, tuple[TopicPartition, ...]]:
    """Return the partitions of each member, in order.

    `wanted`: member -> topics; `partitions`: topic -> its partitions (a topic without an entry has none); `previous`:
    the partitions that members had before.
    """
    plan = _Plan(wanted, partitions)
    plan.keep(previous)
    plan.give()
    plan.even_out()
    return plan.owned()


class _Plan:
    """An assignment in progress: the owner of each partition and the number of partitions of each member."""

    def __init__(
        self, wanted: Mapping[str, Collection[str]], partitions: Mapping[str, Sequence[int]]
    ) -> None:
        self._wanted = wanted
        candidates: dict[str, list[str]] = defaultdict(list)
        for member in sorted(wanted):
            for topic in wanted[member]:
                candidates[topic].append(member)
        # Topics with the same members share one tuple of these members, in order of their names.
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._candidates = {
            topic: shared.setdefault(tuple(members), tuple(members))
            for topic, members in candidates.items()
        }
        # The key is the id() of the candidates' tuple; cleared when a load changes.
        self._least_loaded: dict[int, str] = {}
        self._partitions = [
            TopicPartition(topic, number)
            for topic in sorted(self._candidates)
            for number in partitions.get(topic, ())
        ]
        self._owners: dict[TopicPartition, str] = {}
        self._loads = dict.fromkeys(sorted(wanted), 0)

    def keep(self, previous: Mapping[str, Collection[TopicPartition]]) -> None:
        """Let each member keep a partition that it had, if the partition exists and the member still subscribes to
        its topic.
        """
        there = set(self._partitions)
        for member in self._loads:
            for partition in previous.get(member, ()):
                if (
                    partition in there
                    and partition not in self._owners
                    and partition.topic in self._wanted[member]
                ):
                    self._own(partition, member)

    def give(self) -> None:
        """Give each free partition to its least loaded candidate; partitions with few candidates come first."""
        free = (partition for partition in self._partitions if partition not in self._owners)
        for partition in sorted(free, key=self._rarity):
            self._own(partition, self._least(partition.topic))

    def even_out(self) -> None:
        """Move single partitions while that balances loads. Each move lowers the sum of the squared loads, so the
        loop ends.
        """
        moved = True
        while moved:
            moved = False
            for partition in self._partitions:
                owner = self._owners[partition]
                other = self._least(partition.topic)
                if self._loads[owner] - self._loads[other] >= 2:
                    self._loads[owner] -= 1
                    self._own(partition, other)
                    moved = True

    def owned(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the partitions of each member."""
        owned: dict[str, list[TopicPartition]] = {member: [] for member in self._loads}
        for partition in self._partitions:
            owned[self._owners[partition]].append(partition)
        return {member: tuple(partitions) for member, partitions in owned.items()}

    def _own(self, partition: TopicPartition, member: str) -> None:
        self._owners[partition] = member
        self._loads[member] += 1
        self._least_loaded.clear()

    def _rarity(self, partition: TopicPartition) -> int:
        return len(self._candidates[partition.topic])

    def _least(self, topic: str) -> str:
        """Return the candidate with the fewest partitions; among equals the first by name."""
        candidates = self._candidates[topic]
        least = self._least_loaded.get(id(candidates))
        if least is None:
            least = min(candidates, key=self._loads.__getitem__)
            self._least_loaded[id(candidates)] = least
        return least
