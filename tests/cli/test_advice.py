"""Text of findings: the folder to salvage, the kind of a strange file, and each path once."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from pathlib import Path

import pytest

from storage import open_store
from storage.errors import IoFailure
from storage.files import RealFileSystem
from tests.cli.runner import run
from tests.golden import stores

PARTS = stores.KAFKA / "parts" / "data"


@pytest.mark.parametrize(("number", "records"), [(0, 509), (1, 542), (2, 449)])
def test_the_command_for_a_renamed_folder_can_be_run(
    tmp_path: Path, number: int, records: int
) -> None:
    root = stores.copy_store(PARTS, tmp_path / "a store")
    folder = root / f"keyed-{number}.{'ab' * 16}-stray"
    (root / f"keyed-{number}").rename(folder)
    (line,) = [
        row["help"]
        for row in run("verify", root).rows
        if row["code"] == "renamed-folder" and "help" in row
    ]
    words = shlex.split(line.replace("--to NEW", f"--to {shlex.quote(str(tmp_path / 'new'))}"))
    assert words[:3] == ["logserver", "salvage", str(folder)]
    assert run(*words[1:]).document["kept_records"] == records


@pytest.mark.parametrize("kind", ["named pipe", "socket", "character device"])
def test_what_is_no_regular_file_is_named_by_its_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        path = Path(os.devnull)
    with pytest.raises(IoFailure, match=f"it is a {kind}") as raised:
        RealFileSystem().size(path)
    assert str(path) in raised.value.message


def test_verify_and_a_start_say_that_a_log_is_a_pipe(tmp_path: Path) -> None:
    root = stores.copy_store(PARTS, tmp_path / "store")
    log = root / "keyed-0" / f"{0:020}.log"
    log.unlink()
    os.mkfifo(log)
    said = [row["message"] for row in run("verify", root).rows if row["path"] == str(log)]
    assert any("named pipe" in message for message in said)
    with pytest.raises(IoFailure, match="move it away"):
        open_store("kafka", root)


@pytest.mark.parametrize("data", ["version=9\n", "version=x\n", "version=1\nversion\\u00=2\n"])
def test_a_finding_has_its_path_once(tmp_path: Path, data: str) -> None:
    root = stores.copy_store(PARTS, tmp_path / "store")
    path = root / "meta.properties"
    path.write_text(data)
    (row,) = [row for row in run("verify", root).rows if row["path"] == str(path)]
    assert str(path) not in row["message"]
    shutil.rmtree(root)
