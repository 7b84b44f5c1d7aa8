"""Garbage in this project's own small files at a store's root is named by each command and by a start. Both formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import StoreOptions, detect, open_store
from storage.errors import DamagedStore
from storage.files import STORE_FILE
from storage.shared.loss_report import SALVAGE_REPORT
from storage.shared.own_files import CONVERSION_REPORT
from storage.shared.staged_append import NOTE
from tests.cli.runner import run, settings_options
from tests.golden import rocketmq_stores, stores

GARBAGE = [b"nul", b"[1,2", b"\xff\x00\x01", b"", b'{"version": "x"']
OURS = {
    "kafka": [".logserver.topics.json"],
    "rocketmq": [".logserver.producers.json", ".logserver.deleted.json"],
}
GOLDEN = rocketmq_stores.golden("small")
SETTINGS: Mapping[str, Mapping[str, str]] = {"kafka": {}, "rocketmq": GOLDEN.settings}
OTHER = {"kafka": "rocketmq", "rocketmq": "kafka"}
RECORDS = {"kafka": 1500, "rocketmq": 220}


class Made(NamedTuple):
    """A copy of a real store."""

    backend: str
    root: Path

    @property
    def options(self) -> list[str]:
        """The settings of the store as command options."""
        return settings_options(SETTINGS[self.backend])

    def opened(self, *, accept_loss: bool = False) -> StoreOptions:
        """Return the options of a start."""
        return StoreOptions(settings=SETTINGS[self.backend], accept_loss=accept_loss)


@pytest.fixture(params=list(OTHER))
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Made:
    """A store of each format."""
    source = stores.KAFKA / "parts" / "data" if request.param == "kafka" else GOLDEN.root
    return Made(request.param, stores.copy_store(source, tmp_path / "store"))


def named(made: Made, command: str, path: Path) -> list[str]:
    """Return the codes of a command's findings about a file; the exit code must be 1 if there are any, else 0."""
    ended = run(command, made.root, "--output", "json", *made.options)
    rows = ended.document if command == "verify" else ended.document["findings"]
    codes = [row["code"] for row in rows if row["path"] == str(path)]
    assert ended.code == (1 if codes else 0)
    return codes


@pytest.mark.parametrize("data", GARBAGE)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        (NOTE, "damaged-append-note"),
        (SALVAGE_REPORT, "damaged-report"),
        (CONVERSION_REPORT, "damaged-report"),
        (STORE_FILE, "bad-root-file"),
    ],
)
def test_verify_and_inspect_name_it(made: Made, name: str, code: str, data: bytes) -> None:
    path = made.root / name
    path.write_bytes(data)
    assert named(made, "verify", path) == [code]
    assert named(made, "inspect", path) == [code]


@pytest.mark.parametrize("data", GARBAGE)
def test_the_files_of_one_format_are_named_too(made: Made, data: bytes) -> None:
    for name in OURS[made.backend]:
        path = made.root / name
        path.write_bytes(data)
        assert named(made, "verify", path) == ["bad-root-file"]


@pytest.mark.parametrize("data", GARBAGE)
def test_a_start_names_the_note_and_what_helps(made: Made, data: bytes) -> None:
    path = made.root / NOTE
    path.write_bytes(data)
    with pytest.raises(DamagedStore, match="--accept-loss") as raised:
        open_store(made.backend, made.root, made.opened())
    assert raised.value.facts()["path"] == str(path)
    assert str(path) in raised.value.message
    assert path.read_bytes() == data
    with open_store(made.backend, made.root, made.opened(), read_only=True) as store:
        assert "damaged-append-note" in [found.code for found in store.recovery.findings]
    with open_store(made.backend, made.root, made.opened(accept_loss=True)) as store:
        assert "damaged-append-note" in [found.code for found in store.recovery.findings]
    assert not path.exists()
    assert path.with_name(f"{NOTE}.damaged").read_bytes() == data
    with open_store(made.backend, made.root, made.opened()) as store:
        assert "damaged-append-note" not in [found.code for found in store.recovery.findings]


@pytest.mark.parametrize("data", GARBAGE)
def test_a_start_names_a_report_and_goes_on(made: Made, data: bytes) -> None:
    (made.root / SALVAGE_REPORT).write_bytes(data)
    with open_store(made.backend, made.root, made.opened()) as store:
        found = [(found.code, found.path) for found in store.recovery.findings]
    assert ("damaged-report", str(made.root / SALVAGE_REPORT)) in found


@pytest.mark.parametrize("more", [{}, {"version": 1, "created": True}, {"next_producer_id": 70}])
def test_a_store_file_of_the_other_format_is_named(made: Made, more: dict[str, object]) -> None:
    path = made.root / STORE_FILE
    path.write_text(json.dumps({"backend": OTHER[made.backend], **more}))
    found = detect(made.root)
    assert found is not None
    assert found.backend == made.backend
    assert named(made, "verify", path) == ["bad-root-file"]
    assert named(made, "inspect", path) == ["bad-root-file"]
    target = made.root.with_name("new")
    ended = run("salvage", made.root, "--to", target, *made.options)
    assert ended.document["kept_records"] == RECORDS[made.backend]
    with open_store(made.backend, made.root, made.opened()) as store:
        assert str(path) in [found.path for found in store.recovery.findings]
    assert json.loads(path.read_bytes())["backend"] == made.backend
    assert OTHER[made.backend] in path.with_name(f"{STORE_FILE}.damaged").read_text()


@pytest.mark.parametrize("name", ["x", "memory", ""])
def test_a_store_file_of_no_format_is_named(made: Made, name: str) -> None:
    (made.root / STORE_FILE).write_text(json.dumps({"backend": name}))
    found = detect(made.root)
    assert found is not None
    assert found.backend == made.backend
    assert named(made, "verify", made.root / STORE_FILE) == ["bad-root-file"]
