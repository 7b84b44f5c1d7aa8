"""Kafka Streams, exactly once, against a server; refused where the store has no transactions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.wire.apps.programs import App, Reader, create, wait_for, write

pytestmark = [pytest.mark.java, pytest.mark.slow]

COMMIT_MS = 2000
WORDS = ("all", "streams", "lead", "to", "kafka", "and", "the", "hare", "runs", "to", "the", "sea")


def text(number: int, first: int = 0) -> list[str]:
    """Return lines of three words."""
    return [
        " ".join(WORDS[(line + step * step) % len(WORDS)] for step in range(3))
        for line in range(first, first + number)
    ]


def word_count(classpath: str, folder: Path, address: str, *configs: str) -> App:
    """Start the application; its state is in the folder."""
    given = (
        f"bootstrap.servers={address}",
        "application.id=app",
        f"state.dir={folder / 'state'}",
        f"commit.interval.ms={COMMIT_MS}",
        "session.timeout.ms=6000",
        *configs,
    )
    return App(classpath, folder / "streams.log", "WordCount", *given)


def test_streams_count_exactly_once(classpath: str, tmp_path: Path, address: str) -> None:
    """Each word is counted 1, 2, 3, ... without a gap or a repetition, though the application is killed and stopped.

    It is killed with a transaction open, which is rolled back. A new process reads its state from the changelog.
    """
    create(address, "lines", "counts")
    committed, everything = Reader(address, "counts"), Reader(address, "counts", "read_uncommitted")
    expected: Counter[str] = Counter()
    for turn in range(3):
        app = word_count(classpath, tmp_path, address)
        lines = text(300, first=300 * turn)
        expected.update(word for line in lines for word in line.split())
        write(address, "lines", lines)
        if turn == 0:
            wait_for(lambda: everything.read() > 0, app)
            app.kill()
            assert committed.read() == 0
        else:
            wait_for(lambda: committed.read() >= expected.total(), app)
            app.stop()
    committed.read()
    assert {word: committed.of_key(word) for word in expected} == {
        word: [str(number) for number in range(1, count + 1)] for word, count in expected.items()
    }
    assert everything.read() > len(committed.records)
    committed.consumer.close()
    everything.consumer.close()


@pytest.mark.parametrize("address", ["rocketmq"], indirect=True)
@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        # FindCoordinator refuses the transactional id.
        ("copy", "Could not find a coordinator with type TRANSACTION .* no transactions of Kafka"),
        # CreateTopics refuses the topics that it makes for its state.
        ("count", "Could not create topic app-words-repartition. InvalidConfigurationException"),
    ],
    ids=["copy", "count"],
)
def test_streams_is_refused_over_messages(
    classpath: str, tmp_path: Path, address: str, topology: str, reason: str
) -> None:
    """A store without transactions: the application ends at once, with the reason."""
    create(address, "lines", "counts")
    app = word_count(classpath, tmp_path, address, f"topology={topology}")
    assert app.process.wait(60) == 1
    output = app.output.read_text()
    assert re.search(f"^refused: .*{reason}", output, re.MULTILINE), output
