"""A folder that runs append to: a run may end anywhere, and every file exists once or not at all."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from logserver.pipeline.jobs.appended import COMMIT, OWN, Appended, appending
from storage.errors import Corrupt, InvalidArgument, StoreLocked


class Killed(BaseException):
    """The end of the process."""


def stage(folder: Appended, *names: str) -> None:
    for name in names:
        path = folder.staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def files(out: Path) -> list[str]:
    """Return the files that a reader of Parquet sees."""
    found = (path.relative_to(out) for path in out.rglob("*.parquet"))
    return sorted(str(path) for path in found if path.parts[0] != OWN)


def test_runs_append(tmp_path: Path) -> None:
    with appending(tmp_path) as folder:
        assert folder.state == {}
        stage(folder, "topic=a/x.parquet", "topic=b/y.parquet", "_SUCCESS")
        assert files(tmp_path) == []
        assert folder.commit({"end": 1}) == 2
    with appending(tmp_path) as folder:
        assert folder.state == {"end": 1}
        stage(folder, "topic=a/z.parquet")
        folder.commit({"end": 2})
    assert files(tmp_path) == ["topic=a/x.parquet", "topic=a/z.parquet", "topic=b/y.parquet"]


def test_a_folder_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with appending(Path("out")) as folder:
        stage(folder, "topic=a/x.parquet")
        folder.commit({})
    assert files(tmp_path / "out") == ["topic=a/x.parquet"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("kept")
    message = "out is a file: give a new or an empty folder"
    with pytest.raises(InvalidArgument, match=message), appending(path):
        pass
    assert path.read_text() == "kept"


def test_a_run_that_ends_before_its_commit_adds_nothing(tmp_path: Path) -> None:
    with appending(tmp_path) as folder:
        stage(folder, "x.parquet")
    with appending(tmp_path) as folder:
        assert folder.state == {}
        assert not folder.staging.exists()
    assert files(tmp_path) == []


@pytest.mark.parametrize("survived", range(6))
def test_a_run_that_ends_in_its_commit_adds_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """A run may end before each rename; the first rename is the commit itself."""
    names = [f"topic={n}/{n}.parquet" for n in range(4)]
    left = survived
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return real(self, target)

    with monkeypatch.context() as patch, pytest.raises(Killed) if survived < 5 else nullcontext():
        patch.setattr(Path, "replace", replace)
        with appending(tmp_path) as folder:
            stage(folder, *names)
            folder.commit({"end": 4})
    with appending(tmp_path) as folder:
        assert folder.state == ({"end": 4} if survived else {})
    assert files(tmp_path) == (names if survived else [])


def test_files_that_a_user_has_deleted_stay_deleted(tmp_path: Path) -> None:
    with appending(tmp_path) as folder:
        stage(folder, "topic=a/x.parquet")
        folder.commit({})
    (tmp_path / "topic=a" / "x.parquet").unlink()
    (tmp_path / "topic=a").rmdir()
    with appending(tmp_path):
        pass
    assert not (tmp_path / "topic=a").exists()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        appending(tmp_path),
        pytest.raises(StoreLocked, match="another run writes there"),
        appending(tmp_path),
    ):
        pass


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InvalidArgument, match="no export has written"), appending(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_commit_is_told(tmp_path: Path) -> None:
    with appending(tmp_path) as folder:
        folder.commit({"end": 1})
    (tmp_path / OWN / COMMIT).write_text("{")
    with pytest.raises(Corrupt, match=f"{COMMIT} does not tell"), appending(tmp_path):
        pass
