"""The lock: against this process, another Python process, and Java's FileChannel, as used by the real brokers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.errors import IoFailure, StoreLocked
from storage.files import RealFileSystem
from storage.files.fs import FileLock
from tests.unit.files.guarded import descriptors_below
from tests.unit.files.test_conformance import errno_of

FS = RealFileSystem()

# Takes the lock on its argument, prints "held" or "refused PID", and releases the lock when its input ends.
PYTHON_HOLDER = """
import sys
from pathlib import Path
from storage.errors import StoreLocked
from storage.files import RealFileSystem
try:
    lock = RealFileSystem().lock(Path(sys.argv[1]))
    print("held", flush=True)
except StoreLocked as refused:
    print("refused", refused.facts()["pid"], flush=True)
sys.stdin.read()
"""

JAVA_HOLDER = """
import java.nio.channels.*;
import java.nio.file.*;
public class Holder {
    public static void main(String[] args) throws Exception {
        var channel = FileChannel.open(Path.of(args[0]), StandardOpenOption.CREATE,
            StandardOpenOption.READ, StandardOpenOption.WRITE);
        var lock = args.length > 1 ? channel.tryLock(0, 1, false) : channel.tryLock();
        System.out.println(lock == null ? "refused" : "held " + ProcessHandle.current().pid());
        System.in.read();
    }
}
"""


@contextmanager
def child(*command: str) -> Iterator[list[str]]:
    """Run a holder; yield the words of its first line and its pid, and end it at the end of the block."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            yield [*process.stdout.readline().split(), str(process.pid)]
        finally:
            process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An existing lock file, with bytes of its own and an old modification time."""
    path = tmp_path / ".lock"
    path.write_bytes(b"theirs")
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def held(path: Path) -> Iterator[FileLock]:
    """The lock, held by this process."""
    lock = FS.lock(path)
    yield lock
    lock.release()


def locked_by(path: Path) -> object:
    """Return the pid in the refusal."""
    with pytest.raises(StoreLocked) as caught:
        FS.lock(path)
    assert str(path) in str(caught.value)
    return caught.value.facts()["pid"]


def test_another_process_is_refused(path: Path, held: FileLock) -> None:
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)) as said:
        assert said[:2] == ["refused", str(os.getpid())]
    held.release()
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)) as said:
        assert said[0] == "held"


def test_the_other_process_is_named(path: Path) -> None:
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)) as said:
        assert said[0] == "held"
        assert str(locked_by(path)) == said[1]
    FS.lock(path).release()


def test_a_second_lock_here_does_not_drop_the_first(path: Path, held: FileLock) -> None:
    link = path.with_name("hard")
    link.hardlink_to(path)
    for name in (path, link, path.parent / "." / path.name):
        assert locked_by(name) == os.getpid()
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)) as said:
        assert said[0] == "refused"


def test_reading_the_lock_file_does_not_drop_the_lock(path: Path, held: FileLock) -> None:
    with pytest.raises(IoFailure, match="lock file held by this process"):
        FS.read_bytes(path)
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)) as said:
        assert said[0] == "refused"
    held.release()
    assert FS.read_bytes(path) == b"theirs"


def test_the_file_is_left_as_it_was(path: Path) -> None:
    FS.lock(path).release()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (b"theirs", 10**18)


def test_all_descriptors_are_closed_at_release(path: Path) -> None:
    lock = FS.lock(path)
    with pytest.raises(IoFailure):
        FS.open(path)
    lock.release()
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)):
        assert locked_by(path) is not None
    assert descriptors_below(path.parent) == []


def test_an_unknown_holder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = bytearray(32)
    flock[0] = fcntl.F_WRLCK
    with child(sys.executable, "-c", PYTHON_HOLDER, str(path)):
        monkeypatch.setattr(fcntl, "fcntl", lambda *_: bytes(flock))
        with pytest.raises(StoreLocked, match="another process") as caught:
            FS.lock(path)
    assert caught.value.facts()["pid"] is None


def test_a_holder_that_lets_go_when_asked_who_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.lockf
    refusals = iter([True, False])

    def lockf(descriptor: int, command: int) -> None:
        if next(refusals):
            raise BlockingIOError(11, "held a moment ago")
        real(descriptor, command)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    FS.lock(path).release()
    assert list(refusals) == []


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(descriptor: int, command: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", lockf)
    assert errno_of(FS.lock, path) == 37


def test_one_thread_of_many_gets_it(path: Path) -> None:
    start = threading.Barrier(8)
    got: list[FileLock] = []
    refused: list[object] = []

    def take() -> None:
        start.wait()
        try:
            got.append(FS.lock(path))
        except StoreLocked as failure:
            refused.append(failure.facts()["pid"])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert refused == [os.getpid()] * 7
    got[0].release()


@pytest.mark.java
@pytest.mark.parametrize("part", [[], ["first byte"]], ids=["kafka", "rocketmq"])
class TestJava:
    """Java's FileChannel.tryLock() and tryLock(0, 1, false) against our lock, both ways."""

    def test_java_is_refused(self, path: Path, held: FileLock, part: list[str]) -> None:
        with self.java(path, part) as said:
            assert said[0] == "refused"
        held.release()
        with self.java(path, part) as said:
            assert said[0] == "held"

    def test_java_is_named(self, path: Path, part: list[str]) -> None:
        with self.java(path, part) as said:
            assert said[0] == "held"
            assert str(locked_by(path)) == said[1]
        FS.lock(path).release()

    @contextmanager
    def java(self, path: Path, part: list[str]) -> Iterator[list[str]]:
        source = path.with_name("Holder.java")
        source.write_text(JAVA_HOLDER)
        java = shutil.which("java")
        assert java is not None
        with child(java, str(source), str(path), *part) as said:
            yield said
