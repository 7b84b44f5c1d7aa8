"""Which wheel scripts/compiled_wheel.py takes, and why none is built."""

from __future__ import annotations

import fcntl
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.tags import sys_tags

from scripts import compiled_wheel

LIBRARY = "logserver__mypyc.cpython-311-x86_64-linux-gnu.so"
FITS = str(next(sys_tags()))
OTHER = "cp399-cp399-any"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small clone; the cache is in `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(compiled_wheel.OFF, raising=False)
    root = tmp_path / "clone"
    for package in compiled_wheel.PACKAGES:
        (root / package / "inner").mkdir(parents=True)
        (root / package / "inner" / "module.py").write_text(f"NAME = {package!r}\n")
    for name in compiled_wheel.ROOT_FILES:
        (root / name).write_text(name)
    (root / "docs" / "formats").mkdir(parents=True)
    for name in ("index.md", "formats/batch.md", "picture.svg"):
        (root / "docs" / name).write_text(name)
    return root


def put_wheel(root: Path, folder: Path, tag: str = FITS, *, compiled: bool = True) -> Path:
    """Write a wheel of the sources as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"logserver-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for package in compiled_wheel.PACKAGES:
            archive.mkdir(package)  # as auditwheel does
            for path in (root / package).rglob("*.py"):
                archive.write(path, path.relative_to(root).as_posix())
        for path in (root / "docs").rglob("*.md"):
            archive.write(path, f"logserver/{path.relative_to(root).as_posix()}")
        archive.writestr("logserver-0.1.0.dist-info/METADATA", "Name: logserver\n")
        if compiled:
            archive.writestr(LIBRARY, b"")
    return wheel


def cached(root: Path) -> Path:
    folder = compiled_wheel.cache_folder()
    assert folder is not None
    return folder / compiled_wheel.key_of(root)


def test_the_key_follows_the_content_and_not_the_place(root: Path, tmp_path: Path) -> None:
    key = compiled_wheel.key_of(root)
    other = tmp_path / "elsewhere"
    shutil.copytree(root, other)
    (other / "api" / "__pycache__").mkdir()
    (other / "api" / "__pycache__" / "module.pyc").write_bytes(b"not a source")
    assert compiled_wheel.key_of(other) == key
    (other / "setup.py").write_text("changed")
    assert compiled_wheel.key_of(other) != key


def test_the_key_follows_the_interpreter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = compiled_wheel.key_of(root)
    monkeypatch.setattr(sys, "version", "3.99")
    assert compiled_wheel.key_of(root) != key


def test_a_wheel_of_these_sources_is_found(root: Path) -> None:
    assert compiled_wheel.find(root) is None
    built = put_wheel(root, root / "dist")
    assert compiled_wheel.find(root) == built
    kept = put_wheel(root, cached(root))
    assert compiled_wheel.find(root) == kept, "the cache comes first"


@pytest.mark.parametrize("place", ["dist", "cache"])
@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "api/inner/module.py").write_text("NAME = 'new'\n"),
        lambda root: (root / "api/inner/added.py").write_text("\n"),
        lambda root: (root / "api/inner/module.py").unlink(),
        lambda root: (root / "docs/formats/batch.md").write_text("A new page\n"),
    ],
    ids=["edited", "added", "removed", "a page"],
)
def test_no_stale_wheel_is_taken(root: Path, place: str, change: object) -> None:
    folder = root / "dist" if place == "dist" else cached(root)
    wheel = put_wheel(root, folder)
    assert compiled_wheel.find(root) == wheel
    assert callable(change)
    change(root)
    assert compiled_wheel.find(root) is None
    if place == "cache":  # not even under the new digest
        put = cached(root)
        put.mkdir()
        wheel.rename(put / wheel.name)
        assert compiled_wheel.find(root) is None


def test_a_wheel_that_does_not_fit_is_not_taken(root: Path) -> None:
    put_wheel(root, root / "dist", OTHER)
    put_wheel(root, cached(root), compiled=False)
    (root / "dist" / "no-wheel.whl").write_bytes(b"")
    (root / "dist" / f"logserver-0.2.0-{FITS}.whl").write_bytes(b"half of a wheel")
    assert compiled_wheel.find(root) is None


@pytest.mark.parametrize("damaged", ["api/inner/module.py", LIBRARY])
@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_wheel_is_not_taken(root: Path, damaged: str, kind: int) -> None:
    """A wheel may be damaged anywhere: in a library, which is not compared with a source, and in packed data."""
    built = put_wheel(root, root / "dist")
    whole = put_wheel(root, cached(root))
    with zipfile.ZipFile(built) as archive, zipfile.ZipFile(whole, "w", kind) as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name) or b"compiled")
        place = changed.getinfo(damaged).header_offset + 30 + len(damaged)
    content = bytearray(whole.read_bytes())
    content[place : place + 4] = b"\xff" * 4
    whole.write_bytes(content)
    assert compiled_wheel.find(root) == built, "the next one is taken"
    built.unlink()
    assert compiled_wheel.find(root) is None


def test_without_a_compiler_one_line_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    line = compiled_wheel.build(root)
    assert "plain Python" in line
    assert "no C compiler was found" in line
    assert "apt-get install gcc python3-dev" in line
    assert "\n" not in line
    assert not cached(root).exists()


def test_a_build_is_turned_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled_wheel.OFF, "0")
    assert "LOGSERVER_BACKGROUND_BUILD=0" in compiled_wheel.build(root)
    assert not cached(root).exists()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A compiler exists; the builds that are started are listed, not done."""
    started: list[Path] = []
    monkeypatch.setattr(compiled_wheel, "no_compiler", lambda: None)
    monkeypatch.setattr(
        compiled_wheel, "_in_background", lambda root, folder, lock: started.append(folder)
    )
    return started


def test_two_starts_build_once(root: Path, compiler: list[Path]) -> None:
    folder = cached(root)
    folder.mkdir(parents=True)
    with (folder / compiled_wheel.LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "is being made already" in compiled_wheel.build(root)
        assert compiler == []
    assert "in the background" in compiled_wheel.build(root)
    assert compiler == [folder]


def test_a_failed_build_is_reported_and_not_repeated(root: Path, compiler: list[Path]) -> None:
    compiled_wheel.build(root)
    failed = cached(root) / compiled_wheel.FAILED
    failed.write_text("error: no space left on device")
    line = compiled_wheel.build(root)
    assert str(failed) in line
    assert "Remove that file to try again" in line
    assert len(compiler) == 1
    failed.unlink()
    compiled_wheel.build(root)
    assert len(compiler) == 2


def test_a_cache_that_cannot_be_written_is_no_error(
    root: Path, compiler: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "plain Python" in compiled_wheel.build(root)
    assert compiler == []


def test_without_a_home_there_is_no_cache(
    root: Path, compiler: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME", raising=False)
    assert compiled_wheel.find(root) is None
    assert "HOME is not set" in compiled_wheel.build(root)
    assert compiler == []


def test_a_build_that_fails_leaves_its_output(root: Path) -> None:
    """The sources here are no project: pip fails."""
    folder = cached(root)
    folder.mkdir(parents=True)
    (folder / "left").mkdir()
    compiled_wheel.make(root, folder)
    assert (folder / compiled_wheel.FAILED).read_text() != ""
    assert [path.name for path in folder.iterdir()] == [compiled_wheel.FAILED]


def test_sources_edited_during_the_copy_are_not_built(root: Path) -> None:
    folder = cached(root)
    folder.mkdir(parents=True)
    (root / "api/inner/module.py").write_text("edited\n")
    compiled_wheel.make(root, folder)
    assert list(folder.iterdir()) == []
