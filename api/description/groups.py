"""Descriptions of the group calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import Answer, Doc, Example, plain
from api.handlers.consumers import OffsetsAnswer
from api.handlers.groups import GroupAnswer, ResetGroup
from logserver.tokens import Scope

PART: Final = "Groups"
_JSON: Final = "application/json"
_RESET: Final = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0, "metadata": None}]}

LIST_GROUPS: Final = Doc(
    id="listGroups",
    tag=PART,
    summary="All groups",
    about="Groups with members or committed offsets.",
    answers=(Answer(200, "The names, in order.", plain(list[str])),),
    examples=(Example(answer=["accounting", "billing"]),),
)
GET_GROUP: Final = Doc(
    id="getGroup",
    tag=PART,
    summary="One group: members, committed offsets, lag",
    answers=(Answer(200, "The group.", plain(GroupAnswer)),),
    errors=(40405,),
    examples=(
        Example(
            path={"group": "accounting"},
            answer={
                "name": "accounting",
                "generation": 0,
                "lag": 1,
                "members": [],
                "partitions": [
                    {
                        "topic": "orders",
                        "partition": 0,
                        "committed": 1,
                        "metadata": "",
                        "beginning_offset": 0,
                        "end_offset": 2,
                        "lag": 1,
                        "instance_id": None,
                    }
                ],
            },
        ),
    ),
)
RESET_GROUP: Final = Doc(
    id="resetGroup",
    tag=PART,
    summary="Reset the offsets of a group",
    about="`to` is `earliest`, `latest`, a time or an exact next offset, for the partitions of `topic` (all, or "
    "`partitions`), without `topic` for every partition that the group has committed. Rejected while the group has "
    "members. A missing group is created.",
    bodies=plain(ResetGroup),
    answers=(Answer(200, "The next offsets after the reset.", plain(OffsetsAnswer)),),
    errors=(40401, 40402, 40405, 40903, 41601, 42203, 42901, 50302, 50701),
    examples=(
        Example(
            path={"group": "accounting"},
            media_type=_JSON,
            body={"to": "earliest"},
            answer=_RESET,
        ),
        Example(
            "to a time",
            path={"group": "accounting"},
            media_type=_JSON,
            body={"topic": "orders", "partitions": [0], "to": {"timestamp": 1760000000000}},
            answer=_RESET,
        ),
        Example(
            "to an offset",
            path={"group": "accounting"},
            media_type=_JSON,
            body={"topic": "orders", "to": {"offset": 1}},
            answer=_RESET,
        ),
    ),
)
DELETE_GROUP: Final = Doc(
    id="deleteGroup",
    tag=PART,
    summary="Delete a group's offsets",
    about="Rejected while it has members.",
    scope=Scope.ADMIN,
    answers=(Answer(204, "The group is deleted."),),
    errors=(40405, 40903, 50701),
    examples=(Example(path={"group": "accounting"}, status=204),),
)
