"""Descriptions of the calls of consumer instances. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from api.description.doc import Answer, Doc, Example, plain
from api.description.parameters import (
    ASYNC,
    CONSUMER_MAX_BYTES,
    CONSUMER_TIMEOUT,
    OF_PARTITION,
    OF_TOPIC,
)
from api.handlers.consumers import (
    CommitBody,
    ConsumerAnswer,
    NewConsumer,
    OffsetRow,
    OffsetsAnswer,
    PartitionsBody,
    PositionsBody,
    SubscriptionAnswer,
    SubscriptionBody,
)
from api.http.negotiation import V2_JSON
from api.records.rendering import RecordRow

PART: Final = "Consumers"
_ORDERS: Final = {"partitions": [{"topic": "orders", "partition": 0}]}
_DONE: Final = Answer(204, "Done.")


def _example(name: str = "default", *, body: Any = None, **more: Any) -> Example:
    media_type = None if body is None else V2_JSON
    return Example(name, media_type=media_type, body=body, **more)


CREATE: Final = Doc(
    id="createConsumer",
    tag=PART,
    summary="Create a consumer instance",
    about="A member of the group; it reads once it has a subscription or assigned partitions. Without a name it gets "
    "a generated one. Numbers and booleans may be text. Settings of Kafka's consumer that change what is read are applied "
    "or rejected with 42204. Unknown settings are ignored and named in `X-Warnings`. Idle instances are closed "
    "after the setting `consumer_idle_ms`.",
    bodies=plain(NewConsumer),
    body_required=False,
    answers=(
        Answer(
            200,
            "The instance.",
            plain(ConsumerAnswer),
            {"X-Warnings": "The settings that were ignored."},
        ),
    ),
    errors=(40902, 42203, 42204, 42901),
    examples=(
        _example(
            body={"name": "worker-2", "format": "json", "auto.offset.reset": "earliest"},
            answer={
                "instance_id": "worker-2",
                "base_uri": "http://localhost:8082/consumers/billing/instances/worker-2",
            },
        ),
    ),
)
DELETE: Final = Doc(
    id="deleteConsumer",
    tag=PART,
    summary="Delete a consumer instance",
    about="Its partitions go to other members at once. With auto-commit, delivered records are committed first.",
    answers=(Answer(204, "The instance is deleted."),),
    errors=(40403,),
    examples=(Example(status=204),),
)
SUBSCRIBE: Final = Doc(
    id="subscribe",
    tag=PART,
    summary="Subscribe to topics",
    about="By name, or by a regular expression that must match a topic's whole name. The instances of a group share "
    "the partitions. Topics that are created later are added. An empty list of topics ends the subscription.",
    bodies=plain(SubscriptionBody),
    answers=(_DONE,),
    errors=(40403, 40903),
    examples=(_example(body={"topics": ["orders"]}, status=204),),
)
GET_SUBSCRIPTION: Final = Doc(
    id="getSubscription",
    tag=PART,
    summary="The topics of the subscription",
    answers=(Answer(200, "The names, in order.", plain(SubscriptionAnswer)),),
    errors=(40403,),
    examples=(Example(answer={"topics": ["orders"]}),),
)
UNSUBSCRIBE: Final = Doc(
    id="unsubscribe",
    tag=PART,
    summary="End the subscription and the assignment of partitions",
    answers=(_DONE,),
    errors=(40403,),
    examples=(Example(status=204),),
)
ASSIGN: Final = Doc(
    id="assign",
    tag=PART,
    summary="Read exactly these partitions",
    about="Other members of the group may read the same partitions. An instance with a subscription cannot do this.",
    bodies=plain(PartitionsBody),
    answers=(_DONE,),
    errors=(40401, 40402, 40403, 40903, 50302),
    examples=(_example(body=_ORDERS, path={"instance": "worker-0"}, status=204),),
)
GET_ASSIGNMENTS: Final = Doc(
    id="getAssignments",
    tag=PART,
    summary="The partitions that the instance reads",
    answers=(Answer(200, "The partitions, in order.", plain(PartitionsBody)),),
    errors=(40403,),
    examples=(Example(answer=_ORDERS),),
)
POLL: Final = Doc(
    id="poll",
    tag=PART,
    summary="The next records",
    about="Records of all its partitions in turn. Positions move when the answer has been written to the connection: a "
    "client that disconnected before gets the same records again. Polls of one instance run one after the other; a new "
    "poll ends the wait of the poll before.",
    query=(CONSUMER_TIMEOUT, CONSUMER_MAX_BYTES),
    answers=(
        Answer(200, "The records; an empty list after the timeout.", plain(Sequence[RecordRow])),
    ),
    errors=(40403, 40601, 40903, 41601, 50010, 50302),
    examples=(
        Example(
            query={"timeout": "1000", "max_bytes": "300000"},
            headers={"Accept": "application/vnd.kafka.binary.v2+json"},
            answer=[
                {
                    "topic": "orders",
                    "partition": 0,
                    "offset": offset,
                    "timestamp": 1760000000000 + offset,
                    "key": key,
                    "value": value,
                    "headers": [],
                }
                for offset, (key, value) in enumerate(
                    (("ImsxIg==", "eyJ0b3RhbCI6MTJ9"), ("ImsyIg==", "eyJ0b3RhbCI6N30="))
                )
            ],
        ),
    ),
)
COMMIT: Final = Doc(
    id="commit",
    tag=PART,
    summary="Commit offsets",
    about="`offset` is the offset of the last consumed record: 3 commits 4, the next offset. Without a body: every "
    "record that was delivered to this instance. Answered when the store's flush mode is met.",
    query=(ASYNC,),
    bodies=plain(CommitBody),
    body_required=False,
    answers=(Answer(200, "Committed; the list is always empty.", plain(Sequence[OffsetRow])),),
    errors=(40401, 40402, 40403, 41601, 50302, 50701),
    examples=(
        _example(
            body={
                "offsets": [{"topic": "orders", "partition": 0, "offset": 1, "metadata": "mine"}]
            },
            answer=[],
        ),
        _example("every delivered record", answer=[]),
    ),
)
GET_COMMITTED: Final = Doc(
    id="getCommitted",
    tag=PART,
    summary="The committed offsets of the group",
    about="For the partitions in the body, or in the query, or that the instance reads. The offsets are the next to "
    "read; partitions without a commit are left out.",
    query=(OF_TOPIC, OF_PARTITION),
    bodies=plain(PartitionsBody),
    body_required=False,
    answers=(Answer(200, "The committed offsets.", plain(OffsetsAnswer)),),
    errors=(40401, 40402, 40403, 50302),
    examples=(
        _example(body=_ORDERS, answer={"offsets": []}),
        _example("by query", query={"topic": "orders"}, answer={"offsets": []}),
    ),
)
SEEK: Final = Doc(
    id="seek",
    tag=PART,
    summary="Continue at other offsets",
    about="`offsets` name the next record, `timestamps` the first record at or after a time.",
    bodies=plain(PositionsBody),
    answers=(_DONE,),
    errors=(40403, 40903, 41601),
    examples=(
        _example(body={"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}, status=204),
    ),
)


def _seek_to(call_id: str, place: str) -> Doc:
    return Doc(
        id=call_id,
        tag=PART,
        summary=f"Continue at the {place} of partitions",
        about="An empty list means every partition that the instance reads.",
        bodies=plain(PartitionsBody),
        body_required=False,
        answers=(_DONE,),
        errors=(40403, 40903),
        examples=(_example(body=_ORDERS, status=204),),
    )


SEEK_TO_BEGINNING: Final = _seek_to("seekToBeginning", "beginning")
SEEK_TO_END: Final = _seek_to("seekToEnd", "end")
