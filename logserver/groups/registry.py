"""Which groups have members, and of which kind: one kind per name.

Owns the rule that a name belongs to HTTP's consumer instances, to Kafka's classic protocol or to its new one, never to
two at once: each kind assigns partitions by its own rule, and their members would read the same partitions. A group
without members is of no kind: its offsets serve any. Must not know how a kind works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from logserver.errors import ConsumerState
from logserver.groups.classic.group import ClassicGroup
from logserver.groups.coordinator import Group
from logserver.groups.modern.group import ModernGroup

MEMBERS_NAMED: Final = 3  # in an error


class Registry(Collection[str]):
    """The names of all groups with members. `http`, `classic` and `modern` are filled by their owners.

    `classic` and `modern` also remember groups whose last member has left; a name is in one of them at most.
    """

    def __init__(self) -> None:
        self.http: dict[str, Group] = {}
        self.classic: dict[str, ClassicGroup] = {}
        self.modern: dict[str, ModernGroup] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.http or self._in_use(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self.http
        for groups in (self.classic, self.modern):
            for name, group in groups.items():
                if not group.is_idle:
                    yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def classic_in_use(self, name: str) -> ClassicGroup | None:
        """Return a group of the classic protocol that has members; None for any other name."""
        group = self.classic.get(name)
        return None if group is None or group.is_idle else group

    def modern_in_use(self, name: str) -> ModernGroup | None:
        """Return a group of the new protocol that has members; None for any other name."""
        group = self.modern.get(name)
        return None if group is None or group.is_idle else group

    def _in_use(self, name: str) -> ClassicGroup | ModernGroup | None:
        """Return a group of Kafka's protocol that has members, of either kind."""
        return self.classic_in_use(name) or self.modern_in_use(name)

    def remembers(self, name: str) -> bool:
        """Return whether the name has members, or is that of a group of Kafka's protocol whose last one has left."""
        return name in self.http or name in self.classic or name in self.modern

    def forget_idle(self, name: str) -> None:
        """Forget a group of Kafka's protocol without members: the name gets another kind."""
        for groups in (self.classic, self.modern):
            group = groups.get(name)
            if group is not None and group.is_idle:
                groups.pop(name).close()

    def check_open_to_http(self, name: str) -> None:
        """Raise ConsumerState if the name belongs to members that use Kafka's protocol."""
        group = self._in_use(name)
        if group is not None:
            raise ConsumerState(
                f"group {name!r} has {group.size} member{'s' if group.size > 1 else ''} that use Kafka's "
                "protocol: choose another name, or stop them first",
                group=name,
                members=group.size,
            )

    def check_empty(self, name: str) -> None:
        """Raise ConsumerState if the group has members, of any kind."""
        http, group = self.http.get(name), self._in_use(name)
        if http is not None:
            members, count = sorted(http.members), len(http.members)
        elif group is not None:
            members, count = list(group.member_ids()), group.size
        else:
            return
        left_out = count - len(members[:MEMBERS_NAMED])
        more = f" and {left_out} more" if left_out else ""
        raise ConsumerState(
            f"group {name!r} has {count} member{'s' if count > 1 else ''} "
            f"({', '.join(members[:MEMBERS_NAMED])}{more}): delete them first",
            group=name,
            members=count,
        )
