"""Topics whose queues are batch queues (BatchConsumeQueue): not offered here, and left as they are.

Owns what is said of them; which topics they are the directory tells. Their records lie in the one log
beside all others, but their units in `batchconsumequeue`, a unit for each run of records. A folder in
`consumequeue` for such a topic keeps the real broker from starting (ConsumeQueueStore.queueTypeShouldBe),
so none is ever made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from storage.errors import NotOffered
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.format import names

CODE: Final = "batch-topic"


def refusal(topic: str) -> NotOffered:
    """The error for whoever wants to read, write or change such a topic."""
    return NotOffered(
        f"topic {topic!r} has batch queues (queue.type=BatchCQ), which are not offered",
        feature="queue.type=BatchCQ",
    )


def findings(directory: StoreDirectory, topics: Iterable[str]) -> Iterator[Finding]:
    """That they are there, and what of them lies where it must not."""
    folders = directory.queue_folders()
    for topic in sorted(topics):
        yield finding(
            CODE,
            directory.path / names.BATCH_QUEUE / topic,
            topic=topic,
            message="a topic with batch queues (queue.type=BatchCQ): its records stay in the log, and "
            "are neither read nor written",
        )
        if topic in folders:
            yield finding(
                "wrong-queue-type",
                directory.consume_queue / topic,
                topic=topic,
                message="queues of a topic with batch queues: the real broker does not start with them",
            )
