"""The real Kafka's reading of small files (line ends, malformed lines, markers) and of foreign folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.formats.files import small_files
from tests.golden.stores import GoldenPartition
from tests.interop.peers import PeerError, run_kafka_opens, run_read_small_files

pytestmark = pytest.mark.java

PARTS = GoldenPartition("parts", "keyed-1")


def test_the_known_answers_are_those_of_kafka(tmp_path: Path) -> None:
    """Every case of the unit tests, in one call: Kafka's own readers return the same."""
    files: dict[Path, object] = {}
    for name, cases in small_files.BY_NAME.items():
        for number, (content, expected) in enumerate(cases):
            path = tmp_path / name.strip(".") / str(number) / name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
            files[path] = expected
    answers = run_read_small_files(files)
    for path, expected in files.items():
        read = answers[path].get("read")
        if path.name == ".kafka_cleanshutdown":
            assert read == [True, expected], path.read_bytes()
        elif path.name == "meta.properties":
            assert (read and read[0]) == expected, path.read_bytes()
        else:
            assert read == expected, path.read_bytes()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of the real broker, to be damaged."""
    return Path(shutil.copytree(PARTS.root, tmp_path / "data"))


def test_line_ends_of_another_system(root: Path) -> None:
    """With CR LF in all its small files a broker starts, and reads the log start in them."""
    (root / "log-start-offset-checkpoint").write_bytes(b"0\n1\nkeyed 1 5\n")
    for path in [
        *root.glob("*-checkpoint"),
        *root.glob("*/*-checkpoint"),
        *root.glob("*/*.metadata"),
    ]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    answer = run_kafka_opens(root, "--whole", "yes", "--topic", "keyed")
    assert answer.summaries["keyed", 1]["earliest"] == 5
    assert answer.records["keyed", 1][0]["offset"] == 5


@pytest.mark.parametrize(
    "name", ["lost+found", "backup", "old-data", ".snapshot", "keyed-1.a1-gone"]
)
def test_a_foreign_folder_keeps_a_broker_from_starting(root: Path, name: str) -> None:
    (root / name).mkdir()
    with pytest.raises(PeerError, match="is not in the form of topic-partition"):
        run_kafka_opens(root, "--whole", "yes", "--records", "no")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log-start-offset-checkpoint", "0\n2\nkeyed 1 5\n"),
        ("recovery-point-offset-checkpoint", "zeros"),
        ("keyed-1/leader-epoch-checkpoint", "0\n1\n-1 0\n"),
    ],
)
def test_a_damaged_file_keeps_a_broker_from_starting(root: Path, name: str, content: str) -> None:
    (root / name).write_text(content)
    with pytest.raises(PeerError):
        run_kafka_opens(root, "--whole", "yes", "--records", "no")


def test_the_answers_are_json() -> None:
    """The expected values of the unit tests can be compared with a JSON answer."""
    for cases in small_files.BY_NAME.values():
        for _, expected in cases:
            assert json.loads(json.dumps(expected)) == expected
