"""The handle cache: open files, dirty files, and no durability reported before a sync."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.errors import IoFailure, StoreClosed
from storage.files import HandleCache, OverlayFileSystem, RealFileSystem
from storage.files.handles import Lease
from tests.unit.files.guarded import Watched, descriptors_below, failing

A, B, C, D = (Path("/d") / name for name in "abcd")


@pytest.fixture
def fs() -> Watched:
    """A watched file system with the files /d/a to /d/d, each with its own name ten times."""
    memory = OverlayFileSystem(None)
    memory.make_dir(Path("/d"))
    for path in (A, B, C, D):
        memory.open(path, create=True).pwrite(path.name.encode() * 10, 0)
    return Watched(memory)


@pytest.fixture
def cache(fs: Watched) -> Iterator[HandleCache]:
    """A cache of two open files."""
    cache = HandleCache(fs, 2)
    yield cache
    cache.close(sync=False)
    assert fs.open_now == 0


def touch(cache: HandleCache, *paths: Path) -> None:
    for path in paths:
        with cache.borrow(path) as file:
            assert file.pread(1, 0) == path.name.encode()


def write(cache: HandleCache, path: Path, data: bytes = b"x", position: int = 5) -> None:
    with cache.borrow(path, write=True) as file:
        file.pwrite(data, position)


def refused(call: Callable[[], object]) -> object:
    with pytest.raises(IoFailure) as caught:
        call()
    return caught.value.facts()["errno"]


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, threading.Event]:
    """Start the call in a thread; the event is set when the call has ended."""
    done = threading.Event()

    def run() -> None:
        try:
            call()
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, done


# Open files.


def test_a_file_is_opened_once(fs: Watched, cache: HandleCache) -> None:
    for _ in range(3):
        touch(cache, A)
        touch(cache, Path("/d/a"))
    assert fs.log == [("open", "a")]
    assert cache.open_files == 1


def test_only_an_open_file_is_borrowed(fs: Watched, cache: HandleCache) -> None:
    assert cache.borrow_open(A) is None
    touch(cache, A, B)
    lease = cache.borrow_open(A)
    assert lease is not None
    with lease as file:
        touch(cache, C)  # closes B: A is in use, and was used last
        assert file.pread(1, 0) == b"a"
    assert cache.borrow_open(B) is None
    assert [path for step, path in fs.log if step == "open"] == ["a", "b", "c"]


def test_the_least_recently_borrowed_goes(fs: Watched, cache: HandleCache) -> None:
    touch(cache, A, B, A, C)
    assert fs.log == [("open", "a"), ("open", "b"), ("open", "c"), ("close", "b")]
    touch(cache, A, B)
    assert fs.log[4:] == [("open", "b"), ("close", "c")]


def test_a_borrow_of_an_open_file_counts_too(fs: Watched, cache: HandleCache) -> None:
    touch(cache, A, B)
    lease = cache.borrow_open(A)
    assert lease is not None
    with lease:
        pass
    touch(cache, B, C)
    assert fs.log[2:] == [("open", "c"), ("close", "a")]


def test_borrowed_files_stay(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A) as a, cache.borrow(B), cache.borrow(C):
        assert cache.open_files == 3
        touch(cache, D)
        assert a.pread(1, 0) == b"a"
        assert "close" not in {operation for operation, _ in fs.log}


def test_the_limit_is_kept_again(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A), cache.borrow(B), cache.borrow(C):
        pass
    touch(cache, D)
    assert fs.log[-2:] == [("close", "a"), ("close", "b")]
    assert cache.open_files == fs.open_now == 2


def test_a_file_is_given_back_after_an_error(fs: Watched, cache: HandleCache) -> None:
    with pytest.raises(KeyError), cache.borrow(A):
        raise KeyError
    touch(cache, B, C)
    assert fs.log[-1] == ("close", "a")


def test_a_file_that_cannot_be_opened(fs: Watched, cache: HandleCache) -> None:
    for write_it in (False, True):
        assert refused(lambda w=write_it: cache.borrow(Path("/d/none"), w)) == errno.ENOENT  # type: ignore[misc]
    assert cache.open_files == 0


def test_create(fs: Watched, cache: HandleCache) -> None:
    path = Path("/d/new")
    for _ in range(2):
        with cache.borrow(path, create=True) as file:
            file.pwrite(b"n", 0)
    assert fs.log.count(("open", "new")) == 1
    assert fs.read_bytes(path) == b"n"


def test_opened_again_to_write(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A) as reader:
        with cache.borrow(A, write=True) as writer:
            writer.pwrite(b"W", 0)
            assert reader.pread(2, 0) == b"Wa"
            assert fs.log == [("open", "a"), ("open", "a"), ("write", "a")]
        assert cache.open_files == 1
        assert fs.open_now == 2
    assert fs.log[-1] == ("close", "a")
    assert fs.open_now == 1
    with cache.borrow(A) as reader, cache.borrow(A, write=True) as writer:
        assert reader is writer


def test_opened_again_to_write_when_nobody_reads(fs: Watched, cache: HandleCache) -> None:
    touch(cache, A)
    write(cache, A)
    assert fs.open_now == 1


def test_two_threads_open_one_file(fs: Watched, cache: HandleCache) -> None:
    fs.before["open", "a"] = lambda: touch(cache, A)  # the other thread is faster
    touch(cache, A)
    assert fs.log == [("open", "a"), ("open", "a"), ("close", "a")]
    fs.before["open", "b"] = lambda: write(cache, B)
    write(cache, B)
    fs.before["open", "c"] = lambda: write(cache, C)
    touch(cache, C)
    assert fs.open_now == cache.open_files == 2


# Dirty files.


def test_datasync_once_per_write(fs: Watched, cache: HandleCache) -> None:
    cache.datasync(A)
    touch(cache, A)
    cache.datasync(A)
    assert fs.log == [("open", "a")]
    write(cache, A)
    assert fs.unsynced() == {"a"}
    cache.datasync(A)
    cache.datasync(A)
    assert fs.log.count(("datasync", "a")) == 1
    write(cache, A)
    cache.datasync(A)
    assert fs.log.count(("datasync", "a")) == 2
    assert fs.unsynced() == set()


def test_datasync_while_it_is_borrowed(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A, write=True) as file:
        for _ in range(3):
            file.pwrite(b"x", 0)
            cache.datasync(A)
            assert fs.unsynced() == set()
        file.pwrite(b"x", 0)
    cache.datasync(A)
    assert fs.unsynced() == set()


def test_a_write_during_the_sync_is_dirty(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    fs.before["datasync", "a"] = lambda: write(cache, A)
    cache.datasync(A)
    assert fs.unsynced() == {"a"}
    cache.datasync(A)
    assert fs.unsynced() == set()


def test_a_second_datasync_waits_for_the_first(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    release = threading.Event()
    entered = threading.Event()

    def block() -> None:
        entered.set()
        release.wait(30)

    fs.before["datasync", "a"] = block
    first, _ = in_thread(lambda: cache.datasync(A))
    entered.wait(30)
    second, done = in_thread(lambda: cache.datasync(A))
    assert not done.wait(0.05)
    touch(cache, A, B)  # other files are not blocked
    release.set()
    first.join(30)
    second.join(30)
    assert fs.log.count(("datasync", "a")) == 1
    assert fs.unsynced() == set()


def test_a_dirty_file_is_synced_before_it_is_closed(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    touch(cache, B, C)
    assert fs.log[-2:] == [("datasync", "a"), ("close", "a")]
    cache.datasync(A)
    assert fs.unsynced() == set()


def test_datasync_waits_for_the_sync_of_a_file_that_must_go(
    fs: Watched, cache: HandleCache
) -> None:
    write(cache, A)
    touch(cache, B)
    release = threading.Event()
    entered = threading.Event()

    def block() -> None:
        entered.set()
        release.wait(30)

    fs.before["datasync", "a"] = block
    evicting, _ = in_thread(lambda: touch(cache, C))
    entered.wait(30)
    syncing, done = in_thread(lambda: cache.datasync(A))
    assert not done.wait(0.05)
    release.set()
    evicting.join(30)
    syncing.join(30)
    assert fs.unsynced() == set()
    assert cache.open_files == 2


def test_a_file_borrowed_while_it_must_go_stays(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    touch(cache, B)
    seen: list[bytes] = []

    def borrow_again() -> None:
        lease = cache.borrow(A, write=True)
        file = lease.__enter__()

        def give_back() -> None:
            file.pwrite(b"late", 0)
            seen.append(file.pread(4, 0))
            lease.__exit__()

        fs.before["close", "b"] = give_back

    fs.before["datasync", "a"] = borrow_again
    touch(cache, C)
    assert seen == [b"late"]
    cache.datasync(A)
    assert fs.unsynced() == set()


def test_a_file_forgotten_while_it_must_go_stays_with_who_borrowed_it(
    fs: Watched, cache: HandleCache
) -> None:
    """A borrow and a forget come between the choice of a dirty file for eviction and its sync."""
    write(cache, A)
    touch(cache, B)
    lock = cache._lock
    met: list[bool] = []
    borrowed: list[Lease] = []

    class Between:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *exc_info: object) -> None:
            lock.release()
            if not met and A in cache._entries and cache._entries[A].pins:
                met.append(True)
                borrowed.append(cache.borrow(A))
                cache.forget(A, sync=False)

    cache._lock = Between()  # type: ignore[assignment]  # not a lock, but used like a lock
    touch(cache, C)
    (lease,) = borrowed
    assert lease.__enter__().pread(1, 5) == b"x"
    lease.__exit__()
    assert fs.open_now == cache.open_files


# Failures.


def test_a_failed_datasync_is_kept(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    fs.before["datasync", "a"] = failing(errno.EIO)
    for _ in range(3):
        assert refused(lambda: cache.datasync(A)) == errno.EIO
    assert refused(lambda: write(cache, A)) == errno.EIO
    assert ("datasync", "a") not in fs.log
    touch(cache, A)
    write(cache, B)
    cache.datasync(B)
    assert refused(cache.close) == errno.EIO
    assert fs.open_now == 0
    cache.close()


def test_a_failure_at_eviction_meets_those_it_concerns(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    fs.before["datasync", "a"] = failing(errno.EIO)
    touch(cache, B, C)
    assert fs.open_now == 2
    assert refused(lambda: cache.datasync(A)) == errno.EIO
    assert refused(lambda: write(cache, A)) == errno.EIO
    touch(cache, A, B, C)
    assert refused(cache.close) == errno.EIO


def test_a_failure_reaches_all_who_wait(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    entered = threading.Event()
    release = threading.Event()
    answers: list[object] = []

    def fail_late() -> None:
        entered.set()
        release.wait(30)
        failing(errno.EIO)()

    def sync() -> None:
        answers.append(refused(lambda: cache.datasync(A)))

    fs.before["datasync", "a"] = fail_late
    threads = [in_thread(sync)[0]]
    entered.wait(30)
    threads += [in_thread(sync)[0] for _ in range(3)]
    release.set()
    for thread in threads:
        thread.join(30)
    assert answers == [errno.EIO] * 4


def test_a_failure_to_close_means_nothing(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A), cache.borrow(B):
        fs.before["close", "a"] = failing(errno.EIO)
        fs.count_open(-1)
    touch(cache, C)
    cache.close()


# Forgotten files, and the close.


def test_forget_after_a_rename(fs: Watched, cache: HandleCache) -> None:
    touch(cache, A)
    fs.rename(B, A)
    cache.forget(A)
    cache.forget(B)
    with cache.borrow(A) as file:
        assert file.pread(1, 0) == b"b"
    assert refused(lambda: cache.borrow(B)) == errno.ENOENT


def test_forget_while_it_is_borrowed(fs: Watched, cache: HandleCache) -> None:
    with cache.borrow(A) as old:
        fs.remove(A)
        cache.forget(A)
        with cache.borrow(A, create=True) as new:
            assert (old.pread(1, 0), new.pread(1, 0)) == (b"a", b"")
    assert fs.open_now == cache.open_files == 1


@pytest.mark.parametrize("sync", [True, False])
def test_forget_of_a_dirty_file(fs: Watched, cache: HandleCache, sync: bool) -> None:
    write(cache, A)
    cache.forget(A, sync=sync)
    assert (fs.unsynced() == set()) == sync
    assert fs.open_now == 0


def test_forget_tells_a_failed_sync(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    fs.before["datasync", "a"] = failing(errno.EIO)
    assert refused(lambda: cache.forget(A)) == errno.EIO
    cache.forget(A, sync=False)


def test_a_file_opened_before_it_was_forgotten_is_opened_again(
    fs: Watched, cache: HandleCache
) -> None:
    def replace() -> None:
        fs.rename(B, A)
        cache.forget(A)

    fs.before["open", "a"] = replace  # between the system call and the update of the cache
    with cache.borrow(A) as file:
        assert file.pread(1, 0) == b"b"
    assert fs.open_now == cache.open_files == 1


def test_forget_tree(fs: Watched) -> None:
    fs.make_dir(Path("/d/part"))
    fs.make_dir(Path("/d/part2"))
    cache = HandleCache(fs, 9)
    for name in ("part/x", "part/y", "part2/z"):
        with cache.borrow(Path("/d") / name, create=True) as file:
            file.pwrite(b"x", 0)
    fs.remove_tree(Path("/d/part"))
    cache.forget_tree(Path("/d/part"), sync=False)
    assert cache.open_files == fs.open_now == 1
    assert fs.unsynced() == {"x", "y", "z"}
    cache.close()


def test_close(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    with cache.borrow(B, write=True) as file:
        cache.close()
        file.pwrite(b"x", 0)
        assert fs.open_now == 1
    cache.close()
    assert fs.open_now == cache.open_files == 0
    assert fs.unsynced() == set()
    for call in (lambda: cache.borrow(A), lambda: cache.datasync(A)):
        with pytest.raises(StoreClosed):
            call()


def test_closed_while_a_file_is_opened(fs: Watched, cache: HandleCache) -> None:
    fs.before["open", "a"] = cache.close
    with pytest.raises(StoreClosed):
        cache.borrow(A)
    assert fs.open_now == 0


def test_close_without_sync(fs: Watched, cache: HandleCache) -> None:
    write(cache, A)
    cache.close(sync=False)
    assert fs.unsynced() == {"a"}
    assert fs.open_now == 0


# Many threads.


def test_threads(tmp_path: Path) -> None:
    """Many files, few handles: a thread's writes are synced when `datasync` returns, whichever thread evicts them."""
    fs = Watched(RealFileSystem())
    cache = HandleCache(fs, 3)
    paths = [tmp_path / f"{number}.log" for number in range(8)]
    for path in paths:
        fs.open(path, create=True).close()
    wrong: list[str] = []

    def work(own: Path, seed: int) -> None:
        choice = random.Random(seed)
        for step in range(1, 150):
            data = step.to_bytes(4, "big")
            with cache.borrow(own, write=True) as file:
                file.pwrite(data, 0)
            if choice.random() < 0.5:
                cache.datasync(own)
                if own.name in fs.unsynced():
                    wrong.append(f"{own.name} is not synced after step {step}")
            with cache.borrow(own) as file:
                if file.pread(4, 0) != data:
                    wrong.append(f"{own.name} was read otherwise at step {step}")
            with cache.borrow(choice.choice(paths)) as file:
                file.pread(4, 0)
            if choice.random() < 0.05:
                cache.forget(own)

    threads = [in_thread(lambda p=p, s=s: work(p, s))[0] for s, p in enumerate(paths)]  # type: ignore[misc]
    for thread in threads:
        thread.join(120)
    assert wrong == []
    assert cache.open_files <= 3 + len(threads)
    cache.close()
    assert fs.unsynced() == set()
    assert fs.open_now == 0
    assert descriptors_below(tmp_path) == []
