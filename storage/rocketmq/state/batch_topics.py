"""Topics with batch queues (BatchConsumeQueue): not offered here, and left unchanged.

Owns the error and the findings for them; must not decide which topics they are: the directory does. Their
records are in the common commit log, but their queue entries in `batchconsumequeue`, one entry per batch of
records. A folder in `consumequeue` for such a topic keeps the RocketMQ broker from starting
(ConsumeQueueStore.queueTypeShouldBe), so logserver never creates one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from storage.errors import NotOffered
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.state.root import StoreDirectory

CODE: Final = "batch-topic"


def refusal(topic: str) -> NotOffered:
    """Return the error for a request to read, write or change such a topic."""
    return NotOffered(
        f"topic {topic!r} has batch queues (queue.type=BatchCQ), which are not offered",
        feature="queue.type=BatchCQ",
    )


def findings(directory: StoreDirectory, topics: Iterable[str]) -> Iterator[Finding]:
    """Yield findings: batch-queue topics exist, and any of their files are in the wrong folder."""
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
