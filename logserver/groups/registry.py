"""Which groups have members, and of which kind: one kind per name.

Owns the rule that a name belongs to HTTP's consumer instances or to Kafka's classic protocol, never to both at once:
the one is assigned by the server, the other by its leader, and both would read the same partitions. A group without
members is of no kind: its offsets serve either. Must not know how a kind works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from logserver.errors import ConsumerState
from logserver.groups.classic import ClassicGroup
from logserver.groups.coordinator import Group

MEMBERS_NAMED: Final = 3  # in an error


class Registry(Collection[str]):
    """The names of all groups with members. `http` and `classic` are filled by their owners.

    `classic` also remembers groups whose last member has left.
    """

    def __init__(self) -> None:
        self.http: dict[str, Group] = {}
        self.classic: dict[str, ClassicGroup] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.http or self.classic_in_use(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self.http
        for name, group in self.classic.items():
            if not group.is_idle:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def classic_in_use(self, name: str) -> ClassicGroup | None:
        """Return a group of the classic protocol that has members; None for any other name."""
        group = self.classic.get(name)
        return None if group is None or group.is_idle else group

    def check_open_to_http(self, name: str) -> None:
        """Raise ConsumerState if the name belongs to members that use Kafka's protocol."""
        group = self.classic_in_use(name)
        if group is not None:
            raise ConsumerState(
                f"group {name!r} has {group.size} member{'s' if group.size > 1 else ''} that use Kafka's "
                "protocol: choose another name, or stop them first",
                group=name,
                members=group.size,
            )

    def check_empty(self, name: str) -> None:
        """Raise ConsumerState if the group has members, of either kind."""
        http, classic = self.http.get(name), self.classic_in_use(name)
        if http is not None:
            members, count = sorted(http.members), len(http.members)
        elif classic is not None:
            members, count = list(classic.member_ids()), classic.size
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
