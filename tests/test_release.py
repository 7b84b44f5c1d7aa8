"""A release: its files, the installation of its wheels, and the scripts that look after dependencies."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import logserver
from logserver.origins import DISTRIBUTION
from tests.sources import ROOT, SOON_COMPILED, text_of

STEM = f"{DISTRIBUTION}-{logserver.__version__}"
EXTRAS = {"re2", "kafka", "spark", "report", "notebook", "dev"}
LOCKS = ("requirements.lock", "requirements-test.lock", "requirements-spark.lock")

# What a distribution under the Apache licence can depend on.
FREE = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software Foundation|Mozilla Public License 2|Lesser General Public|Public Domain"
)


def script(name: str) -> dict[str, Any]:
    """Return the names of a script, which is not run as the main program."""
    return runpy.run_path(str(ROOT / "scripts" / name))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a release for this Python, with its output in a file next to it: of the stage before the
    tests (scripts/test), or a new one.
    """
    made = os.environ.get("TESTS_RELEASE")
    if made is not None:
        assert Path(made, "SHA256SUMS").exists(), "the stage before the tests has built no release"
        return Path(made)
    out = tmp_path_factory.mktemp("release") / "files"
    command = [sys.executable, "-P", "scripts/release", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, **SOON_COMPILED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    out.with_suffix(".log").write_text(done.stdout)
    return out


@pytest.mark.slow
def test_the_files_of_a_release(released: Path) -> None:
    steps = released.with_suffix(".log").read_text().splitlines()
    assert [line.partition(" ")[0] for line in steps] == [f"[{n}/6]" for n in range(1, 7)]
    names = {path.name for path in released.iterdir()}
    pure, source, parts = (f"{STEM}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json"))
    (compiled,) = names - {pure, source, parts, "SHA256SUMS"}
    minor = f"cp3{sys.version_info.minor}"
    assert compiled.startswith(f"{STEM}-{minor}-{minor}-")
    if sys.platform == "linux":
        assert "manylinux" in compiled
    lines = (released / "SHA256SUMS").read_text().splitlines()
    sums = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    assert sums == {
        name: hashlib.sha256((released / name).read_bytes()).hexdigest()
        for name in names - {"SHA256SUMS"}
    }
    with tarfile.open(released / source) as packed:
        assert f"{STEM}/setup.py" in packed.getnames()
    with zipfile.ZipFile(released / pure) as packed:
        fields = packed.read(f"{STEM}.dist-info/METADATA").decode()
    assert f"Name: {DISTRIBUTION}\nVersion: {logserver.__version__}\n" in fields
    assert set(re.findall(r"^Provides-Extra: (.+)$", fields, re.MULTILINE)) == EXTRAS
    assert re.findall(r"^Requires-Dist: google-re2.*", fields, re.MULTILINE) != []
    assert "google-re2" not in {
        line.split(">")[0]
        for line in re.findall(r"^Requires-Dist: (.+)$", fields, re.MULTILINE)
        if "extra ==" not in line
    }


@pytest.mark.slow
def test_the_components_are_those_that_are_installed(released: Path) -> None:
    # Imported above, the validator would take a second of each worker.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (released / f"{STEM}.cdx.json").read_text()
    listed = json.loads(text)
    schema = SchemaVersion.from_version(listed["specVersion"])
    assert JsonStrictValidator(schema).validate_str(text) is None
    component = listed["metadata"]["component"]
    assert (component["name"], component["version"]) == (DISTRIBUTION, logserver.__version__)
    names = {row["name"].lower() for row in listed["components"]}
    assert {"aiohttp", "multidict", "zstandard"} <= names
    assert names & {DISTRIBUTION, "coverage", "pytest", "mypy", "setuptools", "pip"} == set()
    assert [row["name"] for row in listed["components"] if not row.get("licenses")] == []
    refs = {row["ref"] for row in listed["dependencies"]}
    assert {ref for row in listed["dependencies"] for ref in row.get("dependsOn", ())} <= refs


@pytest.mark.slow
def test_the_wheel_for_every_platform_is_reproducible(released: Path, tmp_path: Path) -> None:
    release = script("release")["Release"](tmp_path, tmp_path / "out", {})
    release.archive()
    name = release.pure_wheel()
    assert (release.files / name).read_bytes() == (released / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["-py3-none-any.whl", f"-cp3{sys.version_info.minor}-*.whl"])
@pytest.mark.parametrize("extra", ["", "[spark]"])
def test_a_wheel_installs_and_starts(released: Path, tmp_path: Path, kind: str, extra: str) -> None:
    """As pip, pipx and uv install it: in an environment of its own, the command linked from another folder."""
    (wheel,) = released.glob(f"{STEM}{kind}")
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, clear=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", f"{wheel}{extra}"], check=True)
    # The dependencies come from this environment: the test needs no network.
    (site,) = home.glob("lib/python3*/site-packages")
    lenders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(lenders))
    command = tmp_path / "bin" / "logserver"
    command.parent.mkdir()
    command.symlink_to(home / "bin" / "logserver")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def output(*arguments: str) -> str:
        line = [str(command), *arguments]
        return subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert output("--version") == f"logserver, version {logserver.__version__}\n"
    assert json.loads(output("explain", "torn-tail"))["code"] == "torn-tail"
    assert json.loads(output("config", "show"))["compiled"] is ("-none-any" not in kind)


def test_the_page_names_the_wheel_and_its_extras() -> None:
    page = text_of(Path("docs/installation.md"))
    wheels = re.findall(r"dist/([\w.-]+\.whl)(?:\[(\w+)\])?", page)
    assert len(wheels) == 4
    assert {name for name, _ in wheels} == {f"{STEM}-py3-none-any.whl"}
    assert {extra for _, extra in wheels} - {""} <= EXTRAS
    for form in ("pip install", "pipx install", "uv tool install", "uvx --from"):
        assert page.count(f"{form} {DISTRIBUTION}") + page.count(f"{form} 'dist/") >= 1
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == EXTRAS - {"dev"}


def test_the_pythons_of_a_release(tmp_path: Path) -> None:
    names = script("release")
    found = names["pythons"]([])
    assert found[sys.version_info.minor] == Path(sys.executable)
    assert list(found) == sorted(found)
    none = tmp_path / "python"
    none.write_text("#!/bin/sh\necho pypy 3 11\n")
    none.chmod(0o755)
    assert names["minor_of"](none) is None
    assert names["minor_of"](tmp_path / "missing") is None
    with pytest.raises(names["Failed"], match="is no CPython"):
        names["pythons"]([none])


def test_an_earlier_release_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in (f"{DISTRIBUTION}-0.0.1.tar.gz", "SHA256SUMS", "notes.txt"):
        (out / name).write_text("earlier")
    release = script("release")["Release"](tmp_path, out, {})
    (release.files / f"{STEM}.tar.gz").write_text("new")
    release.checksums()
    release.move()
    assert {path.name for path in out.iterdir()} == {f"{STEM}.tar.gz", "SHA256SUMS", "notes.txt"}
    assert (out / "notes.txt").read_text() == "earlier"
    assert (out / "SHA256SUMS").read_text().endswith(f"  {STEM}.tar.gz\n")


def test_a_failed_release_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    command = [sys.executable, "-P", "scripts/release", "--python", str(tmp_path / "missing")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is no CPython 3.11 to 3.14" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_tools_of_the_build_and_the_application_are_no_components() -> None:
    """The application is listed where an environment has it twice: installed, and borrowed with the packages."""
    names = ("Used", "dee_p", "pip", DISTRIBUTION)
    listed: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": [{"bom-ref": f"{name}-ref", "name": name} for name in names],
        "dependencies": [{"ref": "root", "dependsOn": ["pip-ref"]}],
    }
    edges = {DISTRIBUTION: {"used"}, "used": {"dee-p"}, "dee-p": set()}
    script("release")["needed_only"](listed, edges)
    assert [row["name"] for row in listed["components"]] == ["Used", "dee_p"]
    assert listed["dependencies"] == [
        {"ref": "dee_p-ref", "dependsOn": []},
        {"ref": "root", "dependsOn": ["Used-ref"]},
        {"ref": "Used-ref", "dependsOn": ["dee_p-ref"]},
    ]


def test_the_graph_has_what_the_wheel_needs_and_no_extras() -> None:
    edges = script("release")["graph"]()
    locked = re.findall(r"^([\w.-]+)==", text_of(Path("requirements.lock")), re.MULTILINE)
    assert edges.keys() - {DISTRIBUTION} < set(locked)
    assert {"multidict", "markupsafe"} < edges.keys()
    assert edges.keys() & {"google-re2", "mypy", "pytest", "pyspark"} == set()


def test_the_page_of_licences_is_current() -> None:
    subprocess.run([sys.executable, "-P", "scripts/licences_page", "--check"], cwd=ROOT, check=True)


def test_what_users_install_has_a_free_licence() -> None:
    text = text_of(Path("docs/licences.md"))
    for_users = text[text.index("\n## ") : text.index("## Added by the extra `report`")]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", for_users, re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in rows if not FREE.search(row[1])] == []


def test_an_unknown_licence_is_reported() -> None:
    names = script("licences_page")
    assert names["licence"]("no-such-package", "1.0", {"no-such-package": "MIT"}) == "MIT"
    with pytest.raises(names["Unknown"], match="no-such-package: neither"):
        names["licence"]("no-such-package", "1.0", {})


def test_the_licence_is_the_one_of_the_locked_version() -> None:
    licence, here = script("licences_page")["licence"], metadata.version("pytest")
    assert licence("pytest", here, {"pytest": "of the page"}) == "MIT"
    assert licence("pytest", "0.1", {"pytest": "of the page"}) == "of the page"
    assert licence("pytest", "0.1", {}) == "MIT"


FAKE_UV = """#!/bin/sh
# As `uv pip compile ... -o FILE` writes it: the pins of the lock file, one of them newer, one without bounds.
for argument; do out=$argument; done
case $out in
  newest.lock) cat > /dev/null; echo "aiohttp==99.0" > "$out" ;;
  *) sed -i -e 's/^click==[^ ]*/click==99.1/' -e 's/^idna==.*/idnb==1.0 \\\\/' "$out" ;;
esac
"""


def test_newer_versions_are_reported_and_nothing_is_changed(tmp_path: Path) -> None:
    """With a stand-in for uv, which asks the package index."""
    clone = tmp_path / "clone"
    (clone / "logserver").mkdir(parents=True)
    files = ("pyproject.toml", "README.md", "setup.py", "logserver/__init__.py", *LOCKS)
    for name in files:
        shutil.copy(ROOT / name, clone / name)
    (clone / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "lock", clone / "scripts")
    (tmp_path / "uv").write_text(FAKE_UV)
    (tmp_path / "uv").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(clone / "scripts" / "lock"), "--check-updates"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    pins = dict(re.findall(r"^([\w.-]+)==([^ ]+)", text_of(Path(LOCKS[0])), re.MULTILINE))
    assert done.stdout.splitlines() == [
        f"click {pins['click']} -> 99.1",
        f"idna {pins['idna']} is no longer needed",
        "idnb is new: 1.0",
        "take them: scripts/lock --upgrade, or --upgrade-package NAME",
        "aiohttp 99.0 is excluded by an upper bound in pyproject.toml",
    ]
    assert [
        name for name in files if (clone / name).read_bytes() != (ROOT / name).read_bytes()
    ] == []


def test_ci_checks_the_installed_packages_against_each_other() -> None:
    assert 'stage "pip check" python -m pip check' in text_of(Path("scripts/test"))


def test_a_missing_uv_is_named(tmp_path: Path) -> None:
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    command = [f"{tmp_path}/bash", f"{ROOT}/scripts/lock", "--check-updates"]
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "error: uv is missing: pip install uv\n")
